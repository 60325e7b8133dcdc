"""What the server ran, as the command line says it, and whether the results bear it out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from calibration.live.imports.requests import Load
from models.strategies import fixed_types
from models.strict_yaml import InputError, load_yaml, one_line

PLAIN = "{kind: autoregressive}"
OPTION = "--strategy"


def strategy_of(
    loads: Sequence[Load], given: str | None, label: str | None
) -> tuple[str, dict[str, Any]]:
    """Label and block, without acceptance, of the strategy the server ran.

    Parameters
    ----------
    loads : sequence of Load
    given : str or None
        Its YAML block; None: autoregressive.
    label : str or None
        What to call it; by default as its block, or its kind.

    Raises
    ------
    InputError
        If the block is no strategy, or the server drafted and no block says how.
    """
    drafting = next((load for load in loads if load.speculates), None)
    if drafting is not None and given is None:
        needs = f"the server drafted: give {OPTION} with what it ran, as '{{kind: ngram, k: 4}}'"
        raise InputError(drafting.path, None, "", needs)
    data = load_yaml(given or PLAIN, OPTION).data
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind not in fixed_types():
        got = f"got '{one_line(str(kind))}'"
        raise InputError(OPTION, None, "kind", f"must be one of {', '.join(fixed_types())}, {got}")
    try:
        strategy = fixed_types()[str(kind)].model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(OPTION, None, where, one_line(first["msg"])) from None
    if drafting is not None and not strategy.drafted:
        message = f"is {kind}, but the server drafted ({drafting.path})"
        raise InputError(OPTION, None, "kind", message)
    block = {key: value for key, value in data.items() if key not in ("acceptance", "label")}
    return label or strategy.label or str(kind), block
