"""Tables and pictures of docs/live.md, from tests/measured/live: ``make live-page``."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from live_cases import (
    FITTED_ON,
    KINDS,
    LADDER,
    Speedup,
    calibrated,
    compared,
    mape,
    observed,
    speedups,
)
from pages import Lines, replaced, table

from calibration.live.compare.comparison import Compared, Comparison
from calibration.live.fit import report as fit_report
from calibration.live.fit.command import Calibrated
from sim.analysis import live_plots, plots

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/live.md"
README = ROOT / "README.md"
IMAGES = ROOT / "docs/images"
WIDTH = 100


class Found(NamedTuple):
    """Everything the page shows."""

    fit: Calibrated
    comparisons: dict[str, Comparison]
    speedups: dict[str, list[Speedup]]


def main() -> None:
    """Calibrate on two loads of plain decoding, and predict all the rest."""
    with tempfile.TemporaryDirectory() as scratch:
        fit, scenario = calibrated(Path(scratch))
        comparisons = {kind: compared(kind, scenario) for kind in KINDS}
    ratios = {kind: speedups(comparisons["plain"], comparisons[kind]) for kind in KINDS[1:]}
    found = Found(fit, comparisons, ratios)
    text = PAGE.read_text("utf-8")
    for name, lines in (
        ("run", run()),
        ("sums", sums(found)),
        ("fit", fitted(found)),
        ("predicted", predicted(found)),
        ("speedups", gains(found)),
        ("acceptance", acceptance()),
    ):
        text = replaced(text, name, lines)
    PAGE.write_text(text, "utf-8")
    README.write_text(replaced(README.read_text("utf-8"), "live", sums(found)), "utf-8")
    for kind, comparison in comparisons.items():
        figure = live_plots.compared(comparison.document())
        (IMAGES / f"live_{kind}.svg").write_bytes(plots.save(figure, "svg"))


def run() -> Lines:
    """What was run, where and when."""
    seen = [observed(kind) for kind in KINDS]
    about = seen[0].about
    stages = sum(len(one.stages) for one in seen)
    requests = sum(len(run.columns["id"]) for one in seen for run in one.runs)
    repeats = [1 + max(stage.replication for stage in one.stages) for one in seen]
    counted = ", ".join(f"{n} of {kind}" for n, kind in zip(repeats, KINDS, strict=True))
    server = about["server"]
    yield (
        f"SmolLM2-135M in bf16 on {server['engine']} {server['version']}, {about['machine']}, one "
        f"thread, {about['date']}: interleaved repeats, {counted}, at "
        f"{', '.join(map(str, LADDER))} users, {stages} stages, {requests} requests of at most "
        f"{about['options']['tokens']} tokens."
    )


def sums(found: Found) -> Lines:
    """The page in five lines."""
    plain, ngram = found.comparisons["plain"], found.comparisons["ngram"]
    unseen = [load for load in LADDER if load not in FITTED_ON]
    rows = [
        [f"plain at {_listed(unseen)} users, calibrated at {_listed(FITTED_ON)}", plain, unseen],
        [f"n-gram K=4 at {_listed(LADDER)} users, no run of it calibrated on", ngram, LADDER],
        ["Medusa heads, likewise", found.comparisons["medusa"], LADDER],
    ]
    shown = [
        [what, *(_percent(mape(one, loads, metric)) for metric in ("tpot_s_mean", "tok_per_s"))]
        for what, one, loads in rows
    ]
    yield from table(("MAPE", "TPOT", "tokens a second"), shown)
    yield ""
    every = [one for own in found.speedups.values() for one in own]
    sure = [one for one in every if one.significant]
    right = sum(one.right for one in sure)
    yield (
        f"Side of 1 of the speedup: {right} of {len(sure)} right where the repeats pass a sign "
        f"test ({len(every)} points in all)."
    )


def fitted(found: Found) -> Lines:
    """What ``speccast calibrate live`` printed."""
    text = fit_report.report(found.fit, WIDTH).replace(f"{ROOT}/", "")
    yield from ("```text", *text.rstrip("\n").split("\n"), "```")


def predicted(found: Found) -> Lines:
    """Every point: measured and predicted."""
    rows = []
    for kind, comparison in found.comparisons.items():
        for row in comparison.rows:
            (load,) = row.point.values()
            seen = "" if kind != "plain" or load not in FITTED_ON else " (calibrated on)"
            metrics = ("ttft_s_mean", "tpot_s_mean", "tok_per_s", "tau")
            rows.append([f"{kind}, {load}{seen}", *(_pair(row, name) for name in metrics)])
    heads = ("server, users", "TTFT [ms]", "TPOT [ms]", "tokens a second", "tau")
    yield from table(heads, rows)


def gains(found: Found) -> Lines:
    """Measured and predicted speedup."""
    rows = [
        [
            f"{kind}, {one.load}",
            f"{one.measured:.3f} ({min(one.repeats):.2f}-{max(one.repeats):.2f})",
            f"{one.predicted:.3f}",
            f"{100 * (one.predicted / one.measured - 1):+.0f} %",
            f"{one.p:.3f}",
            ("yes" if one.right else "no") if one.significant else "not told",
        ]
        for kind, own in found.speedups.items()
        for one in own
    ]
    heads = ("server, users", "median (range)", "predicted", "error", "sign test p", "right side")
    yield from table(heads, rows)


def acceptance() -> Lines:
    """Acceptance by position, from the counters of the servers."""
    from calibration.live.fit.deployed import summed
    from calibration.live.server.by_position import acceptance_by_position
    from calibration.live.server.emitted import tau

    rows = []
    for kind in KINDS[1:]:
        counters = summed(observed(kind))
        told = acceptance_by_position(counters)
        assert told is not None
        rates = [f"{a:.3f} ± {e:.3f}" for a, e in zip(told.alpha, told.se, strict=True)]
        rows.append([kind, f"{told.tried[0]:,}", *rates, f"{tau(counters, kind=kind):.2f}"])
    positions = [f"position {place}" for place in range(1, 5)]
    yield from table(("server", "drafts", *positions, "tau"), rows)


def _pair(row: Compared, name: str) -> str:
    score = row.scores[name]
    if score.measured is None or score.predicted is None:
        return "-"
    scale = 1e3 if name.endswith("_mean") else 1.0
    digits = 2 if name == "tau" else 1
    pair = f"{scale * score.measured:.{digits}f} / {scale * score.predicted:.{digits}f}"
    return pair if name == "tau" else f"{pair} ({100 * (score.relative or 0):+.0f} %)"


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _listed(loads: Sequence[int]) -> str:
    *most, last = map(str, loads)
    return f"{', '.join(most)} and {last}" if most else last


if __name__ == "__main__":
    main()
