"""Which pictures a result has, with their titles and what to see in each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sim.analysis import describe, grid, metrics, mode_plots, modes, plots, series, steady
from sim.analysis.modes import Floats
from sim.analysis.palette import Look, looks
from sim.analysis.timeline import course
from sim.analysis.verdict import number
from sim.tables import RunTable

Document = Mapping[str, Any]
Row = Mapping[str, Any]

Looks = Mapping[str, Look]

TIMED = (
    "id",
    "session",
    "status",
    "arrival_s",
    "schedule_s",
    "first_token_s",
    "finish_s",
    "output_tokens",
)
COMPARED, OVER_TIME, MODES = "Side by side", "Over simulated time", "Which mode ran when"
MOST_MODES = 12
"""Strategies whose modes are shown over time."""
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


def pictures(
    document: Document,
    requests: Iterable[RunTable],
    timelines: Iterable[RunTable],
    mode_tables: Iterable[RunTable] = (),
    switches: Iterable[RunTable] = (),
) -> list[Picture]:
    """Draw every picture there is data for.

    Parameters
    ----------
    document : mapping
        The document of ``speccast run --json``.
    requests, timelines : iterable of RunTable
        Tables of every run, each looked at once; those of the point shown are used.
    mode_tables, switches : iterable of RunTable
        The same of the runs whose sequences switch.
    """
    rows = document["rows"]
    if not rows:
        return []
    shown = carried(grid.shown(rows))
    look, key = appearance(rows), grid.load_key(rows)
    along = grid.along(rows, key) if key else shown
    warmup: Any = shown[0].get("warmup", "auto") if shown else "auto"
    tpot: dict[str, tuple[Floats, Floats]] = {}
    measured = []
    for run in _tables(requests, shown, TIMED):
        if not run.replication and any("modes" in row for row in shown):
            tpot[run.strategy] = _tpot_along(run, _closed_loop(shown))
        measured.append(run._replace(columns=steady.without_warmup(run.columns, warmup)))
    bounds = document["scenario"].get("slo") or {}
    first_runs = [run for run in _tables(timelines, shown) if not run.replication]
    failures_s = [failure["at_s"] for failure in document["scenario"].get("failures", ())]
    return [
        *_distributions(measured, shown, look, bounds),
        *_throughput(along, key, look),
        *_over_load(along, key, look),
        *_windows(shown, look),
        *_step(shown),
        *_memory(grid.shown(rows)),
        *_modes(_first(mode_tables, rows), _first(switches, rows), grid.shown(rows), tpot, look),
        *_over_time(first_runs, look, failures_s),
    ]


def _first(runs: Iterable[RunTable], rows: Sequence[Row]) -> dict[str, RunTable]:
    """First replication of every strategy at the point shown."""
    here = _tables(runs, grid.shown(rows))
    return {run.strategy: run for run in here if not run.replication}


def appearance(rows: Sequence[Row]) -> dict[str, Look]:
    """How each strategy is drawn in every picture, plain decoding in grey."""
    baseline = next((row["strategy"] for row in rows if row.get("baseline")), None)
    return looks((row["strategy"] for row in rows), baseline)


def carried(rows: Sequence[Row]) -> list[Row]:
    """The rows that promise a latency; all of them where none does."""
    return [row for row in rows if not row["saturated"]] or list(rows)


def _tables(
    runs: Iterable[RunTable], rows: Sequence[Row], names: Sequence[str] = ()
) -> list[RunTable]:
    """Tables of the runs behind ``rows``, in their order; of long ones only some columns."""
    here, order = rows[0]["point"], [row["strategy"] for row in rows]
    mine = [
        run._replace(columns={name: run.columns[name] for name in names or run.columns})
        for run in runs
        if dict(run.point) == here and run.strategy in order
    ]
    return sorted(mine, key=lambda run: (order.index(run.strategy), run.replication))


def _distributions(
    runs: Sequence[RunTable], rows: Sequence[Row], look: Looks, bounds: Mapping[str, Any]
) -> Iterator[Picture]:
    for name, title in LATENCIES.items():
        if runs and any(row[name]["p50"] for row in rows):
            ax = plots.latency_cdf(runs, name, look=look, bounds=bounds.get(name))
            yield Picture(
                f"distribution_{name[:4]}",
                COMPARED,
                title,
                "Share of requests answered within a time. Further left is faster; marks at p50 "
                "and p95.",
                ax.figure,
            )


def _throughput(rows: Sequence[Row], key: str | None, look: Looks) -> Iterator[Picture]:
    if series.speed_lines(rows, key):
        ax = plots.throughput_by_speed(rows, key, look=look)
        lines = " A line joins the loads of one strategy." if key else ""
        yield Picture(
            "throughput",
            COMPARED,
            "What a GPU gives, what a user gets",
            f"Up is cheaper, right is faster for every reader.{lines} Saturated points promise no "
            "speed and are left out.",
            ax.figure,
        )


def _over_load(rows: Sequence[Row], key: str | None, look: Looks) -> Iterator[Picture]:
    for name, title in LATENCIES.items():
        if key is not None and any(row[name]["mean"] for row in rows):
            ax = plots.latency_by_load(rows, name, key, look=look)
            yield Picture(
                f"load_{name[:4]}",
                COMPARED,
                f"{title} against load",
                "Where a line bends upwards the deployment fills up. A cross: saturated, no "
                "latency promised.",
                ax.figure,
            )


def _windows(rows: Sequence[Row], look: Looks) -> Iterator[Picture]:
    rows = [row for row in rows if (row.get("windows") or {}).get("series")]
    for name, title in LATENCIES.items():
        statistic = f"{name}_p95"
        if any(each.get(statistic) for row in rows for each in row["windows"]["series"]):
            ax = plots.by_window(rows, statistic, look=look)
            length = describe.duration(rows[0]["windows"]["window_s"])
            yield Picture(
                f"windows_{name[:4]}",
                COMPARED,
                f"{title} by window",
                f"p95 of the requests of each {length}. A ring marks the worst of a strategy.",
                ax.figure,
            )


def _step(rows: Sequence[Row]) -> Iterator[Picture]:
    rows = [row for row in rows if row.get("step_s")]
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
        COMPARED,
        "Where the time of a decode step goes",
        "Each strategy at the batch it runs at on average. A longer step pays where it emits more "
        "tokens: see tau.",
        ax.figure,
    )


def _memory(rows: Sequence[Row]) -> Iterator[Picture]:
    rows = [row for row in rows if row.get("kv_budget_bytes")]
    if not rows:
        return
    free = [(row["kv_budget_bytes"]["kv"] - row["kv_budget_bytes"]["kv_peak_used"]) for row in rows]
    bars = [
        (row["strategy"], f"{number(left / 1e9)} GB free")
        for row, left in zip(rows, free, strict=True)
    ]
    ax = plots.stacked_bars(bars, series.memory_parts(rows), "memory of one GPU, GB")
    yield Picture(
        "memory",
        COMPARED,
        "Where the memory of a GPU goes",
        "KV used at the peak, in the fullest replica. Drafts shrink what is left for KV; unused "
        "lies beyond the engine's share.",
        ax.figure,
    )


def _over_time(
    runs: Sequence[RunTable], look: Looks, failures_s: Sequence[float]
) -> Iterator[Picture]:
    for name, (title, caption) in TIMES.items():
        idle = 1.0 if name == "tau" else 0.0
        if any((course(run.columns, name).values > idle).any() for run in runs):
            ax = plots.over_time(runs, name, look=look, failures_s=failures_s)
            yield Picture(f"time_{name}", OVER_TIME, title, caption, ax.figure)


def _modes(
    tables: Mapping[str, RunTable],
    switches: Mapping[str, RunTable],
    rows: Sequence[Row],
    tpot: Mapping[str, tuple[Floats, Floats]],
    look: Looks,
) -> Iterator[Picture]:
    if any(times.size for times, _ in tpot.values()):
        yield Picture(
            "modes_tpot",
            MODES,
            "Time per output token along the run",
            "p95 of the requests that arrived about then, first replication, with every policy and "
            "without.",
            mode_plots.tpot_over_time(tpot, _closed_loop(rows), look=look).figure,
        )
    shown = [row for row in rows if row["strategy"] in tables][:MOST_MODES]
    for place, row in enumerate(shown):
        name = row["strategy"]
        switched = switches[name].columns["at_s"] if name in switches else ()
        over_time = modes.course(tables[name].columns)
        ax = mode_plots.modes_over_time(over_time, switched, row.get("gate"))
        caption = (
            "Above: how well drafts do in each mode, in its colour. Below: share of the decoding "
            "sequences in each mode."
        )
        last = " Last: switches." if len(switched) > mode_plots.FEW else ""
        yield Picture(f"modes_{place}", MODES, name, caption + last, ax.figure)


def _closed_loop(rows: Sequence[Row]) -> bool:
    return rows[0].get("offered_req_per_s") is None


def _tpot_along(run: RunTable, by_share: bool) -> tuple[Floats, Floats]:
    arrival_s = run.columns["arrival_s"]
    places = modes.sent_share(arrival_s) if by_share else arrival_s
    return modes.p95_along(places, metrics.tpot_s(run.columns))
