"""The user's operating point: where on the maps of a sweep to put a mark."""

from __future__ import annotations

import difflib
from typing import Any

from models.strict_yaml import InputError, load_yaml, show
from sim.scenario.overrides import canonical
from sim.scenario.vary import Unfolded, keys_of


def operating_point(text: str | None, varied: Unfolded) -> dict[str, float]:
    """Read ``key=value,key=value``.

    Parameters
    ----------
    text : str or None
        None: no point.
    varied : Unfolded
        Of keys that move together any may be given.

    Raises
    ------
    InputError
        If it cannot be read, names a key that does not vary, or lies outside its values.
    """
    settings = [one for group in varied.groups for variation in group for one in variation]
    known = {canonical(key): key for one in settings for key in keys_of(one.name)}
    found: dict[str, float] = {}
    for part in (text or "").split(",") if text is not None else ():
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals:
            raise InputError("", None, "--at", f"must read key=value,key=value, got {show(text)}")
        if canonical(key) not in known:
            near = difflib.get_close_matches(canonical(key), known, 1)
            hint = f"did you mean '{known[near[0]]}'?" if near else "it does not vary"
            raise InputError("", None, "--at", f"no such key, got '{key}'; {hint}")
        number = load_yaml(f"value: {value}", "--at").data["value"]
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise InputError("", None, "--at", f"{key} must be a number, got {show(number)}")
        values = [
            one.value for one in settings if canonical(key) in map(canonical, keys_of(one.name))
        ]
        _require_inside(key, number, values)
        found[key] = float(number)
    return found


def _require_inside(key: str, number: float, values: list[Any]) -> None:
    known = [value for value in values if isinstance(value, int | float)]
    if known and not min(known) <= number <= max(known):
        what = f"{key} must lie in what is simulated, {min(known):g} to {max(known):g}"
        raise InputError("", None, "--at", f"{what}, got {number:g}")
