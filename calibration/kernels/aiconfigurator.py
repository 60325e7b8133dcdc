"""NVIDIA's measured kernel tables, read from the installed package ``aiconfigurator-core``.

The package keeps Parquet files under ``systems/data/<system>/<family>/<engine>/<version>/``. They
are read where they are; nothing of them is copied.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
from packaging.version import InvalidVersion, Version

from calibration.kernels import rows
from calibration.kernels.aiconfigurator_tables import NCCL, TABLES
from calibration.kernels.input_columns import nearest, read_parquet, require
from models.schema import ModelError

PACKAGE = "aiconfigurator-core"


def systems(root: Path | None = None) -> list[str]:
    """Names of the systems that have tables, in alphabetical order.

    Parameters
    ----------
    root : Path, optional
        Folder to read instead of the installed package's.

    Raises
    ------
    RuntimeError
        If the package is not installed.
    """
    data = _data(root)
    return sorted({path.parts[len(data.parts)] for path in data.rglob("*.parquet")})


def versions(system: str, root: Path | None = None) -> dict[str, list[str]]:
    """Operations a system has tables of, by ``engine/version``, older versions first.

    Raises
    ------
    ModelError
        If there is no such system; it lists those that are there.
    """
    data = _data(root)
    known = systems(root)
    if system not in known:
        hint = nearest(system, known)
        raise ModelError(f"no kernel tables of '{system}'; there are {', '.join(known)}{hint}")
    found: dict[tuple[str, str], list[str]] = {}
    for table in TABLES:
        for path in data.glob(f"{system}/{table.family}/*/*/{table.file}"):
            engine, release = path.parts[-3:-1]
            if table.file != NCCL or engine == "nccl":
                operations = found.setdefault((engine, release), [])
                operations += [table.operation] * (table.operation not in operations)
    order = sorted(found, key=lambda key: (key[0], _newness(key[1])))
    return {f"{engine}/{release}": found[engine, release] for engine, release in order}


def read(system: str, engine: str, release: str, root: Path | None = None) -> pd.DataFrame:
    """Every timed kernel of one engine version on one system, one row each.

    Parameters
    ----------
    system : str
        Such as ``h100_sxm``; see ``systems``.
    engine, release : str
        Such as ``vllm`` and ``0.24.0``; see ``versions``. The version must have GEMM tables.
    root : Path, optional
        Folder to read instead of the installed package's.

    Returns
    -------
    DataFrame
        Columns of ``sim.kernel_rows.KERNELS``. An operation this version lacks comes from the
        newest version of the engine before it, as its ``version`` says; NCCL's collectives come
        from its newest. Attention with a sliding window and experts spread over several GPUs are
        left out.

    Raises
    ------
    ModelError
        If there is no such system or version; it lists those that are there.
    InputError
        If a file cannot be read, lacks a column, or holds text or a negative number for a count
        or time.
    RuntimeError
        If the package is not installed.
    """
    data = _data(root)
    _check_version(system, engine, release, versions(system, root))
    parts = []
    for table in TABLES:
        owner = "nccl" if table.file == NCCL else engine
        path = _newest(data / system / table.family / owner, table.file, owner, engine, release)
        if path is None:
            continue
        raw = read_parquet(path)
        require(raw, (*table.columns, "latency"), path)
        part = table.read(raw, path)
        part["device"], part["engine"], part["version"] = system, owner, path.parent.name
        part["source"] = f"{_package(root)} {path.relative_to(data)}".strip()
        parts.append(part)
    return rows.join(parts)


def _data(root: Path | None) -> Path:
    """Folder of the tables; the package is looked up, not imported."""
    if root is not None:
        return root
    spec = find_spec("aiconfigurator_core")
    if spec is None or spec.origin is None:
        raise RuntimeError(
            "NVIDIA's kernel tables need the extra 'tables': pip install 'speccast[tables]'"
        )
    return Path(spec.origin).parent / "systems" / "data"


def _package(root: Path | None) -> str:
    try:
        return "" if root is not None else f"{PACKAGE} {version(PACKAGE)}"
    except PackageNotFoundError:
        return PACKAGE


def _newness(release: str) -> tuple[Version, str]:
    try:
        return Version(release), release
    except InvalidVersion:
        return Version("0"), release


def _check_version(system: str, engine: str, release: str, there: dict[str, list[str]]) -> None:
    asked = f"{engine}/{release}"
    usable = [name for name, operations in there.items() if "gemm" in operations]
    if asked in usable:
        return
    only = f" has no GEMM tables, only {', '.join(there[asked])}" if asked in there else ""
    what = f"{asked} of {system}{only}" if only else f"no kernel tables of {asked} for {system}"
    raise ModelError(f"{what}; there are {', '.join(usable)}{nearest(asked, usable)}")


def _newest(folder: Path, file: str, owner: str, engine: str, release: str) -> Path | None:
    """Path of the newest version of a file, not newer than the one asked for."""
    last = _newness(release)
    paths = folder.glob(f"*/{file}")
    usable = [p for p in paths if owner != engine or _newness(p.parent.name) <= last]
    return max(usable, key=lambda path: _newness(path.parent.name), default=None)
