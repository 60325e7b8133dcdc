"""What the server ran, as the command line states it, where the results bear it out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from calibration.live.imports.requests import Load
from calibration.live.stated import OPTION, contradiction, drafts_told, stated_strategy
from models.strict_yaml import InputError


def strategy_of(
    loads: Sequence[Load], given: str | None, label: str | None
) -> tuple[str, dict[str, Any]]:
    """Label and block, without acceptance, of the strategy the server ran.

    Parameters
    ----------
    loads : sequence of Load
    given, label : str or None
        As in ``stated_strategy``.

    Raises
    ------
    InputError
        If the block is no strategy, or not the one the server ran: none that drafts although the
        server did, or another number of draft tokens.
    """
    drafting = next((load for load in loads if load.speculates), None)
    if drafting is not None and given is None:
        needs = f"the server drafted: give {OPTION} with what it ran, as '{{kind: ngram, k: 4}}'"
        raise InputError(drafting.path, None, "", needs)
    name, block = stated_strategy(given, label)
    if drafting is not None and block["kind"] == "autoregressive":
        message = f"is autoregressive, but the server drafted ({drafting.path})"
        raise InputError("", None, OPTION, message)
    for load in loads:
        # Only results of vLLM's own benchmark have counters, and of every position.
        wrong = contradiction(block, drafts_told(load.counters, every_position=True))
        if wrong:
            raise InputError("", None, OPTION, f"the server {wrong} ({load.path})")
    return name, block
