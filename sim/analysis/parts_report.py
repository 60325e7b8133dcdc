"""Parts of a run in the printed report: its worst window, and its streams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from sim.analysis import describe
from sim.analysis.layout import Column, Group, Line, table
from sim.analysis.verdict import Row, best, number, percent
from sim.analysis.windows import FEW

_LATENCIES = (("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("E2E", "e2e_s"))


def worst_window(row: Row) -> str | None:
    """The worst window of a row in one line; None where there is none to tell of.

    A saturated row promises no latency, in no window either.
    """
    windows = row["windows"]
    if windows is None or row["saturated"]:
        return None
    length, worst = describe.duration(windows["window_s"]), windows["worst"]
    if worst is None:
        return f"worst {length}: none holds {FEW} requests"
    told = [f"{name} p95 {_ms(worst[f'{key}_p95'])} ms" for name, key in _LATENCIES[:2]]
    if worst["attainment"] is not None:
        told.append(f"{percent(worst['attainment'])} within the SLO")
    return f"worst {length} (from {describe.clock(worst['start_s'])}): {', '.join(told)}"


def part_table(
    points: Sequence[Sequence[Row]], width: int, what: Literal["stream", "domain"]
) -> Iterator[Line]:
    """Table by stream or domain of the baseline and the chosen strategy at each point, if any.

    Where sequences switch, of all strategies: a policy treats streams differently.
    """
    parts = []
    for rows in points:
        chosen, switching = best(rows), any("modes" in row for row in rows)
        for row in rows:
            if row.get("baseline") or row is chosen or switching:
                parts += [(row, part, row is chosen) for part in row.get(f"{what}s") or ()]
    if not parts:
        return
    marked = [chosen for _, _, chosen in parts]
    names = [f"{'*' if chosen else ' '} {row['strategy']}" for row, _, chosen in parts]
    keys = [
        Column("  strategy", names, left=True),
        Column(what, [part[what] for _, part, _ in parts], left=True),
    ]
    if any(row["point"] for row, _, _ in parts):
        at = [describe.point(row["point"]) for row, _, _ in parts]
        keys.insert(0, Column("at", at, left=True))
    yield from table(keys, _groups([part for _, part, _ in parts]), width, marked)
    yield Line("")


def _groups(parts: Sequence[Row]) -> list[Group]:
    levels = [part.get("slo") or {} for part in parts]
    return [
        Group(
            "SLO", [Column("class", [part.get("slo_class") or "-" for part in parts], left=True)]
        ),
        Group("requests", [Column("sent", [str(part["requests"]) for part in parts])]),
        Group("", [Column("tau", [number(part.get("tau")) for part in parts])]),
        *(
            Group(f"{name} ms", [Column("p95", [_ms(part[key]["p95"]) for part in parts])])
            for name, key in _LATENCIES
        ),
        Group("SLO", [Column("within", [percent(slo.get("attainment")) for slo in levels])]),
    ]


def _ms(seconds: float | None) -> str:
    return number(None if seconds is None else 1e3 * seconds)
