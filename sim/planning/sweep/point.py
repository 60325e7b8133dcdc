"""One point of a sweep, simulated wherever a worker runs: what goes in, and what comes out."""

from __future__ import annotations

import io
import platform
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from models.schema import ModelError
from models.strict_yaml import InputError
from sim.manifest import speccast_version
from sim.scenario.load import Expansion, ScenarioFile
from sim.scenario.vary import Unfolded, Variation


class Versions(NamedTuple):
    """What numbers depend on beside the scenario."""

    speccast: str
    python: str
    numpy: str

    def __str__(self) -> str:
        return f"speccast {self.speccast}, Python {self.python}, numpy {self.numpy}"


@dataclass(frozen=True)
class Task:
    """One point to simulate.

    Attributes
    ----------
    number : int
        From 0, in order of points.
    expansion : Expansion
        The scenario, without ``vary`` and with the absolute name of its file.
    variation : Variation
        What this point sets.
    schema : pyarrow.Schema
    versions : Versions
        Of the program that asks.
    """

    number: int
    expansion: Expansion
    variation: Variation
    schema: pa.Schema
    versions: Versions


class Done(NamedTuple):
    """The rows of a point, as a Parquet file."""

    number: int
    content: bytes


class Failed(NamedTuple):
    """Why a point has no rows.

    Attributes
    ----------
    number : int
    message : str
        One line.
    bad_input : bool
    """

    number: int
    message: str
    bad_input: bool


def versions() -> Versions:
    """What runs here."""
    return Versions(speccast_version(), platform.python_version(), np.__version__)


def light(expansion: Expansion) -> Expansion:
    """A scenario as workers need it: small to send, and the same in any folder."""
    data = {key: value for key, value in expansion.document.data.items() if key != "vary"}
    path = str(Path(expansion.document.path).absolute())
    document = replace(expansion.document, data=data, path=path, lines={})
    return replace(expansion, document=document, unfolded=Unfolded())


def simulate_point(task: Task) -> Done | Failed:
    """Simulate all strategies of a point. Never raises: not every error can be sent back."""
    here = versions()
    if here != task.versions:
        what = f"a worker runs {here}; the sweep needs {task.versions}"
        return Failed(task.number, what, bad_input=True)
    try:
        return Done(task.number, _parquet(_rows(task)))
    except (InputError, ModelError) as error:
        return Failed(task.number, str(error), bad_input=True)
    except Exception as error:
        return Failed(task.number, f"{type(error).__name__}: {error}", bad_input=False)


def _rows(task: Task) -> pa.Table:
    from sim import experiment
    from sim.planning.sweep.columns import flat, table_of

    point = task.expansion.point(task.variation)
    file = ScenarioFile(task.expansion.document, (point,), point.scenario)
    rows = experiment.run(file, tables=()).document["rows"]
    return table_of(flat(rows, task.number), task.schema)


def _parquet(table: pa.Table) -> bytes:
    """A file that is read once more, and soon: as little beside the values as may be."""
    sink = io.BytesIO()
    plain = {"use_dictionary": False, "write_statistics": False, "store_schema": False}
    pq.write_table(table, sink, compression="none", **plain)
    return sink.getvalue()
