"""What ``speccast run --resume`` takes over from a folder: whole points of a grid."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from models.strict_yaml import InputError
from sim.manifest import manifest
from sim.output import FILES, tables_of
from sim.scenario.dump import resolved_yaml
from sim.scenario.load import ScenarioFile
from sim.tables import RunTable, run_names

KEY = ("strategy", "point", "replication")


class Earlier(NamedTuple):
    """Part of an earlier result.

    Attributes
    ----------
    folder : Path
    rows : list of dict
        Rows of the points that are complete, the first ones of the grid.
    points : list of mapping
        The varied values of each.
    """

    folder: Path
    rows: list[dict[str, Any]]
    points: list[dict[str, Any]]

    def tables(self, name: str) -> Iterator[tuple[RunTable, pa.Table]]:
        """Tables of these points in one file, in parts as they were written.

        Written again in this order, they make the same bytes.
        """
        points = {run_names(RunTable(p, "", 0, {}))["point"]: p for p in self.points}
        if not points:
            return
        with pq.ParquetFile(self.folder / name) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group)
                strategy, text, replication = (table.column(key)[0].as_py() for key in KEY)
                if text not in points:
                    return
                names = [
                    tuple(table.column(key).chunk(0).dictionary.to_pylist())
                    for key in ("stream", "domain")
                    if key in table.column_names
                ]
                yield RunTable(points[text], strategy, replication, {}, *names), table


NOTHING = Earlier(Path(), [], [])


def complete_points(folder: Path, scenario: ScenarioFile) -> Earlier:
    """Find what need not be simulated again.

    Parameters
    ----------
    folder : Path
        What ``--out`` names; where it holds no result, nothing is taken over.
    scenario : ScenarioFile

    Raises
    ------
    InputError
        If the folder holds the result of another scenario, of another version of speccast, Python
        or numpy, or of catalogue entries or files that have changed since, or a broken one.
    """
    tables = tables_of(scenario)
    if not all((folder / name).is_file() for name in (*FILES, *tables)):
        return NOTHING
    require_scenario(folder, resolved_yaml(scenario.resolved))
    try:
        summary = json.loads((folder / "summary.json").read_text("utf-8"))
        made_with = json.loads((folder / "manifest.json").read_text("utf-8"))
        same = made_with == manifest(summary)
        for name in tables:
            pq.read_metadata(folder / name)
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(str(folder), None, "--resume", f"holds no result: {error}") from None
    require_versions(folder, same)
    rows, points, taken = summary["rows"], [], 0
    for point in scenario.points:
        size = len(point.scenario.strategies)
        at_point = rows[taken : taken + size]
        if len(at_point) < size or any(row["point"] != point.values for row in at_point):
            break
        points.append(point.values)
        taken += size
    return Earlier(folder, rows[:taken], points)


def require_scenario(folder: Path, resolved: str) -> None:
    """Refuse a folder whose scenario.yaml is not this one."""
    if (folder / "scenario.yaml").read_text("utf-8") != resolved:
        raise InputError(str(folder), None, "--resume", "holds the result of another scenario")


def require_versions(folder: Path, same: bool) -> None:
    """Refuse a folder whose manifest is not what a result would have now."""
    if not same:
        what = "holds a result of other versions, catalogue entries or files"
        raise InputError(str(folder), None, "--resume", what)
