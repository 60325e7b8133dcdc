"""The folder ``speccast run --out`` leaves: scenario, tables, summary and manifest."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from models import catalog
from models.strict_yaml import InputError
from sim.tables import REQUESTS, STEPS, ParquetFile, RunTable, run_to_arrow


def check_folder(folder: Path) -> None:
    """Refuse a folder that cannot be written, before anything is simulated.

    Raises
    ------
    InputError
        If ``folder`` or a parent of it is a file, or may not be written to.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise InputError(str(folder), None, "--out", f"needs a folder, got the file '{existing}'")
    if not os.access(existing, os.W_OK):
        raise InputError(str(folder), None, "--out", f"may not write to '{existing}'")


def write_folder(
    folder: Path,
    scenario: str,
    document: Mapping[str, Any],
    requests: Iterable[RunTable],
    steps: Iterable[RunTable],
) -> None:
    """Write all files of one result, or none: they move into ``folder`` when all are complete.

    Files: scenario.yaml, requests.parquet, steps.parquet, summary.json, manifest.json. The same
    result gives the same bytes.

    Parameters
    ----------
    folder : Path
        Created where it is missing; files of an earlier result are replaced.
    scenario : str
        The resolved scenario as YAML.
    document : mapping
        The result document, which becomes summary.json.
    requests, steps : iterable of RunTable
        The tables of every run, written one after another.

    Raises
    ------
    OSError
        If the disk refuses.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        (staging / "scenario.yaml").write_text(scenario, "utf-8")
        _write_runs(staging / "requests.parquet", REQUESTS, requests)
        _write_runs(staging / "steps.parquet", STEPS, steps)
        (staging / "summary.json").write_text(to_json(document), "utf-8")
        (staging / "manifest.json").write_text(to_json(manifest(document)), "utf-8")
        folder.mkdir(exist_ok=True)
        for file in sorted(staging.iterdir()):
            file.replace(folder / file.name)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _write_runs(path: Path, schema: pa.Schema, runs: Iterable[RunTable]) -> None:
    with ParquetFile(path, schema) as file:
        for run in runs:
            file.write(run_to_arrow(schema, run))


def to_json(document: Mapping[str, Any]) -> str:
    """A document as indented JSON with a final newline.

    Raises
    ------
    ValueError
        If a number is NaN or infinite: JSON has neither.
    """
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def speccast_version() -> str:
    """Version of the installed distribution; "unknown" when run from a bare source tree."""
    try:
        return version("speccast")
    except PackageNotFoundError:
        return "unknown"


def manifest(document: Mapping[str, Any]) -> dict[str, Any]:
    """What a result rests on: versions, seed, profile, and a digest of each catalogue entry."""
    return {
        "speccast": speccast_version(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "seed": document["seed"],
        "profile": document["profile"],
        "catalogue": {
            section: {name: _digest(section, name) for name in sorted(names)}
            for section, names in _entries_named(document).items()
        },
    }


def _digest(section: str, name: str) -> str:
    text = json.dumps(catalog.entry(section, name), sort_keys=True, default=str)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _entries_named(document: Mapping[str, Any]) -> dict[str, set[str]]:
    """Catalogue entries named in the scenario or used by default."""
    used = [row.get("acceptance_entries", []) for row in document["rows"]]
    words = {*_words(document["scenario"]), *_words(used), document["profile"]}
    return {section: words & set(catalog.names(section)) for section in _FILED}


_FILED = ("hardware", "transformers", "engines", "profiles", "acceptance")


def _words(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _words(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _words(part)
