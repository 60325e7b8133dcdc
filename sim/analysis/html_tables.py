"""Rows of a result as the tables and tiles of the HTML report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sim.analysis import describe, grid
from sim.analysis.layout import MISSING, Column
from sim.analysis.palette import GLYPHS, Look, variables
from sim.analysis.report import COLUMNS, Cell
from sim.analysis.verdict import best, number, percent, switch_off

Document = Mapping[str, Any]
Row = Mapping[str, Any]
Looks = Mapping[str, Look]

MAIN = {
    "speedup": ("(band)",),
    "TPOT ms": ("mean (band)", "p95"),
    "TTFT ms": ("mean (band)", "p95"),
    "tok/s": ("a user", "a GPU"),
    "cost": ("USD/M tok",),
    "tau": ("now", "off below"),
    "regret %": ("tok/s", "TPOT mean", "TPOT p95"),
    "KV memory": ("peak %",),
    "SLO": ("within %",),
}
"""Columns a planner looks at first, by group; the others unfold."""
MOST_ROWS = 200
OPEN_ROWS = 40
"""Rows up to which the points of a grid stand below one another from the start."""


class Label(NamedTuple):
    """A strategy as the first cell of a row: its mark in the pictures, and badges."""

    text: str
    glyph: str
    colour: str
    badges: Sequence[str]
    chosen: bool


class Line(NamedTuple):
    """One row of a table: value and band of each cell."""

    label: Label
    cells: Sequence[tuple[str, str]]


class Table(NamedTuple):
    """A table in parts, each with a heading of its own where ``place`` is not empty."""

    groups: Sequence[tuple[str, int]]
    titles: Sequence[str]
    parts: Sequence[tuple[str, Sequence[Line]]]


class Tile(NamedTuple):
    """One key figure."""

    title: str
    value: str
    note: str
    state: str = ""


def label(row: Row, look: Looks, chosen: Row | None) -> Label:
    """First cell of a row."""
    mine = look[row["strategy"]]
    badges = {
        "choice": row is chosen,
        "hypothetical": row.get("hypothetical"),
        "saturated": row["saturated"],
    }
    return Label(
        row["strategy"],
        GLYPHS[mine.marker],
        variables()[mine.colour],
        [name for name, holds in badges.items() if holds],
        row is chosen,
    )


def strategies(
    rows: Sequence[Row], scenario: Mapping[str, Any], look: Looks, main: bool = True
) -> Table:
    """The main columns of rows, or all the others, in a part for each point."""
    groups: dict[str, list[Column]] = {}
    for group, columns in COLUMNS:
        for name, cell in columns:
            column = Column(name, [cell(row) for row in rows])
            if (name in MAIN.get(group, ())) == main and not column.empty:
                groups.setdefault(group, []).append(column)
    cells = list(zip(*(c.cells for columns in groups.values() for c in columns), strict=True))
    lines = iter(cells or [()] * len(rows))
    parts = []
    for at_point in grid.points(rows):
        chosen = best(at_point)
        heading = grid.place(at_point[0], scenario) if at_point[0]["point"] else ""
        made = [Line(label(row, look, chosen), _split(next(lines))) for row in at_point]
        parts.append((heading, made))
    return Table(
        [(group, len(columns)) for group, columns in groups.items()],
        [_title(column.title) for columns in groups.values() for column in columns],
        parts,
    )


def _split(cells: Iterable[str]) -> list[tuple[str, str]]:
    """``6.77 (5.19-10.4)`` is a value and its band."""
    parts = (cell.partition(" (") for cell in cells)
    return [(value, band.removesuffix(")")) for value, _, band in parts]


def _title(title: str) -> str:
    return title.removesuffix("(band)").strip() or "times"


def choices(document: Document, look: Looks) -> Table:
    """What to choose at each point of a grid."""
    scenario, parts = document["scenario"], []
    for at_point in grid.points(document["rows"]):
        chosen = best(at_point)
        if chosen is not None:
            cells = [cell(chosen) for _, cell in _CHOICE]
            line = Line(label(chosen, look, None), _split(cells))
        else:
            line = Line(Label("none carries it", "", "", [], False), [(MISSING, "")] * len(_CHOICE))
        parts.append((grid.place(at_point[0], scenario), [line]))
    return Table([], [name for name, _ in _CHOICE], parts)


def _milliseconds(name: str, statistic: str) -> Cell:
    return lambda row: number(None if row[name][statistic] is None else 1e3 * row[name][statistic])


_CELLS: dict[tuple[str, str], Cell] = {
    (group, name): cell for group, columns in COLUMNS for name, cell in columns
}
_CHOICE: tuple[tuple[str, Cell], ...] = (
    ("speedup", _CELLS["speedup", "(band)"]),
    ("TTFT p95, ms", _milliseconds("ttft_s", "p95")),
    ("TPOT p95, ms", _milliseconds("tpot_s", "p95")),
    ("tok/s a GPU", _CELLS["tok/s", "a GPU"]),
    ("USD/M tok", _CELLS["cost", "USD/M tok"]),
    ("SLO", lambda row: _met(row.get("slo") or {})),
)


def _met(slo: Mapping[str, Any]) -> str:
    return MISSING if "met" not in slo else "met" if slo["met"] else "missed"


def tiles(row: Row, scenario: Mapping[str, Any]) -> list[Tile]:
    """Key figures of the strategy chosen."""
    made = []
    if row["speedup"] is not None:
        value, band = _split([_CELLS["speedup", "(band)"](row)])[0]
        made.append(Tile("Speedup", value, f"band {band}" if band else "no band"))
    for name, title in (("ttft_s", "TTFT p95"), ("tpot_s", "TPOT p95")):
        made.append(_latency(row, name, title, (scenario.get("slo") or {}).get(name) or {}))
    user, gpu = (number(row[f"tok_per_s_per_{whom}"]) for whom in ("user", "gpu"))
    made.append(Tile("Tokens a second", user, f"of a user; {gpu} of a GPU"))
    if row.get("usd_per_million_tokens"):
        cost = number(row["usd_per_million_tokens"])
        made.append(Tile("Cost", f"{cost} USD", "a million output tokens"))
    free = f"{number(row['kv_free_bytes'] / 1e9)} GB of a GPU left"
    made.append(Tile("KV memory", percent(row["kv_use_peak"]), f"at its peak; {free}"))
    return made


def _latency(row: Row, name: str, title: str, bounds: Mapping[str, float]) -> Tile:
    value = row[name]["p95"]
    text = "-" if value is None else f"{number(1e3 * value)} ms"
    bound = bounds.get("p95")
    if bound is None or value is None:
        mean = row[name]["mean"]
        return Tile(title, text, f"mean {number(None if mean is None else 1e3 * mean)} ms")
    state = "bad" if value > bound else "good"
    return Tile(title, text, f"{'over' if value > bound else 'within'} {1e3 * bound:g} ms", state)


def streams(rows: Sequence[Row]) -> Table | None:
    """Metrics of each stream, in a part for each strategy; None without several streams."""
    with_streams = [row for row in rows if len(row.get("streams") or []) > 1]
    if not with_streams:
        return None
    chosen = best(rows)
    if sum(len(row["streams"]) for row in with_streams) > MOST_ROWS:
        with_streams = [row for row in with_streams if row is chosen] or with_streams[:1]
    titles = ["class", "requests", "done", "TTFT mean", "TTFT p95", "TPOT mean", "TPOT p95"]
    parts = []
    for row in with_streams:
        lines = [
            Line(Label(each["stream"], "", "", [], False), _stream(each))
            for each in row["streams"][:MOST_ROWS]
        ]
        parts.append((row["strategy"], lines))
    return Table([], [*titles, "E2E p95", "within SLO", "SLO"], parts)


def _stream(stream: Mapping[str, Any]) -> list[tuple[str, str]]:
    slo = stream.get("slo") or {}
    cells = [stream.get("slo_class") or MISSING, str(stream["requests"]), str(stream["finished"])]
    for name in ("ttft_s", "tpot_s"):
        cells += [_milliseconds(name, statistic)(stream) for statistic in ("mean", "p95")]
    cells += [_milliseconds("e2e_s", "p95")(stream), percent(slo.get("attainment")), _met(slo)]
    return [(cell, "") for cell in cells]


def worst_windows(rows: Sequence[Row], look: Looks) -> Table | None:
    """The worst window of each strategy; None where there are no windows."""
    found = [row for row in rows if (row.get("windows") or {}).get("worst")]
    if not found:
        return None
    lines = [Line(label(row, look, best(rows)), _window(row["windows"]["worst"])) for row in found]
    titles = ["starts at", "requests", "offered req/s", "TTFT p95", "TPOT p95", "E2E p95"]
    return Table([], [*titles, "within SLO"], [("", lines)])


def _window(worst: Mapping[str, Any]) -> list[tuple[str, str]]:
    latencies = [worst.get(f"{name}_p95") for name in ("ttft_s", "tpot_s", "e2e_s")]
    cells = [
        describe.clock(worst["start_s"]),
        str(worst.get("requests", MISSING)),
        number(worst.get("offered_req_per_s")),
        *(number(None if value is None else 1e3 * value) for value in latencies),
        percent(worst.get("attainment")),
    ]
    return [(cell, "") for cell in cells]


class Verdicts(NamedTuple):
    """What is said of the strategies at one point."""

    place: str
    choice: str
    shown: bool
    lines: Sequence[tuple[Label, str]]


def verdicts(document: Document, look: Looks) -> list[Verdicts]:
    """A sentence a strategy for each point, and which point the pictures show."""
    rows = document["rows"]
    shown, found = grid.shown(rows), []
    for at_point in grid.points(rows):
        chosen = best(at_point)
        lines = [
            (label(row, look, chosen), "; ".join(filter(None, (row["verdict"], switch_off(row)))))
            for row in at_point
        ]
        choice = f"choose {chosen['strategy']}" if chosen else "no strategy carries this load"
        place = grid.place(at_point[0], document["scenario"])
        found.append(Verdicts(place, choice, at_point[0]["point"] == shown[0]["point"], lines))
    return found
