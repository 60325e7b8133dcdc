"""What notebooks call: results as tables and pictures, in a line each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pandas as pd
import pyarrow as pa

from models.strict_yaml import read_yaml
from sim.analysis import describe, html_report, map_figures, map_words, plots
from sim.analysis import maps as sweep_maps
from sim.analysis.layout import MISSING
from sim.experiment import Result
from sim.planning.sweep import whole
from sim.scenario.load import expand
from sim.scenario.vary import MAX_SWEEP
from sim.staging import staged

COLUMNS = {
    "speedup": ("speedup", None, 1.0),
    "TPOT ms": ("tpot_s", "mean", 1e3),
    "TPOT p95 ms": ("tpot_s", "p95", 1e3),
    "TTFT p95 ms": ("ttft_s", "p95", 1e3),
    "tok/s a GPU": ("tok_per_s_per_gpu", None, 1.0),
    "tau": ("tau", None, 1.0),
    "off below tau": ("break_even_tau", None, 1.0),
    "USD/M tok": ("usd_per_million_tokens", None, 1.0),
}
"""Column of a table: key of a row, statistic, and factor to the unit shown."""


class Shown(NamedTuple):
    """A picture that a notebook displays.

    Attributes
    ----------
    svg : str
        The picture.
    """

    svg: str

    def _repr_svg_(self) -> str:
        return self.svg


class Told(NamedTuple):
    """Text that a notebook displays.

    Attributes
    ----------
    markdown : str
    """

    markdown: str

    def _repr_markdown_(self) -> str:
        return self.markdown


class Drawn(Protocol):
    """A figure and the name of its file."""

    @property
    def name(self) -> str:
        """Without ending."""

    @property
    def figure(self) -> Any:
        """A matplotlib figure."""


def show(figure: Any) -> Shown:
    """A matplotlib figure as a notebook displays it; the same figure gives the same bytes."""
    return Shown(plots.save(figure, "svg").decode("utf-8"))


def gallery(pictures: Iterable[Drawn]) -> dict[str, Shown]:
    """Pictures by name, such as those of ``sim.analysis.figures.pictures``."""
    return {picture.name: show(picture.figure) for picture in pictures}


def pictures(result: Result) -> dict[str, Shown]:
    """Every picture of a run's report, by name."""
    from sim.analysis import figures

    return gallery(figures.pictures(result.document, result.requests, result.timelines))


def table(document: Mapping[str, Any]) -> pd.DataFrame:
    """Main figures of a run, a line a strategy and point; a dash where there is none.

    Parameters
    ----------
    document : mapping
        ``Result.document``.

    Returns
    -------
    DataFrame
        Index: what varied, and the strategy. Columns: those of ``COLUMNS``, and the SLO's.
    """
    lines = []
    for row in document["rows"]:
        line: dict[str, Any] = {"strategy": row["strategy"]}
        if row["point"]:
            line = {"at": describe.point(row["point"]), **line}
        for title, (key, statistic, factor) in COLUMNS.items():
            value = row[key] if statistic is None else row[key][statistic]
            line[title] = None if value is None else factor * float(value)
        if row["slo"]:
            line["within SLO %"] = 100 * row["slo"]["attainment"]
        lines.append(line)
    index = [name for name in ("at", "strategy") if lines and name in lines[0]]
    return plain(pd.DataFrame(lines).set_index(index), 2)


def plain(frame: pd.DataFrame, digits: int) -> pd.DataFrame:
    """Numbers rounded, a dash where there is none."""
    rounded = frame.astype(float).round(digits)
    return rounded.astype(object).where(rounded.notna(), MISSING)


def verdicts(document: Mapping[str, Any]) -> Told:
    """What each row of a run comes to, in a sentence."""
    lines = []
    for row in document["rows"]:
        at = f" at {describe.point(row['point'])}" if row["point"] else ""
        lines.append(f"- **{row['strategy']}**{at}: {row['verdict']}.")
    return Told("\n".join(lines))


def report(result: Result, folder: str | Path) -> Path:
    """Write the report of a run as one HTML page, and return its path.

    Raises
    ------
    OSError
        If the disk refuses.
    """
    page = Path(folder) / "report.html"
    with staged(page.parent) as scratch:
        html_report.write_report(scratch, result.document, result.requests, result.timelines)
        (scratch / page.name).replace(page)
    return page


def sweep(
    path: str | Path, folder: str | Path, overrides: Sequence[str] = (), jobs: int = 1
) -> pa.Table:
    """Simulate every point of a scenario's ``vary``, as ``speccast sweep`` does.

    Parameters
    ----------
    path : path-like
        The scenario.
    folder : path-like
        Where points are kept as they end; points that are there already are not simulated again.
    overrides : sequence of str
        ``key=value`` each.
    jobs : int
        Processes.

    Returns
    -------
    pyarrow.Table
        A row a point and strategy.
    """
    expansion = expand(read_yaml(path), overrides, MAX_SWEEP)
    _, results = whole.sweep(expansion, whole.Wanted(Path(folder), jobs))
    return results


def maps(results: pa.Table, at: Mapping[str, float] | None = None) -> dict[str, Shown]:
    """Maps of a sweep by name, an operating point marked.

    Parameters
    ----------
    results : pyarrow.Table
        From ``sweep``.
    at : mapping, optional
        Values of varied keys.
    """
    return gallery(map_figures.pictures(sweep_maps.read(results), at or {}))


def answer(results: pa.Table, at: Mapping[str, float] | None = None) -> str:
    """What a sweep says at an operating point, or over all points; parameters as of ``maps``."""
    return map_words.answer(sweep_maps.read(results), at or {})
