"""Tables of the validation page, as header and rows of text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pandas as pd

from calibration.validation import tables
from calibration.validation.bounds import Answer, Bounds, Check
from calibration.validation.groups import BUCKETS, PLAIN, metric_name
from calibration.validation.report import (
    STATISTICS,
    counts,
    shares,
    signed,
    value_text,
)
from sim.analysis.verdict import number, percent

WORST = 8
MISSING = ""


class Table(NamedTuple):
    """Header and rows of one table; no rows where there is nothing to show."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def answers(frame: pd.DataFrame, kinds: Iterable[Answer]) -> Table:
    """How far to trust which answer: a row a kind of answer and metric."""
    header = [
        *("answer", "figure", "n", "mean error", "bias", "9 of 10 within", "side of 1"),
        *("in the 90 % band", "band", "basis"),
    ]
    found = tables.by_answer(frame, kinds)
    if found.empty:
        return Table(header, [])
    names = found["answer"].mask(found["answer"] == found["answer"].shift(), "")
    columns: list[Iterable[Any]] = [
        names,
        [metric_name(name) for name in found["metric"]],
        found["n"].astype(str),
        shares(found["mape"]),
        [signed(value) for value in found["bias"]],
        shares(found["p90"]),
        counts(found["right"], found["told"]),
        [_of(inside, n) for inside, n in zip(found["inside"], found["banded"], strict=True)],
        [_half(width) for width in found["width"]],
        found["basis"],
    ]
    return _rows(header, columns)


def harnesses(frame: pd.DataFrame) -> Table:
    """Step ratio of each method by who measured it, and the error of the predicted one."""
    steps = frame[frame["scored"] & (frame["metric"] == "step_ratio")]
    origins = list(dict.fromkeys(steps["origin"]))
    rows = [
        [str(family), *(_step(part[part["origin"] == origin]) for origin in origins)]
        for family, part in steps.groupby("family")
    ]
    return Table(["method", *(origin.rpartition(", ")[2] for origin in origins)], rows)


def _step(part: pd.DataFrame) -> str:
    if part.empty:
        return MISSING
    measured, predicted = part["measured"].mean(), part["predicted"].astype(float).mean()
    return f"{measured:.2f} ({signed(predicted / measured - 1)}, {len(part)})"


def grid(frame: pd.DataFrame, row: str, column: str, titles: Sequence[str] = ()) -> Table:
    """Mean error and number of figures by two columns of the table of outcomes."""
    found = tables.summary(frame, [row, column])
    if found.empty:
        return Table((row,), [])
    across = [name for name in titles or dict.fromkeys(found[column]) if name in set(found[column])]
    cells = {
        (one[row], one[column]): f"{100 * one['mape']:.1f} % ({one['n']})"
        for _, one in found[found["n"] > 0].iterrows()
    }
    header = (row, *(metric_name(name) if column == "metric" else name for name in across))
    rows = [
        [str(name), *(cells.get((name, other), MISSING) for other in across)]
        for name in sorted(dict.fromkeys(found[row]))
        if name
    ]
    return Table(header, rows)


def statistics(frame: pd.DataFrame) -> Table:
    """Errors of plain serving by latency and statistic."""
    served = frame[frame["suite"] == "serving"] if len(frame) else frame
    parts = served["metric"].str.partition(".") if len(served) else None
    if parts is None:
        return Table(("latency",), [])
    named = served.assign(latency=served["metric"].map(_latency), statistic=parts[2])
    return grid(named, "latency", "statistic", ("mean", "p50", "p90", "p99"))


def _latency(metric: str) -> str:
    return metric_name(metric.partition(".")[0])


def by_strategy(frame: pd.DataFrame) -> Table:
    """Errors of speedups by family of the strategy and batch."""
    if frame.empty:
        return Table(("strategy",), [])
    told = frame[(frame["metric"] == "speedup") & (frame["family"] != PLAIN)]
    named = told.rename(columns={"family": "strategy", "strategy": "kind"})
    return grid(named[named["bucket"] != ""], "strategy", "bucket", tuple(BUCKETS))


def main_figures(frame: pd.DataFrame, row: str) -> Table:
    """Errors by a label, a column each of the figures that most rows have."""
    titles = ("e2e_s.mean", "ttft_s.mean", "tpot_s.mean", "tok_per_s", "duration_s", "speedup")
    return grid(frame[frame["metric"].isin(titles)] if len(frame) else frame, row, "metric", titles)


def promises(checks: Iterable[Check]) -> Table:
    """Every promise, what it came to, and whether it is kept."""
    rows = []
    for one in checks:
        if one.value is None:
            continue
        limit = f"{'at most' if one.statistic == 'mape' else 'at least'} {percent(one.limit)}"
        name = f"{one.promise}, {one.group}" if one.group else one.promise
        now = f"{100 * one.value:.1f} %"
        kept = "yes" if one.kept else f"**no** {one.cause}".rstrip()
        rows.append([name, STATISTICS[one.statistic], limit, now, str(one.n), kept])
    return Table(("promise", "statistic", "limit", "now", "n", "kept"), rows)


def worst(frame: pd.DataFrame) -> Table:
    """The figures farthest off."""
    found = tables.worst(frame, WORST)
    rows = [
        [
            f"`{one['case']}`",
            metric_name(one["metric"]),
            value_text(one["metric"], one["measured"]),
            value_text(one["metric"], one["predicted"]),
            signed(one["relative"]),
        ]
        for _, one in found.iterrows()
    ]
    return Table(("case", "figure", "measured", "predicted", "error"), rows)


def peers(frame: pd.DataFrame) -> Table:
    """Errors other simulators publish."""
    rows = [
        [
            *(
                str(one["name"]),
                str(one["rows"]),
                *shares(one[["e2e_mape", "ttft_mape", "itl_mape"]]),
            ),
            *(str(one["caveat"]), str(one["source"])),
        ]
        for _, one in frame.iterrows()
    ]
    return Table(("simulator", "rows", "E2E", "TTFT", "ITL", "caveat", "source"), rows)


def scalars(frame: pd.DataFrame) -> Table:
    """Every fitted scalar, the figures it touched, and errors with and without them."""
    header = ("scalar", "value", "se", "fitted on", "figures", "in-sample", "held out", "source")
    rows = [
        [
            f"`{one['name']}`",
            f"{_number(one['value'])} {one['unit'] or ''}".strip(),
            _number(one["se"]),
            str(one["fitted_on"]),
            str(one["n"]),
            *shares(one[["in_sample", "held_out"]]),
            str(one["source"]),
        ]
        for _, one in frame.iterrows()
    ]
    return Table(header, rows)


def coverage(frame: pd.DataFrame) -> Table:
    """Bands made without the model they are tried on."""
    rows = [
        [str(one["answer"]), str(one["n"]), percent(one["inside"]), _half(one["width"])]
        for _, one in frame.iterrows()
    ]
    return Table(("answer", "n", "inside", "band"), rows)


def not_validated(bounds: Bounds) -> Table:
    """What nobody has measured."""
    rows = [[one.what, one.why, one.basis] for one in bounds.not_validated]
    return Table(("what", "why", "basis"), rows)


def _number(value: Any) -> str:
    return MISSING if pd.isna(value) else number(float(value), 4)


def _half(width: float) -> str:
    return MISSING if pd.isna(width) else f"± {100 * width / 2:.0f} %"


def _of(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else MISSING


def _rows(header: Sequence[str], columns: Sequence[Iterable[Any]]) -> Table:
    cells = ([MISSING if cell in ("-", "") else str(cell) for cell in column] for column in columns)
    return Table(header, list(zip(*cells, strict=True)))
