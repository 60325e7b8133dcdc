"""The checked day of a plan: load and latencies of its windows, and the replica killed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sim.analysis import axes, describe, plots
from sim.analysis.palette import BAD, MUTED, RING, SHADES
from sim.analysis.plan_words import LATENCIES, Document
from sim.analysis.sheet import Sheet, name

HEIGHT = 112
LOAD = "offered_req_per_s"
ACCENT, HELD = SHADES["accent"].light, SHADES["series-3"].light


def checked_day(document: Document) -> Any:
    """Offered load, p95 TTFT and p95 TPOT of every window, one below another.

    Parameters
    ----------
    document : mapping
        With a ``check`` that has a ``series``.

    Returns
    -------
    matplotlib.figure.Figure
    """
    day = document["check"]
    panels = [LOAD, *(f"{key}_p95" for key in ("ttft_s", "tpot_s"))]
    panels += ["e2e_s_p95"] if "e2e_s" in (document.get("slo") or {}) else []
    panels = [key for key in panels if any(each.get(key) is not None for each in day["series"])]
    with plots.blank() as figure:
        sheet = Sheet(figure, len(panels), 1, HEIGHT, legend=1, left=56, foot=36)
        entries: dict[str, Any] = {}
        for key in panels:
            ax = sheet.panel()
            entries |= _load(ax, document) if key == LOAD else _latency(ax, document, key)
            entries |= _down(ax, day)
            _time(ax, day["duration_s"], key is panels[-1])
        window = describe.duration(document["window_s"])
        sheet.ask(
            "Does the plan hold over a full day?",
            f"A value for every {window} of the simulated day, by when the window starts.",
        )
        sheet.legend(list(entries.items()))
    return figure


def _line(ax: Any, series: Sequence[Any], key: str, scale: float = 1.0) -> Any:
    starts = np.array([each["start_s"] for each in series], float)
    values = np.array([np.nan if each.get(key) is None else each[key] for each in series], float)
    return ax.plot(starts / 3600, scale * values, color=ACCENT, linewidth=1.3)[0]


def _load(ax: Any, document: Document) -> dict[str, Any]:
    entries = {"value of a window": _line(ax, document["check"]["series"], LOAD)}
    chosen = document.get("chosen")
    holds = None if chosen is None else document["plans"][chosen].get("fleet_peak_req_s")
    if holds is not None:
        style = {"color": HELD, "linestyle": "-.", "linewidth": 1.4}
        entries["the fleet holds"] = ax.axhline(holds, **style)
    axes.linear(ax, "y")
    top = max(ax.dataLim.y1, holds or 0.0)
    ax.set_ylim(0, 1.12 * top)
    name(ax, "Requests offered", "req/s")
    return entries


def _latency(ax: Any, document: Document, key: str) -> dict[str, Any]:
    day, latency = document["check"], key.removesuffix("_p95")
    bound = ((document.get("slo") or {}).get(latency) or {}).get("p95")
    known = [each[key] for each in day["series"] if each.get(key) is not None]
    factor, unit = axes.time_unit([max(known)])
    entries = {"value of a window": _line(ax, day["series"], key, factor)}
    if bound is not None:
        style = {"color": BAD, "linestyle": (0, (4, 2)), "linewidth": 1.3}
        entries["SLO"] = ax.axhline(factor * bound, **style)
    worst = day.get("worst") or {}
    if worst.get("start_s") is not None and worst.get(key) is not None:
        ring = {**RING, "clip_on": False}
        (entries["worst window"],) = ax.plot(
            [worst["start_s"] / 3600], [factor * worst[key]], **ring
        )
    axes.linear(ax, "y")
    ax.set_ylim(0, 1.15 * factor * max(*known, bound or 0.0))
    name(ax, f"{LATENCIES[latency]} p95", unit)
    return entries


def _down(ax: Any, day: Any) -> dict[str, Any]:
    """The stretch in which a replica is missing."""
    killed = day.get("killed_at_s")
    if killed is None:
        return {}
    back = day.get("back_at_s")
    until = day["duration_s"] if back is None else back
    ax.axvspan(killed / 3600, until / 3600, color=MUTED, alpha=0.22, linewidth=0)
    line = ax.axvline(killed / 3600, color=BAD, linestyle=":", linewidth=1.3)
    return {"a replica is killed": line}


def _time(ax: Any, duration_s: float, last: bool) -> None:
    """Hours of the day, in steps of three on a whole day."""
    hours = duration_s / 3600
    ax.set_xlim(0, hours)
    if hours > 12:
        ticks = np.arange(0, hours + 0.01, 3)
        ax.set_xticks(ticks, [f"{tick:.0f}" for tick in ticks])
    else:
        ax.locator_params("x", nbins=7)
    if last:
        ax.set_xlabel("hour of the day", fontsize=10.5, color=MUTED)
    else:
        ax.tick_params(labelbottom=False)
