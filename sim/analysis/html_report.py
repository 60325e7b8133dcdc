"""The report as one HTML page that needs nothing else, and its pictures as files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from sim.analysis import describe, grid, html_tables, plots, slo_words
from sim.analysis.answer import answer, notes
from sim.analysis.assumptions import assumptions
from sim.analysis.figures import MODES, OVER_TIME, Picture, appearance, carried, pictures
from sim.analysis.html_modes import html_modes
from sim.analysis.kernel_notes import beyond
from sim.analysis.modes_report import READING
from sim.analysis.palette import css
from sim.analysis.report import bases, reading
from sim.analysis.svg import inline
from sim.analysis.verdict import WATCH, best, switch_off
from sim.manifest import speccast_version
from sim.output import PICTURES
from sim.tables import RunTable

Document = Mapping[str, Any]

KINDS = ("svg", "png")
GLOSSARY = (
    "TTFT: time from sending a request to its first token, queueing included. TPOT: time per token "
    "after the first. ITL: gap between two chunks of a stream. E2E: time to the last token. tau: "
    "tokens a decode step emits on average. Accepted: share of drafted tokens kept. KV: keys and "
    "values of the tokens in memory. SLO: the latency bounds asked for. Speedup: time per token of "
    "plain decoding over that of the strategy, at the same load. Saturated: more arrives than is "
    "served, so no latency is promised."
)


def render(
    document: Document,
    requests: Sequence[RunTable],
    timelines: Sequence[RunTable],
    modes: Sequence[RunTable] = (),
    switches: Sequence[RunTable] = (),
) -> str:
    """The report as HTML: one file, nothing fetched, no script.

    Parameters
    ----------
    document : mapping
        The document of ``speccast run --json``.
    requests, timelines, modes, switches : iterable of RunTable
        Tables of every run, each looked at once. The same tables give the same page.
    """
    drawn = pictures(document, requests, timelines, modes, switches)
    return _page(document, [(picture, plots.save(picture.figure, "svg")) for picture in drawn])


def write_report(
    folder: Path,
    document: Document,
    requests: Iterable[RunTable],
    timelines: Iterable[RunTable],
    modes: Iterable[RunTable] = (),
    switches: Iterable[RunTable] = (),
) -> None:
    """Write ``report.html``, and every picture as SVG and PNG below ``figures``.

    Parameters
    ----------
    folder : Path
        An existing folder.
    document, requests, timelines, modes, switches
        As in ``render``.

    Raises
    ------
    OSError
        If the disk refuses.
    """
    (folder / PICTURES).mkdir()
    drawn = []
    for picture in pictures(document, requests, timelines, modes, switches):
        files = {kind: plots.save(picture.figure, kind) for kind in KINDS}
        for kind, content in files.items():
            (folder / PICTURES / f"{picture.name}.{kind}").write_bytes(content)
        drawn.append((picture, files["svg"]))
    (folder / "report.html").write_bytes(_page(document, drawn).encode("utf-8", "replace"))


@cache
def environment() -> Environment:
    """Templates of the pages, every value escaped."""
    made = Environment(
        loader=PackageLoader("sim.analysis"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["tied"] = lambda text: str(text).replace(" %", "\u00a0%")
    return made


def _page(document: Document, drawn: Sequence[tuple[Picture, bytes]]) -> str:
    template = environment().get_template("report.html.j2")
    return template.render(
        over_time=(MODES, OVER_TIME),
        light=css("light"),
        dark=css("dark"),
        sections=_sections(drawn),
        **_context(document),
    ).lstrip()


def _sections(drawn: Sequence[tuple[Picture, bytes]]) -> list[tuple[str, list[dict[str, Any]]]]:
    return [
        (section, [_figure(*each) for each in group])
        for section, group in groupby(drawn, key=lambda each: each[0].section)
    ]


def _figure(picture: Picture, svg: bytes) -> dict[str, Any]:
    element = inline(svg, picture.name, f"{picture.title}. {picture.caption}")
    return {"title": picture.title, "caption": picture.caption, "svg": element}


def _context(document: Document) -> dict[str, Any]:
    """Everything the template says in words and tables."""
    scenario, rows = document["scenario"], document["rows"]
    deployment = describe.deployment(scenario)
    return {
        "question": document.get("question") or deployment,
        "answer": answer(document),
        "notes": notes(document),
        "deployment": deployment,
        "load": describe.load(scenario, document.get("trace")),
        "fleet": describe.fleet(scenario),
        "varied": describe.varied(row["point"] for row in rows),
        "slo": slo_words.slo(scenario),
        "reading": "; ".join(reading(rows)) + ".",
        "watch": WATCH if any(switch_off(row) for row in rows) else "",
        "assumptions": assumptions(document),
        "bases": [*bases(rows), *beyond(rows)],
        "glossary": GLOSSARY,
        "version": speccast_version(),
        "seed": document["seed"],
        "replications": scenario.get("run", {}).get("replications", 1),
        "profile": document["profile"],
        "compared": _compared(document) if rows else None,
    }


def _compared(document: Document) -> dict[str, Any]:
    """The tables of the strategies."""
    scenario, rows = document["scenario"], document["rows"]
    look, shown = appearance(rows), grid.shown(rows)
    several, chosen = len(grid.points(rows)) > 1, best(shown)
    few = len(rows) <= html_tables.OPEN_ROWS
    length = next((row["windows"]["window_s"] for row in shown if row.get("windows")), 0)
    return {
        "tiles": html_tables.tiles(chosen, scenario) if chosen and not several else [],
        "choices": html_tables.choices(document, look) if several else None,
        "main": html_tables.strategies(rows if few else shown, scenario, look),
        "all": None if few else html_tables.strategies(rows, scenario, look),
        "more": html_tables.strategies(rows, scenario, look, main=False),
        "modes": html_modes(shown),
        "modes_reading": READING,
        "streams": html_tables.streams(shown),
        "windows": html_tables.worst_windows(shown, look),
        "window": describe.duration(length),
        "place": f"At {grid.place(shown[0], scenario)}",
        "left_out": _left_out(shown),
        "verdicts": html_tables.verdicts(document, look),
    }


def _left_out(rows: Sequence[Mapping[str, Any]]) -> str:
    """Names the rows without a latency beside others that have one."""
    kept = carried(rows)
    names = [row["strategy"] for row in rows if row not in kept]
    return f"; saturated and without a latency to show: {', '.join(names)}" if names else ""
