"""The folder ``speccast run --out`` leaves: scenario, tables, summary and manifest."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import platform
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from models import catalog
from models.strict_yaml import InputError
from sim.tables import REQUESTS, STEPS, ParquetFile, RunTable, run_to_arrow

FILES = ("scenario.yaml", "requests.parquet", "steps.parquet", "summary.json", "manifest.json")


def check_folder(folder: str, scenario: Path) -> Path:
    """Refuse a folder that cannot be written, before anything is simulated.

    Parameters
    ----------
    folder : str
        As the user gave it.
    scenario : Path
        The input file, which a result may not replace.

    Raises
    ------
    InputError
        If ``folder`` or a parent of it is a file, it cannot be made or written to, or a file to
        be written is the input or a folder.
    """
    path = Path(folder)
    try:
        problem = "needs a folder, got ''" if not folder else _obstacle(path, scenario)
        if problem is None:
            with _staging(path) as staging:
                for name in FILES:
                    (staging / name).touch()
    except (OSError, ValueError) as error:
        problem = f"cannot write there: {getattr(error, 'strerror', None) or error}"
    if problem is not None:
        raise InputError(folder, None, "--out", problem)
    return path


def _obstacle(folder: Path, scenario: Path) -> str | None:
    """What is in the way of writing a result, if anything is."""
    places = (folder, *folder.absolute().parents)
    existing = next(path for path in places if path.exists() or path.is_symlink())
    if not existing.is_dir():
        kind = "file" if existing.exists() else "dangling link"
        return f"needs a folder, got the {kind} '{existing}'"
    for target in (folder / name for name in FILES):
        if target.is_dir():
            return f"would replace the folder '{target}'"
        if target.exists() and target.samefile(scenario):
            return f"would replace the input file '{target}'"
    return None


@contextlib.contextmanager
def _staging(folder: Path) -> Iterator[Path]:
    """Scratch folder inside ``folder``, which is made; what stays empty is removed again."""
    absolute = folder.absolute()
    places = (absolute, *absolute.parents)
    made = list(itertools.takewhile(lambda path: not path.exists(), places))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".speccast.", dir=folder))
        try:
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    finally:
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()


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
    with _staging(folder) as staging:
        (staging / "scenario.yaml").write_text(scenario, "utf-8")
        _write_runs(staging / "requests.parquet", REQUESTS, requests)
        _write_runs(staging / "steps.parquet", STEPS, steps)
        (staging / "summary.json").write_text(to_json(document), "utf-8")
        (staging / "manifest.json").write_text(to_json(manifest(document)), "utf-8")
        for name in FILES:
            (staging / name).replace(folder / name)


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
        **{key: document[key] for key in ("trace", "traces") if key in document},
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
    return {section: words & set(catalog.names(section)) for section in catalog.SECTIONS}


def _words(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _words(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _words(part)
