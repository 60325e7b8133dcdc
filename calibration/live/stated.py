"""The strategy a server runs: stated by the user, borne out by what the server counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from models.strategies import Strategy, strategy_types
from models.strategies.modes import Switching
from models.strict_yaml import InputError, load_yaml, one_line

OPTION = "--strategy"
PLAIN = "autoregressive"
EXAMPLE = "eagle3"
"""Kind shown where only the number of draft tokens is known."""


class Drafts(NamedTuple):
    """What a server tells of its drafts.

    Attributes
    ----------
    seen : bool
        Whether it drafted at all.
    k : int or None
        Draft tokens a step it is configured for; None where it does not say.
    least : int
        It is configured for so many at least.
    """

    seen: bool
    k: int | None = None
    least: int = 0


def stated_strategy(text: str | None, label: str | None) -> tuple[str, dict[str, Any]]:
    """Label and block, without acceptance, of the strategy a server runs.

    Parameters
    ----------
    text : str or None
        Its YAML block; None: autoregressive.
    label : str or None
        What to call it; by default as the simulator does.

    Raises
    ------
    InputError
        If it is no strategy.
    """
    data = {"kind": PLAIN} if text is None else load_yaml(text, OPTION).data
    known = strategy_types()
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind not in known:
        message = f"needs a kind, one of {', '.join(known)}; got {one_line(str(kind))}"
        raise InputError("", None, OPTION, message)
    block = {key: value for key, value in data.items() if key not in ("acceptance", "label")}
    try:
        built = known[kind].model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join((OPTION, *map(str, first["loc"])))
        raise InputError("", None, where, one_line(first["msg"])) from None
    return label or built.name, block


def drafts_told(
    counters: Mapping[str, float],
    gauges: Mapping[str, Mapping[str, float]] | None = None,
    *,
    every_position: bool = False,
) -> Drafts:
    """Read a server's counters over a stage, by neutral names.

    Parameters
    ----------
    counters, gauges : mapping
        See ``server.names``.
    every_position : bool
        Whether it counts every position it is configured for from the start, as vLLM does; others
        may count a position only once a token there was accepted.
    """
    names = ("spec_drafts", "spec_drafted", "spec_drafted_at_0")
    emitted = (gauges or {}).get("tau_gauge", {}).get("max", 0.0)
    seen = any(counters.get(name, 0.0) > 0 for name in names) or emitted > 1
    positions = 0
    while f"spec_accepted_at_{positions}" in counters:
        positions += 1
    return Drafts(seen, positions if every_position and positions else None, positions)


def contradiction(block: Mapping[str, Any], told: Drafts) -> str:
    """What a server told against the strategy it is said to run, and what to state instead.

    Parameters
    ----------
    block : mapping
        The strategy, without acceptance.
    told : Drafts

    Returns
    -------
    str
        Begins with a verb, the server its subject; empty where nothing is wrong.
    """
    if not told.seen:
        return ""
    k = told.k or told.least
    if block["kind"] == PLAIN:
        often = f" {k} tokens a step" if k else ""
        return f"drafts{often}, but is stated as {PLAIN}: give {_example(EXAMPLE, 'k', k)}"
    built = strategy_types()[block["kind"]].model_validate(dict(block))
    # A strategy that switches may be configured for more than it drafts.
    if not k or isinstance(built, Switching) or _fits(built, told):
        return ""
    key = next((key for key in ("k", "heads") if key in type(built).model_fields), "k")
    given = _example(str(block["kind"]), key, k)
    return f"drafts {k} tokens a step, but is stated to draft {built.depth}: give {given}"


def _fits(built: Strategy, told: Drafts) -> bool:
    most = {built.depth, built.drafted}
    return told.least <= max(most) if told.k is None else told.k in most


def _example(kind: str, key: str, k: int) -> str:
    more = f", {key}: {k}" if k else ""
    return f"{OPTION} '{{kind: {kind}{more}}}' or what else it runs"
