"""Report of a sweep: maps where two numbers vary, a line chart where one does, and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from sim.analysis import describe, map_figures, maps, plots
from sim.analysis.figures import Picture
from sim.analysis.html_report import environment
from sim.analysis.map_words import answer, lines, notes
from sim.analysis.palette import css
from sim.analysis.svg import inline
from sim.manifest import speccast_version
from sim.scenario.build import build
from sim.scenario.load import ScenarioFile

PAGE, PICTURES = "report.html", "figures"
TITLES = ("speedup (band)", "TPOT ms", "TTFT ms", "tok/s a GPU", "tau", "off below tau")


def write_report(
    folder: Path,
    results: pa.Table,
    scenario_file: ScenarioFile,
    at: Mapping[str, float] | None = None,
) -> list[str]:
    """Write ``report.html``, and every picture as SVG below ``figures``.

    Parameters
    ----------
    folder : Path
        An existing folder.
    results : pyarrow.Table
        A row a point and strategy, see ``maps.read``.
    scenario_file : ScenarioFile
        What was varied.
    at : mapping, optional
        The user's operating point: values of varied keys.

    Returns
    -------
    list of str
        Names of the files, relative to the folder.

    Raises
    ------
    OSError
        If the disk refuses.
    """
    sweep = maps.read(results)
    drawn = [
        (picture, plots.save(picture.figure, "svg"))
        for picture in map_figures.pictures(sweep, at or {})
    ]
    names = [PAGE]
    for picture, content in drawn:
        (folder / PICTURES).mkdir(exist_ok=True)
        names.append(f"{PICTURES}/{picture.name}.svg")
        (folder / names[-1]).write_bytes(content)
    page = _page(sweep, results, scenario_file, at or {}, drawn)
    (folder / PAGE).write_bytes(page.encode("utf-8", "replace"))
    return names


def _page(
    sweep: maps.Sweep,
    results: pa.Table,
    scenario_file: ScenarioFile,
    at: Mapping[str, float],
    drawn: Sequence[tuple[Picture, bytes]],
) -> str:
    scenario = build(scenario_file.points[0].scenario).shown(scenario_file.resolved)
    deployment = describe.deployment(scenario)
    rows = results.to_pylist()
    names = results.column_names
    varied = names[names.index("point") + 1 : names.index("strategy")]
    return (
        environment()
        .get_template("map_report.html.j2")
        .render(
            question=scenario_file.document.comment or deployment,
            answer=answer(sweep, at),
            notes=notes(sweep),
            deployment=deployment,
            load=describe.load(scenario),
            varied=describe.varied({name: row[name] for name in varied} for row in rows),
            pictures=[_figure(*each) for each in drawn],
            titles=TITLES,
            lines=lines(rows, varied),
            light=css("light"),
            dark=css("dark"),
            version=speccast_version(),
            seed=scenario_file.resolved.run.seed,
        )
        .lstrip()
    )


def _figure(picture: Picture, svg: bytes) -> dict[str, Any]:
    element = inline(svg, picture.name, f"{picture.title}. {picture.caption}")
    return {"title": picture.title, "caption": picture.caption, "svg": element}
