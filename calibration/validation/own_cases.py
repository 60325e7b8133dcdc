"""Measured runs of one's own, from a CSV file: a row a run, its scenario in a file beside it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from calibration.validation.case import Acceptance, Case, Suite
from calibration.validation.groups import KERNEL, LABELS, LATENCIES, PARTS, WHOLE
from models.strategies import Strategy
from models.strict_yaml import InputError, load_yaml, read_bytes, show
from sim.analysis.metrics import Summary
from sim.scenario.dump import resolved_yaml
from sim.scenario.load import load_scenario
from sim.scenario.schema import Scenario

REQUIRED = ("name", "scenario")
OPTIONAL = ("set", "anchor", "origin", "source", *LABELS)
METRICS = (
    *(name for name in WHOLE if name != KERNEL),
    *(f"{name}.{statistic}" for name in LATENCIES for statistic in Summary._fields),
    *(f"share.{part}" for part in PARTS),
)
ORIGIN = "own runs"
MOST_ROWS = 10_000


class _Row(NamedTuple):
    """One row, and where it stands for messages."""

    file: str
    line: int
    cells: dict[str, str]

    def error(self, key: str, message: str) -> InputError:
        return InputError(self.file, self.line, key, message)


def read(path: Path) -> list[Case]:
    """Cases of a CSV file.

    Columns: ``name``, unique; ``scenario``, a file relative to this one; optionally ``set``,
    overrides as ``--set`` takes them, parted by ``;``; ``anchor``, the name of the row whose
    speedup fixes tau; ``origin``, ``source`` and labels. Every other column is a metric in SI
    units, such as ``ttft_s.mean`` [s] or ``speedup``; an empty cell was not measured.

    Parameters
    ----------
    path : Path

    Raises
    ------
    InputError
        In one line with file and line, for anything wrong.
    """
    rows = _rows(path)
    cases = [_case(row, path.parent) for row in rows]
    known: dict[str, int] = {}
    for row, case in zip(rows, cases, strict=True):
        if case.name in known:
            raise row.error("name", f"{show(case.name)} is already in line {known[case.name]}")
        known[case.name] = row.line
    anchors = {case.anchor for case in cases if case.anchor}
    # The row others name is an anchor, whether or not it says so itself.
    cases = [
        replace(case, anchor=case.name, acceptance="batch 1")
        if case.name in anchors and not case.anchor
        else case
        for case in cases
    ]
    for row, case in zip(rows, cases, strict=True):
        if case.anchor and case.anchor not in known:
            raise row.error("anchor", f"must be the name of a row, got {show(case.anchor)}")
        if case.name in anchors and "speedup" not in case.measured:
            raise row.error("speedup", f"{show(case.name)} is an anchor, so it needs one")
        if case.name in anchors and case.anchor != case.name:
            raise row.error("anchor", f"must be its own name, {show(case.name)}: others use it")
    return cases


def _rows(path: Path) -> list[_Row]:
    name = str(path)
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(name, None, "", f"cannot read: {reason}") from None
    reader = csv.reader(io.StringIO(text), strict=True)
    try:
        header = next(reader, [])
        _check_header(_Row(name, 1, {}), header)
        rows = list(_body(name, header, reader))
    except csv.Error as error:
        raise InputError(name, reader.line_num, "", f"is not valid CSV: {error}") from None
    if not rows:
        raise InputError(name, None, "", "has no row below its header")
    return rows


def _check_header(head: _Row, header: list[str]) -> None:
    for column in REQUIRED:
        if column not in header:
            raise head.error(column, "is missing: the first line names the columns")
    for column in header:
        if header.count(column) > 1:
            raise head.error(column, "is there twice")
        if column not in (*REQUIRED, *OPTIONAL, *METRICS):
            raise head.error(
                column, "is no column; a metric is speedup, tok_per_s, duration_s or as ttft_s.mean"
            )


def _body(name: str, header: list[str], reader: Any) -> Iterator[_Row]:
    for cells in reader:
        line = reader.line_num
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            problem = f"has {len(cells)} cells, its header {len(header)}"
            raise InputError(name, line, "", problem)
        yield _Row(name, line, dict(zip(header, map(str.strip, cells), strict=True)))


def _case(row: _Row, folder: Path) -> Case:
    cells = row.cells
    for column in REQUIRED:
        if not cells[column]:
            raise row.error(column, "is empty")
    measured = {name: _figure(row, name) for name in METRICS if cells.get(name)}
    if not measured:
        raise row.error("", "has no figure: every metric is empty")
    scenario = _scenario(row, folder / cells["scenario"])
    strategy = _measured(row, scenario, "speedup" in measured)
    acceptance: Acceptance = "none" if not strategy.drafted else "assumed"
    labels = {
        "model": scenario.model.transformer,
        "tp": str(scenario.model.tp),
        "engine": scenario.engine.name,
        "strategy": strategy.kind,
    }
    suite: Suite = "speculation" if strategy.drafted else "serving"
    return Case(
        name=cells["name"],
        suite=suite,
        origin=cells.get("origin") or ORIGIN,
        source=cells.get("source") or row.file,
        labels=labels | {name: cells[name] for name in LABELS if cells.get(name)},
        scenario=load_yaml(resolved_yaml(scenario), row.file).data,
        measured=measured,
        acceptance="batch 1" if cells.get("anchor") else acceptance,
        anchor=cells.get("anchor", ""),
    )


def _measured(row: _Row, scenario: Scenario, is_speedup: bool) -> Strategy:
    """The one strategy a row speaks of: the drafted one, or else plain decoding."""
    drafted = [strategy for strategy in scenario.strategies if strategy.drafted]
    if len(drafted) > 1:
        names = ", ".join(strategy.name for strategy in drafted)
        raise row.error("scenario", f"must have one strategy besides plain decoding, got {names}")
    if not drafted and (is_speedup or row.cells.get("anchor")):
        raise row.error("scenario", "has plain decoding alone: no speedup over it, no acceptance")
    return scenario.strategies[-1]


def _figure(row: _Row, name: str) -> float:
    text = row.cells[name]
    try:
        value = float(text)
    except ValueError:
        raise row.error(name, f"must be a number, got {show(text)}") from None
    if not 0 < value < float("inf"):
        raise row.error(name, f"must be above 0, got {show(text)}")
    return value


def _scenario(row: _Row, path: Path) -> Scenario:
    sets = [part.strip() for part in row.cells.get("set", "").split(";") if part.strip()]
    try:
        loaded = load_scenario(path, sets)
    except InputError as error:
        raise row.error("scenario", str(error)) from None
    if len(loaded.points) > 1:
        raise row.error("scenario", f"must be one point, got {len(loaded.points)} of its vary")
    return loaded.points[0].scenario
