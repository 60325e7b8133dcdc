"""The answer to the question of a scenario, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from models.schema import weakest
from sim.analysis import describe, grid
from sim.analysis.report import BASIS
from sim.analysis.verdict import FEW, best, carries, compared, gain, number, percent, proven, shed

Row = Mapping[str, Any]
Scenario = Mapping[str, Any]

MOST_CHOICES = 3
"""Different choices over a grid that one sentence can list."""


def answer(document: Mapping[str, Any]) -> str:
    """Which strategy, how much it gains, at which load, and whether the SLO holds.

    Parameters
    ----------
    document : mapping
        The document of ``speccast run --json``.
    """
    rows, scenario = document["rows"], document["scenario"]
    if not rows:
        return "No strategy is complete: the tables hold what was simulated."
    points = grid.points(rows)
    text = _one(points[0], scenario) if len(points) == 1 else _several(points, scenario)
    return f"{text[0].upper()}{text[1:]}."


def notes(document: Mapping[str, Any]) -> list[str]:
    """What to keep in mind about the answer: its band, its basis, the length of the run."""
    rows = document["rows"]
    chosen = [row for at_point in grid.points(rows) if (row := best(at_point)) is not None]
    bands = [row["band"]["speedup"] for row in chosen if row["band"].get("speedup")]
    texts = []
    if document.get("interrupted"):
        texts.append("The run was interrupted: only what was complete by then is here.")
    if bands:
        basis = weakest([band["basis"] for band in bands])
        level = percent(bands[0]["level"])
        texts.append(f"The band holds {level} of outcomes; it is {basis}: {BASIS[basis]}.")
    unserved = [row for row in chosen if row["rejected"] + row["timed_out"] + row["failed"]]
    if unserved:
        worst = max(unserved, key=lambda row: _unserved(row))
        texts.append(f"{percent(_unserved(worst))} of the requests were not served.")
    if any(row.get("short_run") for row in chosen):
        texts.append("The run is too short for a steady state: send more requests.")
    few = [row["measured"] for row in chosen if row.get("measured", FEW) < FEW]
    if few:
        texts.append(f"Only {min(few)} requests were measured: percentiles rest on few.")
    return texts


def _one(rows: Sequence[Row], scenario: Scenario) -> str:
    chosen, where = best(rows), grid.place(rows[0], scenario)
    if chosen is None:
        return _nothing(rows, where)
    if chosen.get("baseline"):
        return _plain(chosen, rows, where) + _slo(chosen)
    if not compared(chosen) and len(rows) == 1:
        return _plain(chosen, rows, where) + _slo(chosen)
    start = f"choose {chosen['strategy']} at {where}: "
    if not compared(chosen):
        tpot = number(1e3 * (chosen["tpot_s"]["mean"] or 0.0))
        return f"{start}the least time per token of those run, {tpot} ms{_slo(chosen)}"
    if chosen["speedup"] is None:
        return f"{start}it keeps up where plain decoding does not{_slo(chosen)}"
    if proven(chosen):
        more = gain(chosen, chosen["speedup"])
        return f"{start}{more} than plain decoding ({_speedup(chosen)}){_slo(chosen)}"
    only = "it meets the SLO and plain decoding does not" if _met(chosen) else "it does best"
    return f"{start}{only}; its gain is undecided ({_speedup(chosen)}): measure its tau"


def _nothing(rows: Sequence[Row], where: str) -> str:
    if not any(row["finished"] for row in rows):
        rejected = rows[0]["rejected"]
        why = f": {rejected} request{'s' * (rejected != 1)} rejected" if rejected else ""
        return f"nothing was served at {where}{why}"
    runnable = [row for row in rows if not row.get("hypothetical")] or rows
    most = max(runnable, key=_served)
    served = f"{number(_served(most))} req/s"
    lost = f", and {percent(shed(most))} of the requests get nothing" if shed(most) else ""
    if len(rows) == 1:
        return f"{rows[0]['strategy']} does not carry {where}: it serves {served}{lost}"
    engine = "" if len(runnable) == len(rows) else " that this engine runs"
    all_saturate = "all saturate, and " if all(row["saturated"] for row in rows) else ""
    return (
        f"no strategy{engine} carries {where}: {all_saturate}{most['strategy']} serves most, "
        f"{served}{lost}"
    )


def _unserved(row: Row) -> float:
    lost = int(row["rejected"] + row["timed_out"] + row["failed"])
    return lost / (lost + int(row["finished"] + row["unfinished"]))


def _served(row: Row) -> float:
    """Requests a second finished while they arrived; over the whole run in a short burst."""
    return float(row.get("served_req_per_s") or row["req_per_s"] or 0.0)


def _plain(chosen: Row, rows: Sequence[Row], where: str) -> str:
    rivals = [row for row in rows if row is not chosen and not row.get("hypothetical")]
    if not rivals:
        ttft, tpot = (f"{number(1e3 * (chosen[name]['p95'] or 0.0))} ms" for name in _LATENCIES)
        return f"{chosen['strategy']} carries {where}: TTFT p95 {ttft}, TPOT p95 {tpot}"
    start = f"stay with {chosen['strategy']} at {where}: "
    known = [row for row in rivals if row["speedup"] is not None]
    nearest = max(known, key=lambda row: float(row["speedup"]), default=None)
    if nearest is None:
        return f"{start}no other strategy keeps up"
    if proven(nearest):
        return f"{start}{nearest['strategy']} is faster ({_speedup(nearest)}) but misses the SLO"
    if _undecided(nearest):
        return (
            f"{start}no other strategy is faster for sure, {nearest['strategy']} comes nearest "
            f"({_speedup(nearest)}): measure its tau"
        )
    return f"{start}every other strategy is slower, {nearest['strategy']} the least " + (
        f"({_speedup(nearest)})"
    )


_LATENCIES = ("ttft_s", "tpot_s")


def _undecided(row: Row) -> bool:
    band = row["band"].get("speedup")
    highest = band["hi"] if band else row["speedup"]
    return highest is None or highest >= 1


def _speedup(row: Row) -> str:
    band = row["band"].get("speedup")
    ends = "no band computed"
    if band:
        ends = f"band {number(band['lo'])} to {number(band['hi'])}"
        if band["lo"] is None:
            ends = f"band up to {number(band['hi'])}, its slow end saturates"
    return f"speedup {number(row['speedup'])}, {ends}"


def _met(row: Row) -> bool:
    return bool((row.get("slo") or {}).get("met"))


def _slo(row: Row) -> str:
    slo = row.get("slo")
    if not slo:
        return ""
    if slo["met"]:
        return ", and the SLO is met"
    missed = ", ".join(slo.get("missed") or []) or f"{percent(slo['attainment'])} within it"
    return f", but the SLO is missed: {missed}"


def _several(points: Sequence[Sequence[Row]], scenario: Scenario) -> str:
    """Each choice with the points it holds at; counts where the sentence would get long."""
    chosen = [best(rows) for rows in points]
    alone = [rows[0] for rows in points if len(rows) == 1 and carries(rows[0])]
    if len(alone) == len(points) and grid.load_key(alone) is None:
        return _compared(alone)
    choices: dict[str | None, list[int]] = {}
    for index, row in enumerate(chosen):
        choices.setdefault(None if row is None else row["strategy"], []).append(index)
    if len(choices) > MOST_CHOICES:
        return _counts(choices, len(points))
    parts = []
    for strategy, at in choices.items():
        where = _span([points[index][0] for index in at], at, len(points), scenario)
        mine = [row for index in at if (row := chosen[index]) is not None]
        parts.append(
            f"choose {strategy} {where}{_together(mine)}"
            if strategy
            else f"no strategy carries the load {where}"
        )
    return "; ".join(parts)


def _compared(rows: Sequence[Row]) -> str:
    """Where one strategy does best, when it is what varies that is compared."""

    def e2e_ms(row: Row) -> float:
        mean = row["e2e_s"]["mean"]
        return float("inf") if mean is None else 1e3 * float(mean)

    def rank(row: Row) -> tuple[float, float]:
        return -float((row.get("slo") or {}).get("attainment") or 0.0), e2e_ms(row)

    first, *others = sorted(rows, key=rank)
    ends = dict.fromkeys(number(e2e_ms(row)) for row in sorted(others, key=e2e_ms))
    low, high = next(iter(ends)), next(reversed(ends))
    span = low if low == high else f"{low} to {high}"
    return (
        f"{first['strategy']} does best with {describe.point(first['point'])}: E2E "
        f"{number(e2e_ms(first))} ms on average, against {span} ms{_slo(first)}"
    )


def _counts(choices: Mapping[str | None, Sequence[int]], total: int) -> str:
    order = sorted(choices, key=lambda strategy: -len(choices[strategy]))
    texts = [f"{name or 'none'} at {len(choices[name])}" for name in order[:MOST_CHOICES]]
    more = f", {len(order) - MOST_CHOICES} more below" if len(order) > MOST_CHOICES else ""
    return f"the choice changes over the {total} points: {', '.join(texts)}{more}"


def _span(rows: Sequence[Row], at: Sequence[int], total: int, scenario: Scenario) -> str:
    places = [grid.place(row, scenario) for row in rows]
    if len(rows) == total:
        return f"at all {total} points"
    if len(rows) <= 2:
        return f"at {' and '.join(places)}"
    key = grid.load_key(rows)
    if key and len(rows[0]["point"]) == 1 and at[-1] - at[0] == len(at) - 1:
        return f"from {places[0].rpartition(' ')[0]} to {places[-1]}"
    return f"at {len(rows)} of {total} points"


def _together(rows: Sequence[Row]) -> str:
    """Range of the speedups, and at how many points the SLO holds."""
    parts = []
    speedups = [float(row["speedup"]) for row in rows if row["speedup"] is not None]
    if speedups:
        ends = dict.fromkeys(number(end) for end in (min(speedups), max(speedups)))
        parts.append(f"speedup {' to '.join(ends)}")
    if any(row.get("slo") for row in rows):
        met = sum(_met(row) for row in rows)
        share = f" at {met} of {len(rows)} points" if 0 < met < len(rows) else ""
        parts.append(f"SLO met{share}" if met else "SLO missed")
    return f" ({', '.join(parts)})" if parts else ""
