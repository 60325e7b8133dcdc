"""One sweep from its scenario to its table, with what is kept when it is cut off."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from sim.manifest import manifest
from sim.planning.sweep.run import OnPoints, Prepared, prepare, simulate, write_pages
from sim.planning.sweep.store import Store
from sim.planning.sweep.workers import Cluster, Processes
from sim.scenario.dump import resolved_yaml
from sim.scenario.load import Expansion


class Wanted(NamedTuple):
    """Where a sweep goes, and who simulates it.

    Attributes
    ----------
    folder : Path
        Goes on with what it holds.
    jobs : int
        Processes.
    dask : str or None
        Address of a scheduler, in place of processes.
    at : mapping
        The user's operating point, marked on the maps: values of varied keys.
    """

    folder: Path
    jobs: int = 1
    dask: str | None = None
    at: Mapping[str, float] = MappingProxyType({})


def sweep(
    expansion: Expansion, wanted: Wanted, on_points: OnPoints = lambda *_: None
) -> tuple[dict[str, Any], pa.Table]:
    """Simulate the points of a scenario into ``results.parquet``.

    Parameters
    ----------
    expansion : Expansion
        See ``sim.scenario.load.expand``.
    wanted : Wanted
    on_points : callable
        Called with (what goes on, points done, points to do); it may raise KeyboardInterrupt to
        stop.

    Returns
    -------
    The result document without rows, and the table, one row a point and strategy.

    Raises
    ------
    InputError
        If a point is no good, the folder holds another sweep, or there is no such cluster.
    SweepError
        If the sweep cannot go on; what is finished is kept.
    KeyboardInterrupt
        On the user's wish; its message says what is kept.
    """
    prepared = prepare(expansion, on_points)
    store = Store(wanted.folder, prepared.schema, len(prepared.variations))
    done = store.open(resolved_yaml(prepared.file.resolved), manifest(prepared.document))
    try:
        _simulate(prepared, done, wanted, store, on_points)
        finished = store.finished
        results = store.consolidate()
        if not finished or wanted.at:
            write_pages(wanted.folder, results, prepared.file, wanted.at)
            store.finish()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(*store.kept_message()) from None
    finally:
        store.close()
    document = {key: value for key, value in prepared.document.items() if key != "rows"}
    return document, results


def _simulate(
    prepared: Prepared, done: set[int], wanted: Wanted, store: Store, on_points: OnPoints
) -> None:
    left = len(prepared.variations) - len(done)
    if not left:
        return
    workers = Cluster(wanted.dask) if wanted.dask else Processes(min(wanted.jobs, left))
    with contextlib.closing(workers):
        simulate(prepared, done, workers, store, on_points)
