"""What ``speccast audit --out`` leaves: report.html, audit.md, audit.json and the pictures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from models.strict_yaml import InputError
from sim.analysis.palette import css
from sim.analysis.svg import inline
from sim.audit.report import arithmetic, cases_text, counts, sentence, tested
from sim.audit.words import banded_text, range_text
from sim.interrupts import held
from sim.output import to_json
from sim.staging import foreign, obstacle, staged

Finding = Mapping[str, Any]

HTML, MARKDOWN, JSON = FILES = ("report.html", "audit.md", "audit.json")
IMAGES = "images"


class Drawn(NamedTuple):
    """A picture as a file: the claim it is of, its name, what it shows, and its content."""

    id: str
    file: str
    label: str
    svg: bytes


def check_out(out: str | None, claims: Path) -> Path | None:
    """Refuse a folder that cannot be written, before anything is run.

    Raises
    ------
    InputError
        If it cannot be written, or would replace the claims or what no audit left.
    """
    if out is None:
        return None
    problem = None if out else "needs a folder, got ''"
    inputs = [claims] if claims.exists() else []
    problem = problem or obstacle(Path(out), FILES, *inputs)
    problem = problem or foreign(Path(out), "audit", FILES)
    problem = problem or obstacle(Path(out) / IMAGES, ["audit_.svg"], *inputs)
    if problem is not None:
        raise InputError(out, None, "--out", problem)
    return Path(out)


def write(document: Mapping[str, Any], folder: Path) -> None:
    """Write the page, the report and the pictures; all files appear together.

    Raises
    ------
    OSError
        If the disk refuses.
    """
    drawn = draw(document)
    images = folder / IMAGES
    with staged(images) as scratch:
        for each in drawn:
            (scratch / each.file).write_bytes(each.svg)
        (scratch / HTML).write_text(html(document, drawn), "utf-8")
        (scratch / MARKDOWN).write_text(markdown(document, drawn), "utf-8")
        (scratch / JSON).write_text(to_json(document), "utf-8")
        with held():
            for each in drawn:
                (scratch / each.file).replace(images / each.file)
            for name in FILES:
                (scratch / name).replace(folder / name)


def draw(document: Mapping[str, Any]) -> list[Drawn]:
    """Every picture of an audit; the same document gives the same bytes."""
    from sim.analysis import plots
    from sim.audit.pictures import pictures

    return [
        Drawn(made.id, f"audit_{made.name}.svg", made.label, plots.save(made.figure, "svg"))
        for made in pictures(document["claims"])
    ]


def markdown(document: Mapping[str, Any], drawn: Sequence[Drawn]) -> str:
    """The page as Markdown.

    Parameters
    ----------
    document : mapping
        What ``speccast audit --json`` prints.
    drawn : sequence of Drawn
    """
    text = (
        _environment(False)
        .get_template("audit.md.j2")
        .render(
            claims=[_shown(finding, drawn) for finding in document["claims"]],
            counts=counts(document["claims"]),
            images=IMAGES,
        )
    )
    return re.sub(r"\n{3,}", "\n\n", text)


def html(document: Mapping[str, Any], drawn: Sequence[Drawn]) -> str:
    """The report as one page that needs nothing else; parameters as of ``markdown``."""
    claims = []
    for finding in document["claims"]:
        shown = _shown(finding, drawn)
        shown["svgs"] = [
            inline(each.svg, each.file.removesuffix(".svg"), each.label)
            for each in shown["pictures"]
        ]
        claims.append(shown)
    return (
        _environment(True)
        .get_template("audit.html.j2")
        .render(
            claims=claims,
            counts=counts(document["claims"]),
            version=document["version"],
            light=css("light"),
            dark=css("dark"),
        )
        .lstrip()
    )


def _environment(escape: bool) -> Environment:
    made = Environment(
        loader=ChoiceLoader([PackageLoader("sim.audit"), PackageLoader("sim.analysis")]),
        autoescape=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["cell"] = lambda text: str(text).replace("|", "\\|")
    return made


def _shown(finding: Finding, drawn: Sequence[Drawn]) -> dict[str, Any]:
    """A claim as both pages tell it."""
    figures = tested(finding)
    titles = list(dict.fromkeys(figure["title"] for figure in figures))
    return {
        **{key: finding[key] for key in ("id", "claim", "setting", "source", "reading", "why")},
        "short": finding["verdict"]["short"],
        "sentence": sentence(finding),
        "figures": [_row(figure) for figure in figures],
        "varied": finding["varied"],
        "titles": titles,
        "cases": cases_text(finding) if len(finding["cases"]) > 1 else [],
        "arithmetic": arithmetic(finding),
        "pictures": [each for each in drawn if each.id == finding["id"]],
    }


def _row(figure: Mapping[str, Any]) -> dict[str, str]:
    where = ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in figure["point"].items())
    return {
        "title": f"{figure['title']} at {where}" if where else figure["title"],
        "claimed": range_text(figure["claimed"], figure["unit"]),
        "predicted": banded_text(figure),
        "agrees": {True: "yes", False: "no", None: "?"}[figure["agrees"]],
    }


__all__: Sequence[str] = ["Drawn", "check_out", "draw", "html", "markdown", "write"]
