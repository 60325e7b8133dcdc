"""The strategy a server runs, as the command line states it: no server tells."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from models.strategies import strategy_types
from models.strict_yaml import InputError, load_yaml, one_line


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
    data = {"kind": "autoregressive"} if text is None else load_yaml(text, "--strategy").data
    known = strategy_types()
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind not in known:
        message = f"needs a kind, one of {', '.join(known)}; got {one_line(str(kind))}"
        raise InputError("", None, "--strategy", message)
    block = {key: value for key, value in data.items() if key not in ("acceptance", "label")}
    try:
        built = known[kind].model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(("--strategy", *map(str, first["loc"])))
        raise InputError("", None, where, one_line(first["msg"])) from None
    return label or built.name, block
