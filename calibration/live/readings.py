"""Metrics of any server by neutral names, and what changed between two readings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from calibration.live.exposition import Sample, parse
from calibration.live.names import ENGINES, INFO, STARTED, UNKNOWN, Known, known

KNOWN = known()
PREFIXES = tuple(ENGINES)
_STARTS = (*PREFIXES, STARTED)


class Reading(NamedTuple):
    """One text of metrics, by neutral names (see ``names``).

    Attributes
    ----------
    engine : str
        vllm | sglang | llama.cpp | tensorrt-llm | unknown.
    counters, gauges : dict of float
    info : dict of str
        What the server says of its configuration: labels of its ``*_info`` metrics.
    started_s : float or None
        When its process started, seconds since 1970; None where it does not say.
    skipped : int
        Lines that are no metrics.
    """

    engine: str
    counters: dict[str, float]
    gauges: dict[str, float]
    info: dict[str, str]
    started_s: float | None
    skipped: int

    @property
    def known(self) -> bool:
        """Whether there is anything in it."""
        return bool(self.counters or self.gauges)


class Increase(NamedTuple):
    """What counters gained over a stage.

    Attributes
    ----------
    counters : dict of float
    notes : tuple of str
        What was left out, and why.
    """

    counters: dict[str, float]
    notes: tuple[str, ...]


def read(text: str) -> Reading:
    """Read a text of metrics; series of several replicas are summed, shares averaged."""
    found = parse(text, _wanted)
    series: dict[str, dict[int, list[float]]] = {}
    folds: dict[str, Known] = {}
    engine, started, info = UNKNOWN, None, {}
    for sample in found.samples:
        if sample.name == STARTED:
            started = sample.value
            continue
        engine = _engine(sample.name)
        if sample.name.endswith(INFO):
            info.update({k: v for k, v in sample.labels.items() if v not in ("", "None")})
            continue
        metric = KNOWN[sample.name]
        name = metric.neutral + sample.labels.get(metric.label, "")
        if not _breakdown(sample) and (not metric.label or metric.label in sample.labels):
            series.setdefault(name, {}).setdefault(metric.rank, []).append(sample.value)
            folds[name] = metric
    values = {name: _folded(folds[name], ranks[min(ranks)]) for name, ranks in series.items()}
    counters = {name: value for name, value in values.items() if folds[name].kind == "counter"}
    if engine == "sglang" and "prompt_tokens" in counters:
        # Every prompt token is looked up in its radix cache.
        counters["prefix_queries"] = counters["prompt_tokens"]
    gauges = {name: value for name, value in values.items() if folds[name].kind == "gauge"}
    return Reading(engine, counters, gauges, info, started, found.skipped)


def gist(text: str) -> str:
    """Only the lines that ``read`` may want, found in a fraction of the time of reading."""
    return "\n".join(
        line for line in text.splitlines() if line.startswith(_STARTS) and "_bucket{" not in line
    )


def _wanted(name: str) -> bool:
    return name in KNOWN or name == STARTED or (name.endswith(INFO) and name.startswith(PREFIXES))


def _engine(name: str) -> str:
    return next(engine for prefix, engine in ENGINES.items() if name.startswith(prefix))


def _breakdown(sample: Sample) -> bool:
    # SGLang gives its queues whole under priority="" and once more by priority.
    return bool(sample.labels.get("priority"))


def _folded(metric: Known, values: Sequence[float]) -> float:
    return sum(values) if metric.fold == "sum" else sum(values) / len(values)


def increase(before: Reading, later: Sequence[Reading]) -> Increase:
    """What the counters gained from ``before`` to the last of ``later``.

    A counter that is new counts from 0. One that fell in between, or went away, is left out; so are
    all when the server was started anew.

    Parameters
    ----------
    before : Reading
    later : sequence of Reading
        In order of time.
    """
    if not later or not later[-1].known:
        return Increase({}, ("the server's metrics went away",) if before.known else ())
    starts = {one.started_s for one in (before, *later) if one.started_s is not None}
    if len(starts) > 1:
        return Increase({}, ("the server was started anew: its counters are left out",))
    last = later[-1].counters
    fell = {name for name in before.counters if name not in last}
    for earlier, after in zip((before, *later), later, strict=False):
        fell |= {n for n, value in after.counters.items() if value < earlier.counters.get(n, 0.0)}
    gained = {
        name: value - before.counters.get(name, 0.0)
        for name, value in sorted(last.items())
        if name not in fell
    }
    notes = (f"counters that fell or went away are left out: {', '.join(sorted(fell))}",)
    return Increase(gained, notes if fell else ())


def summarise(readings: Iterable[Reading]) -> dict[str, dict[str, float]]:
    """Mean and max of every gauge over readings: name -> {"mean", "max"}."""
    values: dict[str, list[float]] = {}
    for reading in readings:
        for name, value in reading.gauges.items():
            values.setdefault(name, []).append(value)
    return {
        name: {"mean": sum(found) / len(found), "max": max(found)}
        for name, found in sorted(values.items())
    }
