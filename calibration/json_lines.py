"""Files that grow by a line of JSON at a time, so that an interrupted run can go on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sim.interrupts import held


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What each line holds; a last line cut short is left out, here and in the file.

    Empty where there is no file.

    Raises
    ------
    ValueError, TypeError
        If a whole line is no JSON mapping; the file is left as it is.
    """
    if not path.exists():
        return []
    text = path.read_bytes()
    whole = text.rfind(b"\n") + 1
    found = [dict(json.loads(line)) for line in text[:whole].splitlines()]
    if whole < len(text):
        with path.open("r+b") as file:
            file.truncate(whole)
    return found


def append_line(path: Path, value: Mapping[str, Any]) -> None:
    """Add one line; it is with the system when this returns, and no signal can tear it."""
    line = json.dumps(value, allow_nan=False, separators=(",", ":")) + "\n"
    with held(), path.open("a", encoding="utf-8") as file:
        file.write(line)


def differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What two runs do not share, by name and with both values."""
    said = []
    for key in now:
        old, new = before.get(key), now[key]
        if old != new:
            both = [one.get("name", one) if isinstance(one, dict) else one for one in (old, new)]
            said.append(f"{key}: {both[0]}, now {both[1]}")
    return "; ".join(said) or "other options"
