"""The printed report of ``speccast compare``: measured, predicted, and how far apart they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from calibration.live.remarks import lost_note
from sim.analysis.layout import MISSING, Column, Group, Line, paragraph, render, table
from sim.analysis.report import BASIS
from sim.analysis.verdict import FEW, number, percent

Document = Mapping[str, Any]
Row = Mapping[str, Any]

SHOWN = {
    "ttft_s_mean": ("mean TTFT [ms]", 1e3),
    "tpot_s_mean": ("mean TPOT [ms]", 1e3),
    "e2e_s_mean": ("mean E2E [s]", 1.0),
    "tok_per_s": ("tokens a second", 1.0),
    "tau": ("tau", 1.0),
    "kv_use": ("KV in use [%]", 100.0),
}
"""Title and factor of the metrics shown by point."""
NAMES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E"}
SINGLE = {"tok_per_s": "tokens a second", "tau": "tau", "kv_use": "KV in use"}
STATISTICS = ("mean", "p50", "p90", "p95", "p99")
POINTS = {
    "concurrency": "users",
    "rate_per_s": "req/s",
    "rate_scale": "x the trace",
}
"""What sets a stage, in the words of a column."""
MODES = {"closed_loop": "closed loop", "open_loop": "Poisson arrivals", "trace": "a trace"}
TAU_FROM = {
    "counters": "tau measured: from the server's counters of tokens, requests and accepted drafts.",
    "gauge": "tau measured: mean of the server's gauge.",
}


def compare_report(document: Document, width: int, colour: bool = False) -> str:
    """Text of a comparison.

    Parameters
    ----------
    document : mapping
        What ``speccast compare --json`` prints.
    width, colour
        As in ``report.run_report``.
    """
    return render(_lines(document, width), colour)


def _lines(document: Document, width: int) -> Iterator[Line]:
    rows = document["rows"]
    yield from paragraph(f"{document['runs']} against {document['scenario']}", width, "title")
    yield from paragraph(_measured(document), width)
    yield from paragraph(_predicted(document), width)
    yield Line("")
    yield from table(_keys(rows), _groups(rows), width, [False] * len(rows))
    yield Line("")
    yield from _errors(document["mape"]["metrics"], width)
    yield Line("")
    yield from paragraph(_overall(document), width, "title")
    for text in _notes(document):
        yield from paragraph(text, width, "note")


def _measured(document: Document) -> str:
    """What was measured, where, and as what it is predicted."""
    server = document.get("server") or {}
    told = (server.get("engine"), server.get("version"))
    engine = " ".join(str(one) for one in told if one and one != "unknown")
    where = [document.get("target"), engine, document.get("machine"), document.get("date")]
    strategy, mode = document["strategy"], document.get("mode")
    same = strategy["measured"] == strategy["predicted"]
    shown = strategy["measured"] + ("" if same else f", predicted as {strategy['predicted']}")
    parts = [str(one) for one in where if one] + [MODES.get(str(mode), ""), shown]
    return ", ".join(part for part in parts if part) + "."


def _predicted(document: Document) -> str:
    on = document["predicted_on"]
    split = f" (TP {on['tp']})" if on["tp"] > 1 else ""
    return f"Predicted: {on['transformer']} on {on['hardware']}{split}, {on['engine']}."


def place(row: Row) -> tuple[str, str]:
    """Title and value of what sets a point."""
    ((key, value),) = row["point"].items()
    return POINTS.get(key, key), f"{value:g}" if isinstance(value, int | float) else str(value)


def _keys(rows: Sequence[Row]) -> list[Column]:
    places = [place(row) for row in rows]
    titles = list(dict.fromkeys(title for title, _ in places))
    if len(titles) == 1:
        return [Column(titles[0], [value for _, value in places])]
    return [Column("load", [f"{value} {title}" for title, value in places])]


def _groups(rows: Sequence[Row]) -> Iterator[Group]:
    counts = [Column("requests", [str(sum(row["requests"].values())) for row in rows])]
    if any(row["repeats"] > 1 for row in rows):
        counts.insert(0, Column("repeats", [str(row["repeats"]) for row in rows]))
    yield Group("", counts)
    for name, (title, factor) in SHOWN.items():
        scores = [row["metrics"][name] for row in rows]
        if all(score["measured"] is None for score in scores):
            continue
        columns = [
            Column(side, [_number(score[side], factor) for score in scores])
            for side in ("measured", "predicted")
        ]
        error = Column("error", [signed(score["relative"]) for score in scores])
        yield Group(title, [*columns, error])


def _number(value: float | None, factor: float) -> str:
    return number(None if value is None else value * factor)


def _errors(mape: Mapping[str, float | None], width: int) -> Iterator[Line]:
    """Mean absolute errors: a row a quantity, a column a statistic."""
    cells: dict[str, list[float | None]] = {
        text: [mape[f"{name}_{statistic}"] for statistic in STATISTICS]
        for name, text in NAMES.items()
    }
    cells |= {text: [mape[name], None, None, None, None] for name, text in SINGLE.items()}
    cells = {text: values for text, values in cells.items() if any(v is not None for v in values)}
    columns = [
        Column(statistic, [_size(values[place]) for values in cells.values()])
        for place, statistic in enumerate(STATISTICS)
    ]
    keys = [Column("error on average", list(cells), left=True)]
    groups = [Group("", [column]) for column in columns]
    yield from table(keys, groups, width, [False] * len(cells))


def _size(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:.1f} %"


def signed(value: float | None) -> str:
    """A relative error as a percentage with its sign."""
    return MISSING if value is None else f"{100 * value:+.1f} %"


def _overall(document: Document) -> str:
    overall, points = document["mape"]["overall"], len(document["rows"])
    if overall is None:
        return "Nothing was both measured and predicted."
    at = f"{points} point{'s' * (points != 1)}"
    return f"{_size(overall)} off on average over mean TTFT, TPOT, E2E and tokens a second, {at}."


def _notes(document: Document) -> Iterator[str]:
    rows, within = document["rows"], document["within_band"]
    if document["repeats_differ"] is not None:
        off = _size(document["repeats_differ"])
        yield f"A single repeat of the measurement is {off} off all repeats of its point."
    if within["of"]:
        bands = [row["band"] for row in rows if row["band"]]
        basis = bands[0]["basis"]
        meaning = f" ({BASIS[basis]})" if basis in BASIS else ""
        yield (
            f"{within['inside']} of {within['of']} within the {percent(bands[0]['level'])} band, "
            f"{basis}{meaning}."
        )
    if full := [" ".join(reversed(place(row))) for row in rows if row["saturated"]]:
        yield f"Predicted to be saturated: {', '.join(full)}; latencies are those of a run as long."
    if document["left_out"]:
        yield lost_note(document["left_out"])
    if document["cached"]:
        yield document["cached"]
    yield from _shortcomings(rows)
    for source in dict.fromkeys(row["tau_from"] for row in rows):
        if source in TAU_FROM:
            yield TAU_FROM[source]


def _shortcomings(rows: Sequence[Row]) -> Iterator[str]:
    """What the measurement itself lacks."""
    lost = {
        status: count
        for status in ("failed", "rejected", "timed_out", "unfinished")
        if (count := sum(row["requests"][status] for row in rows))
    }
    if lost:
        told = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in lost.items())
        yield f"Requests without an answer: {told}; measured latencies leave them out."
    late = sum(row["late"] for row in rows)
    if late:
        were = "requests were" if late > 1 else "request was"
        yield f"{late} {were} sent late: the client or its machine was too slow."
    fewest = min((row["requests"]["finished"] for row in rows), default=0)
    if fewest < FEW:
        yield f"Percentiles rest on few requests: {fewest} at one point."
