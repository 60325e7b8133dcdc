"""Which pictures a result has, with their titles and what to see in each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sim.analysis import describe, grid, plots, series, steady
from sim.analysis.palette import Look, looks
from sim.analysis.timeline import QUANTITIES, course
from sim.analysis.verdict import number
from sim.tables import RunTable

Document = Mapping[str, Any]
Row = Mapping[str, Any]

LATENCIES = {"ttft_s": "Time to first token", "tpot_s": "Time per output token"}
TIMES = {
    "waiting": ("Requests waiting", "A line that climbs and stays up is a queue never worked off."),
    "running": ("Sequences running", "The batch: more share a step, and each step takes longer."),
    "kv_use": ("KV memory in use", "Near 100 % the engine preempts or lets requests wait."),
    "tau": ("Tokens a decode step emits", "Where tau falls, more drafts are rejected."),
    "preemptions": ("Preemptions", "Each throws away KV that has to be computed again."),
}


class Picture(NamedTuple):
    """One figure and what is said about it.

    Attributes
    ----------
    name : str
        Of its files, without ending.
    section, title, caption : str
        Where it stands on the page, its heading, and what to see.
    figure : matplotlib.figure.Figure
    """

    name: str
    section: str
    title: str
    caption: str
    figure: Any


NAMES = (
    *(f"{kind}_{name[:4]}" for kind in ("distribution", "load", "windows") for name in LATENCIES),
    *("throughput", "step", "memory"),
    *(f"time_{name}" for name in QUANTITIES),
)
"""Every picture there can be."""


def pictures(
    document: Document, requests: Sequence[RunTable], timelines: Sequence[RunTable]
) -> list[Picture]:
    """Draw every picture there is data for.

    Parameters
    ----------
    document : mapping
        The document of ``speccast run --json``.
    requests, timelines : sequence of RunTable
        Tables of every run; of a grid those of the point shown are used.
    """
    return list(_Pictures(document).all(requests, timelines)) if document["rows"] else []


class _Pictures:
    """What all pictures of one result share."""

    def __init__(self, document: Document) -> None:
        self.document, self.rows = document, document["rows"]
        self.shown = grid.shown(self.rows)
        self.at = f"at {grid.place(self.shown[0], document['scenario'])}"
        self.key = grid.load_key(self.rows)
        self.along = grid.along(self.rows, self.key) if self.key else self.shown
        labels = [row["strategy"] for row in self.rows]
        baseline = next((row["strategy"] for row in self.rows if row.get("baseline")), None)
        self.look: dict[str, Look] = looks(labels, baseline)
        self.carried = [row for row in self.shown if not row["saturated"]] or self.shown
        left_out = [row["strategy"] for row in self.shown if row not in self.carried]
        self.left_out = f" Not shown, being saturated: {', '.join(left_out)}." if left_out else ""

    def all(self, requests: Sequence[RunTable], timelines: Sequence[RunTable]) -> Iterator[Picture]:
        yield from self.distributions(self.tables(requests))
        yield from self.over_load()
        yield from self.windows()
        yield from self.throughput()
        yield from self.step()
        yield from self.memory()
        yield from self.over_time([run for run in self.tables(timelines) if not run.replication])

    def tables(self, runs: Sequence[RunTable]) -> list[RunTable]:
        """Tables of the strategies shown, at the point shown, in the order of the rows."""
        here, order = self.shown[0]["point"], [row["strategy"] for row in self.carried]
        mine = [run for run in runs if dict(run.point) == here and run.strategy in order]
        return sorted(mine, key=lambda run: (order.index(run.strategy), run.replication))

    def distributions(self, runs: Sequence[RunTable]) -> Iterator[Picture]:
        scenario = self.document["scenario"]
        warmup = scenario.get("run", {}).get("warmup", "auto")
        kept = [run._replace(columns=steady.without_warmup(run.columns, warmup)) for run in runs]
        for name, title in LATENCIES.items():
            if kept and any(row[name]["p50"] for row in self.carried):
                bounds = (scenario.get("slo") or {}).get(name)
                ax = plots.latency_cdf(kept, name, look=self.look, bounds=bounds)
                yield Picture(
                    f"distribution_{name[:4]}",
                    "Latency",
                    f"{title}, distribution",
                    f"Share of requests answered within a time, {self.at}. Further left is faster; "
                    f"marks at p50 and p95.{self.left_out}",
                    ax.figure,
                )

    def over_load(self) -> Iterator[Picture]:
        if self.key is None:
            return
        for name, title in LATENCIES.items():
            if any(row[name]["mean"] for row in self.along):
                ax = plots.latency_by_load(self.along, name, self.key, look=self.look)
                yield Picture(
                    f"load_{name[:4]}",
                    "Latency",
                    f"{title} against load",
                    "Where a line bends upwards the deployment runs full. Solid: mean, shaded its "
                    "band; dotted: p95; a cross: saturated, no latency promised.",
                    ax.figure,
                )

    def windows(self) -> Iterator[Picture]:
        rows = [row for row in self.carried if (row.get("windows") or {}).get("series")]
        for name, title in LATENCIES.items():
            statistic = f"{name}_p95"
            if any(each.get(statistic) for row in rows for each in row["windows"]["series"]):
                ax = plots.by_window(rows, statistic, look=self.look)
                length = describe.duration(rows[0]["windows"]["window_s"])
                yield Picture(
                    f"windows_{name[:4]}",
                    "Latency",
                    f"{title} by window",
                    f"p95 of the requests of each window of {length}, {self.at}. A ring marks the "
                    f"worst window of a strategy.{self.left_out}",
                    ax.figure,
                )

    def throughput(self) -> Iterator[Picture]:
        if not series.speed_lines(self.along, self.key):
            return
        ax = plots.throughput_by_speed(self.along, self.key, look=self.look)
        path = "a line joins the loads of one strategy" if self.key else self.at
        yield Picture(
            "throughput",
            "Throughput, time and memory",
            "What a GPU gives and what a user gets",
            f"Up is cheaper, right is faster for each reader; {path}. Saturated points promise no "
            "speed and are not shown.",
            ax.figure,
        )

    def step(self) -> Iterator[Picture]:
        rows = [row for row in self.carried if row.get("step_s")]
        if not rows:
            return
        steps = [sum(row["step_s"]["components"].values()) for row in rows]
        bars = [
            (row["strategy"], f"{number(1e3 * step)} ms, batch {row['step_s']['batch']}")
            for row, step in zip(rows, steps, strict=True)
        ]
        ax = plots.stacked_bars(bars, series.step_parts(rows), "one decode step, ms")
        yield Picture(
            "step",
            "Throughput, time and memory",
            "Where the time of a decode step goes",
            f"Each strategy at the batch it runs at on average, {self.at}. A longer step pays "
            f"where it emits more tokens: see tau.{self.left_out}",
            ax.figure,
        )

    def memory(self) -> Iterator[Picture]:
        rows = [row for row in self.shown if row.get("kv_budget_bytes")]
        if not rows:
            return
        bars = [
            (row["strategy"], f"KV {number(row['kv_budget_bytes']['kv'] / 1e9)} GB") for row in rows
        ]
        ax = plots.stacked_bars(bars, series.memory_parts(rows), "memory of one GPU, GB")
        yield Picture(
            "memory",
            "Throughput, time and memory",
            "Where the memory of a GPU goes",
            f"KV used is that of the fullest replica at its peak, {self.at}. Drafts shrink what "
            "is left for KV; unused lies beyond the engine's share.",
            ax.figure,
        )

    def over_time(self, runs: Sequence[RunTable]) -> Iterator[Picture]:
        for name, (title, caption) in TIMES.items():
            idle = 1.0 if name == "tau" else 0.0
            if any((course(run.columns, name).values > idle).any() for run in runs):
                ax = plots.over_time(runs, name, look=self.look)
                yield Picture(
                    f"time_{name}",
                    "Over simulated time",
                    title,
                    f"{caption} First replication, all replicas, {self.at}.{self.left_out}",
                    ax.figure,
                )
