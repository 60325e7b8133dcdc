"""Tables and pictures of docs/adaptive.md, from two examples: ``make adaptive-page``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pages import Lines, replaced, table

from sim.analysis import metrics, mode_plots, plots
from sim.analysis import modes as modes_table
from sim.experiment import Result, run
from sim.scenario.load import load_scenario

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/adaptive.md"
IMAGES = ROOT / "docs/images"
EXAMPLES = ROOT / "examples"
SHIFT, COUNT = EXAMPLES / "domain_shift_gate.yaml", EXAMPLES / "k_by_running_sequences.yaml"
SEEDS = range(1, 6)
USERS = "workload.arrivals.users"
SHOWN = "gate to lookahead"
"""Gate whose switches and picture the page shows."""

Row = Mapping[str, Any]


def main() -> None:
    """Run both examples and write what the page shows of them."""
    shift = example(SHIFT)
    count = [example(COUNT, f"run.seed={seed}").document["rows"] for seed in SEEDS]
    text = PAGE.read_text("utf-8")
    for name, lines in (
        ("policies", policies(shift.document["rows"])),
        ("switches", switches(shift.document["rows"])),
        ("modes", modes(shift.document["rows"])),
        ("count", counts(count)),
    ):
        text = replaced(text, name, lines)
    PAGE.write_text(text, "utf-8")
    for name, figure in pictures(shift):
        (IMAGES / f"adaptive_{name}.svg").write_bytes(plots.save(figure, "svg"))


def example(path: Path, *changes: str) -> Result:
    """Every point of an example."""
    return run(load_scenario(path, changes))


def policies(rows: Iterable[Row]) -> Lines:
    """A line a policy and number of users: what it does, and what it loses to the oracle."""
    header = ("users", "policy", "speedup", "TPOT mean, p95 [ms]", "tok/s a GPU", "tau")
    lost = ("regret: tok/s, TPOT mean, p95 [%]",)
    yield from table((*header, *lost), (_policy(row) for row in rows))


def _policy(row: Row) -> tuple[str, ...]:
    tpot, regret = row["tpot_s"], row["regret"]
    return (
        f"{row['point'][USERS]}",
        row["strategy"],
        "-" if row["speedup"] is None else f"{row['speedup']:.2f}",
        f"{1e3 * tpot['mean']:.1f}, {1e3 * tpot['p95']:.1f}",
        f"{row['tok_per_s_per_gpu']:.0f}",
        f"{row['tau']:.2f}",
        ", ".join(f"{100 * regret[key]:.1f}" for key in ("tok_per_s", "tpot_mean", "tpot_p95")),
    )


def switches(rows: Iterable[Row]) -> Lines:
    """How often each gate switched, and when first."""
    header = ("users", "policy", "switches", "a request", "the first of them [s]")
    gates = (row for row in rows if row.get("switches") is not None)
    yield from table(header, (_switched(row) for row in gates))


def _switched(row: Row) -> tuple[str, ...]:
    first = ", ".join(f"{switch['at_s']:.1f}" for switch in row["first_switches"][:4])
    each = f"{row['switches_per_request']:.2f}"
    return f"{row['point'][USERS]}", row["strategy"], f"{row['switches']}", each, first or "-"


def modes(rows: Iterable[Row]) -> Lines:
    """Where the sequences of switching policies were."""
    header = ("users", "policy", "mode", "share of the time [%]", "alpha [%]", "tau")
    yield from table(header, (line for row in rows if row.get("modes") for line in _modes(row)))


def _modes(row: Row) -> Iterable[tuple[str, ...]]:
    for name, mode in row["modes"].items():
        alpha = "-" if mode["alpha"] is None else f"{100 * mode['alpha']:.0f}"
        tau = "-" if mode["tau"] is None else f"{mode['tau']:.2f}"
        share = f"{100 * mode['share']:.0f}"
        yield f"{row['point'][USERS]}", row["strategy"], name, share, alpha, tau


def counts(runs: Sequence[Sequence[Row]]) -> Lines:
    """A K by running sequences, with and without a dead band; a run a seed."""
    header = ("policy", f"speedup, seeds {SEEDS[0]} to {SEEDS[-1]}", "switches", "tau")
    yield from table(header, (_count(rows) for rows in zip(*runs, strict=True)))


def _count(rows: Sequence[Row]) -> tuple[str, ...]:
    def every(values: Iterable[Any], form: str) -> str:
        return ", ".join("-" if value is None else format(value, form) for value in values)

    return (
        rows[0]["strategy"],
        every((row["speedup"] for row in rows), ".2f"),
        every((row.get("switches") for row in rows), "d"),
        every((row["tau"] for row in rows), ".2f"),
    )


def pictures(shift: Result) -> Iterator[tuple[str, Any]]:
    """Modes of one gate over time, and the p95 of TPOT of every policy along the run."""
    few = min(run.point[USERS] for run in shift.requests)
    gates = {row["strategy"]: row.get("gate") for row in shift.document["rows"]}
    (own,) = (run for run in shift.modes if run.strategy == SHOWN and run.point[USERS] == few)
    (when,) = (run for run in shift.switches if run.strategy == SHOWN and run.point[USERS] == few)
    over_time = modes_table.course(own.columns)
    yield "gate", mode_plots.modes_over_time(over_time, when.columns["at_s"], gates[SHOWN]).figure
    lines = {
        run.strategy: modes_table.p95_along(
            modes_table.sent_share(run.columns["arrival_s"]), metrics.tpot_s(run.columns)
        )
        for run in shift.requests
        if run.point[USERS] == few
    }
    yield "tpot", mode_plots.tpot_over_time(lines, by_share=True).figure


if __name__ == "__main__":
    main()
