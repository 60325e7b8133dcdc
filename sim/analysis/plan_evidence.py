"""What a capacity plan rests on, in sentences: its check, its inputs, and which to measure next."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sim.analysis import describe
from sim.analysis.plan_words import LATENCIES, Document, clock
from sim.analysis.verdict import number, percent

STATISTICS = ("mean", "p50", "p95", "p99")
BASES = ("measured", "published", "assumed")
MEASURE_FIRST = 3
"""Uncertainties named as worth measuring."""
LONGEST = 90
"""Letters of what is said of an input, its sources included."""
LITTLE_GPUS = 0.05
"""An input that moves the answer by less is not worth measuring."""


def check(document: Document) -> str | None:
    """The simulated day of the plan chosen; None without one."""
    day = document.get("check")
    if not day:
        return None
    text = f"{day['requests']:,} requests over {describe.span(day['duration_s'])} were simulated"
    if day.get("killed_at_s") is not None:
        back = day.get("back_at_s")
        down = f"back {describe.span(back - day['killed_at_s'])} later" if back else "never back"
        text += f", a replica killed at {clock(day['killed_at_s'])} and {down}"
    worst = day.get("worst") or {}
    within = f"; {percent(day['attainment'])} of requests within the bounds" * (
        day.get("attainment") is not None
    )
    held = "met" if day["met"] else "MISSED"
    return (
        f"{text}. The SLO is {held}{_worst(worst, document['window_s'])}{within}; "
        f"{day.get('preemptions') or 0:,} preemptions."
    )


def _worst(worst: Mapping[str, Any], window_s: float) -> str:
    told = [
        f"{name} {number(1e3 * worst[f'{key}_p95'])} ms"
        for key, name in LATENCIES.items()
        if worst.get(f"{key}_p95") is not None
    ]
    if not told:
        return ""
    start = worst.get("start_s")
    since = f" from {clock(start)}" if start is not None else ""
    return f": p95 in the worst {describe.duration(window_s)}{since} {', '.join(told)}"


def percentiles(document: Document) -> list[tuple[str, list[str]]]:
    """Latencies of the whole day [ms]: mean, p50, p95, p99."""
    day = document.get("check") or {}
    return [
        (name, [number(None if v is None else 1e3 * v) for v in map(day[key].get, STATISTICS)])
        for key, name in LATENCIES.items()
        if day.get(key)
    ]


def measure_next(document: Document) -> list[str]:
    """The inputs whose uncertainty moves the answer most, in words."""
    tried = document.get("tornado") or ()
    rows = [row for row in tried if matters(row)]
    if tried and not rows:
        return ["No uncertain input moves the answer by itself."]
    return [moved(row) for row in rows[:MEASURE_FIRST]]


def matters(row: Mapping[str, Any]) -> bool:
    """Whether an uncertain input moves the answer at all."""
    ends = [math.inf if row[end] is None else row[end] for end in ("gpus_lo", "gpus_hi")]
    return max(ends) > min(ends) + LITTLE_GPUS


def moved(row: Mapping[str, Any]) -> str:
    """What one uncertain input does to the number of GPUs."""
    known = sorted(row[end] for end in ("gpus_lo", "gpus_hi") if row[end] is not None)
    needed = [f"{gpus:.1f}" for gpus in known]
    needed += ["more GPUs than any fleet has"] * (len(needed) < 2)
    unit = " GPUs" * (len(known) == 2)
    return (
        f"{row['input']} ({row['basis']}): alone it moves the answer from {needed[0]} to "
        f"{needed[1]}{unit}, between {factor(row['lo'])} and {factor(row['hi'])} of what is "
        f"expected; {about(row['what'])}"
    )


def about(what: str) -> str:
    """What an input rests on; of a long text what stands before its sources."""
    return what if len(what) <= LONGEST else what.partition(": ")[0]


def factor(relative: float) -> str:
    """A value relative to its prediction."""
    return percent(relative) if relative < 10 else f"{relative:.0f} x"


def rests_on(document: Document) -> str:
    """How many inputs are measured, published or assumed."""
    bases = Counter(row["basis"] for row in document.get("inputs") or ())
    total = sum(bases.values())
    order = sorted(bases, key=lambda basis: (BASES.index(basis) if basis in BASES else -1, basis))
    told = ", ".join(f"{bases[basis]} {basis}" for basis in order)
    return f"{total} input{'s' * (total != 1)}: {told}"


def assumed(document: Document) -> Sequence[Mapping[str, Any]]:
    """The inputs nothing was measured for."""
    return [row for row in document.get("inputs") or () if row["basis"] == "assumed"]


def impossible(document: Document) -> list[tuple[str, list[tuple[str, str]]]]:
    """Lists of who cannot run, and who cannot hold the SLO, by title; empty ones are left out."""
    rows = document["impossible"]
    lists = [
        ("Cannot run", _grouped([row for row in rows if not row.get("runs", True)])),
        ("Cannot hold the SLO", _grouped([row for row in rows if row.get("runs", True)])),
    ]
    return [(title, found) for title, found in lists if found]


def _grouped(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Who, and why; strategies with the same reason on a GPU together."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        key = row.get("key") or ""
        why = f"{key}: {row['why']}" if "." in key else row["why"]
        found.setdefault((row["gpu"], why), []).append(row)
    return [(_who(gpu, rows), why) for (gpu, why), rows in found.items()]


def _who(gpu: str, rows: Sequence[Mapping[str, Any]]) -> str:
    names = ", ".join(dict.fromkeys(row["strategy"] for row in rows))
    count = sum(row.get("candidates") or 0 for row in rows)
    told = f" ({count:,} candidate{'s' * (count != 1)})" if count else ""
    return f"{names} on {gpu}{told}"


def counts(document: Document) -> str:
    """What the search looked at."""
    found = document["counts"]
    beyond = found["candidates"] - found["estimated_out"] - found["searched"]
    cannot = f"{beyond:,} that cannot run, " if beyond > 0 else ""
    return (
        f"{found['candidates']:,} candidates: {cannot}{found['estimated_out']:,} ruled out by the "
        f"estimate, {found['searched']:,} searched; {found['simulations']:,} simulations of "
        f"{found['requests']:,} requests in all"
    )
