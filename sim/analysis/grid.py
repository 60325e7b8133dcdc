"""The points of a ``vary`` grid: which one the pictures show, which lie along the load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from sim.analysis import describe
from sim.analysis.verdict import number
from sim.scenario.overrides import canonical

Row = Mapping[str, Any]
Scenario = Mapping[str, Any]

LOADS = {"rate_per_s": "req/s", "users": "users"}
"""Last part of the keys that say how much traffic comes, and their unit."""


def points(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows of each point of the grid."""
    return [list(part) for _, part in groupby(rows, key=lambda row: row["point"])]


def shown(rows: Sequence[Row]) -> list[Row]:
    """The rows of the point that most strategies carry; of several such points the last."""
    return max(reversed(points(rows)), key=lambda at_point: sum(map(_carries, at_point)))


def _carries(row: Row) -> bool:
    return bool(row["finished"]) and not row["saturated"]


def load_key(rows: Sequence[Row]) -> str | None:
    """The varied key of the load, where it takes at least two numbers."""
    for key in rows[0]["point"]:
        values = [row["point"][key] for row in rows]
        numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
        if _unit(key) and numbers and len(set(values)) > 1:
            return str(key)
    return None


def along(rows: Sequence[Row], key: str) -> list[Row]:
    """The rows that differ from the point shown in ``key`` only."""

    def others(row: Row) -> dict[str, Any]:
        return {name: value for name, value in row["point"].items() if name != key}

    here = others(shown(rows)[0])
    return [row for row in rows if others(row) == here]


def place(row: Row, scenario: Scenario) -> str:
    """The load a row stands for and what else varies: ``12 req/s``, ``64 users, tp=4``."""
    varied = row["point"]
    loads = {key: value for key, value in varied.items() if _unit(key)}
    texts = [f"{_value(value)} {_unit(key)}" for key, value in loads.items()] or [
        _load(row, scenario)
    ]
    rest = {key: value for key, value in varied.items() if key not in loads}
    return ", ".join([*texts, describe.point(rest)] if rest else texts)


def _load(row: Row, scenario: Scenario) -> str:
    arrivals = scenario["workload"]["arrivals"]
    for key, unit in LOADS.items():
        if key in arrivals:
            return f"{_value(arrivals[key])} {unit}"
    return f"{number(row.get('offered_req_per_s'))} req/s"


def _unit(key: str) -> str | None:
    return LOADS.get(canonical(key).rpartition(".")[2])


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value)
