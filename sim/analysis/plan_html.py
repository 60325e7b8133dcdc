"""A capacity plan as one HTML page that needs nothing else, and its pictures as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sim.analysis import describe, plan_evidence, plan_words, plots
from sim.analysis.html_report import KINDS, environment
from sim.analysis.html_tables import Label, Line, Table, Tile
from sim.analysis.layout import MISSING
from sim.analysis.palette import GLYPHS, css, variables
from sim.analysis.plan_plots import appearance, pictures
from sim.analysis.plan_report import columns_of, legend, own_settings
from sim.analysis.plan_words import Document, Plan, money
from sim.analysis.shell import command_lines
from sim.analysis.svg import inline
from sim.analysis.verdict import number, percent
from sim.manifest import speccast_version
from sim.output import PICTURES

PAGE = "report.html"
COMMAND_WIDTH = 100
"""Letters of a line of the launch command."""
BADGES = ("choice:", "hypothetical:", "pareto:")
MOST_CANDIDATES = 400
"""Rows of the table of candidates; plan.json has them all."""


def write(document: Document, folder: Path) -> list[str]:
    """Write ``report.html``, and every picture as SVG and PNG below ``figures``.

    The same document gives the same bytes.

    Parameters
    ----------
    document : mapping
        What ``speccast plan --json`` prints.
    folder : Path
        An existing folder.

    Returns
    -------
    list of str
        Files written, as paths below ``folder``.

    Raises
    ------
    OSError
        If the disk refuses.
    """
    written, svgs = [], {}
    for picture in pictures(document):
        (folder / PICTURES).mkdir(exist_ok=True)
        for kind in KINDS:
            content = plots.save(picture.figure, kind)
            written.append(f"{PICTURES}/{picture.name}.{kind}")
            (folder / written[-1]).write_bytes(content)
            if kind == "svg":
                svgs[picture.name] = inline(content, picture.name, picture.label)
    (folder / PAGE).write_bytes(page(document, svgs).encode("utf-8", "replace"))
    return [PAGE, *written]


def page(document: Document, svgs: Mapping[str, str]) -> str:
    """The plan as HTML: one file, nothing fetched, no script.

    Parameters
    ----------
    document : mapping
    svgs : mapping
        Elements of the pictures by name, those of ``pictures``.
    """
    plan = plan_words.chosen(document)
    template = environment().get_template("plan.html.j2")
    return template.render(
        light=css("light"),
        dark=css("dark"),
        question=document.get("question") or "What to buy",
        answer=plan_words.answer(document),
        notes=plan_words.notes(document),
        tiles=_tiles(document, plan) if plan is not None else [],
        setup=plan_words.setup(document),
        demand=plan_words.demand(document),
        plans=_plans(document) if document["plans"] else None,
        legend=legend(document, BADGES),
        common=", ".join(plan_words.common(document)),
        settings=[_settings(document, each) for each in document["plans"]],
        launch="\n".join(_launch(plan)),
        check=_check(document),
        measure=plan_evidence.measure_next(document),
        rests=plan_evidence.rests_on(document) if document.get("inputs") else "",
        inputs=document.get("inputs") or [],
        impossible=plan_evidence.impossible(document),
        counts=plan_evidence.counts(document),
        search=_search(document),
        pictures=svgs,
        version=speccast_version(),
        seed=document["seed"],
    ).lstrip()


def _launch(plan: Plan | None) -> list[str]:
    command = (plan or {}).get("launch")
    return [line[2:] for line in command_lines(command, COMMAND_WIDTH)] if command else []


def _tiles(document: Document, plan: Plan) -> list[Tile]:
    """Key figures of the plan chosen."""
    band = plan_words.range_text(plan.get("gpus_band"))
    level = percent(document["level"])
    sure = plan_words.sureness(document, plan)
    tiles = [Tile("Buy", f"{plan['gpus']} {plan['gpu']}", f"{level} band {band}" if band else "")]
    if plan.get("usd_per_day") is not None:
        hourly = f"{money(plan['usd_per_hour'])} USD an hour"
        tiles.append(Tile("Cost a day", f"{money(plan['usd_per_day'])} USD", hourly))
        ends = plan_words.range_text(plan.get("usd_per_million_band"))
        tokens = f"{money(plan['usd_per_million_tokens'])} USD"
        note = f"{level} band {ends}" if ends else "output tokens"
        tiles.append(Tile("Cost per million tokens", tokens, note))
    if sure:
        tiles.append(Tile("Enough", percent(plan["confidence"]), _beyond(document, plan)))
    if plan.get("headroom") is not None:
        held = f"holds {number(plan['fleet_peak_req_s'])} req/s at the peak"
        tiles.append(Tile("Headroom", percent(plan["headroom"]), held))
    return [*tiles, *_latencies(document, plan)]


def _beyond(document: Document, plan: Plan) -> str:
    asked, more = document.get("confidence"), plan.get("gpus_for_confidence")
    if asked is None:
        return "likely to be enough"
    return f"{more} GPUs for {percent(asked)}" if more is not None else f"none for {percent(asked)}"


def _latencies(document: Document, plan: Plan) -> list[Tile]:
    """Worst p95 of each latency with a bound."""
    tiles = []
    for key, name in plan_words.LATENCIES.items():
        value = (plan.get("worst") or {}).get(f"{key}_p95")
        bound = ((document.get("slo") or {}).get(key) or {}).get("p95")
        if value is not None and bound is not None:
            within = value <= bound
            note = f"{'within' if within else 'over'} {1e3 * bound:g} ms"
            text = f"{number(1e3 * value)} ms"
            tiles.append(Tile(f"{name} p95, worst", text, note, "good" if within else "bad"))
    return tiles


def _plans(document: Document) -> Table:
    groups: list[tuple[str, int]] = [("fleet", 1)]
    titles = ["GPU"]
    cells = [[(each["gpu"], plan_words.fleet(each)) for each in document["plans"]]]
    for group, columns in columns_of(document):
        made = [(title, [cell(each) for each in document["plans"]]) for title, cell in columns]
        made = [(title, texts) for title, texts in made if set(texts) != {MISSING}]
        if made:
            groups.append((group, len(made)))
        for title, texts in made:
            titles.append(title.replace("(band)", "").strip() or "number")
            cells.append([_split(text) for text in texts])
    labels = _labels(document)
    lines = [Line(label, row) for label, *row in zip(labels, *cells, strict=True)]
    return Table(groups, titles, [("", lines)])


def _labels(document: Document) -> list[Label]:
    look, made = appearance(document), []
    for plan in document["plans"]:
        mine, bought = look[plan["strategy"]], plan is plan_words.chosen(document)
        badges = {
            "choice": bought,
            "hypothetical": plan["hypothetical"],
            "pareto": bool(plan.get("pareto")),
        }
        shown = [name for name, holds in badges.items() if holds]
        glyph, colour = GLYPHS[mine.marker], variables()[mine.colour]
        made.append(Label(plan["strategy"], glyph, colour, shown, bought))
    return made


def _split(text: str) -> tuple[str, str]:
    """``8 (8-12)`` is a value and its band."""
    value, _, band = text.partition(" (")
    return value, band.removesuffix(")")


def _settings(document: Document, plan: Plan) -> tuple[str, str]:
    return f"{plan['strategy']}, {plan['gpu']}", own_settings(document, plan)


def _check(document: Document) -> dict[str, Any] | None:
    text = plan_evidence.check(document)
    if text is None:
        return None
    lines = [
        Line(Label(name, "", "", [], False), [(cell, "") for cell in cells])
        for name, cells in plan_evidence.percentiles(document)
    ]
    table = Table([], [f"{title}, ms" for title in plan_evidence.STATISTICS], [("", lines)])
    return {"text": text, "met": document["check"]["met"], "table": table if lines else None}


def _search(document: Document) -> Table | None:
    """Every candidate searched, the cheapest first."""
    rows: Sequence[Mapping[str, Any]] = document.get("search") or ()
    if not rows:
        return None
    cheapest = sorted(rows, key=_cost)[:MOST_CANDIDATES]
    lines = [Line(Label(row["strategy"], "", "", [], False), _candidate(row)) for row in cheapest]
    titles = ["GPU", "settings", "estimate, req/s", "capacity, req/s", "GPUs", "USD a day"]
    return Table([], titles, [("", lines)])


def _cost(row: Mapping[str, Any]) -> tuple[bool, float, float]:
    gpus, cost = row.get("gpus"), row.get("usd_per_day")
    return gpus is None, cost or 0.0, gpus or 0.0


def _candidate(row: Mapping[str, Any]) -> list[tuple[str, str]]:
    point = {key: value for key, value in row["settings"].items() if key != "hardware.gpu"}
    gpus = row.get("gpus")
    texts = [
        row["gpu"],
        describe.point(point) or MISSING,
        number(row.get("estimate_req_s")),
        number(row.get("capacity_req_s")),
        MISSING if gpus is None else str(gpus),
        money(row.get("usd_per_day")),
    ]
    return [(text, "") for text in texts]
