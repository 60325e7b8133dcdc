"""The bounds of a scenario in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sim.analysis.verdict import percent


def slo(scenario: Mapping[str, Any]) -> str:
    """The bounds of a resolved scenario in words; empty where it states none."""
    stated = scenario.get("slo") or {}
    classes = stated.get("classes") or {}
    parts = [_bounds(stated), *(f"{name}: {_bounds(own)}" for name, own in classes.items())]
    return "; ".join(part for part in parts if part)


def _bounds(stated: Mapping[str, Any]) -> str:
    bounds = [
        f"{name[:-2].upper()} {percentile} within {1e3 * bound:g} ms"
        for name, by_percentile in stated.items()
        if name != "classes" and isinstance(by_percentile, Mapping)
        for percentile, bound in by_percentile.items()
    ]
    share = stated.get("attainment")
    asked = f", and {percent(share)} of requests within {_each(stated)}" if share else ""
    return f"{', '.join(bounds)}{asked}" if bounds else ""


def _each(stated: Mapping[str, Any]) -> str:
    """The bounds a single request must meet: the loosest of every latency."""
    counts = [
        len(by_percentile)
        for name, by_percentile in stated.items()
        if name != "classes" and isinstance(by_percentile, Mapping)
    ]
    if max(counts, default=1) > 1:
        return "the loosest" if len(counts) == 1 else "the loosest of each"
    return {1: "it", 2: "both"}.get(len(counts), "all of them")
