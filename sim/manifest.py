"""What a result rests on: versions, seed, profile, and digests of the catalogue entries used."""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from models import catalog


def speccast_version() -> str:
    """Version of the installed distribution; "unknown" when run from a bare source tree."""
    try:
        return version("speccast")
    except PackageNotFoundError:
        return "unknown"


def manifest(document: Mapping[str, Any]) -> dict[str, Any]:
    """What a result rests on: versions, seed, profile, digests of catalogue entries and files."""
    return {
        "speccast": speccast_version(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "seed": document["seed"],
        "profile": document["profile"],
        **{key: document[key] for key in ("trace", "traces") if key in document},
        **({"interrupted": True} if document.get("interrupted") else {}),
        "catalogue": {
            section: {name: _digest(section, name) for name in sorted(names)}
            for section, names in _entries_named(document).items()
        },
        "files": _file_digests([document["scenario"], document.get("kernel_table")]),
    }


def _digest(section: str, name: str) -> str:
    text = json.dumps(catalog.entry(section, name), sort_keys=True, default=str)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _file_digests(named: Sequence[Any]) -> dict[str, str]:
    """Digests of the files named anywhere in some data."""
    found = {}
    for word in sorted(set(_words(named))):
        path = Path(word)
        # A word may be no name of a file at all: too long, or with a null byte.
        with contextlib.suppress(OSError, ValueError):
            if path.is_absolute() and path.is_file():
                with path.open("rb") as file:
                    found[word] = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _entries_named(document: Mapping[str, Any]) -> dict[str, set[str]]:
    """Catalogue entries named in the scenario or used by default; bands rest on all residuals."""
    used = [row.get("acceptance_entries", []) for row in document["rows"]]
    words = {*_words(document["scenario"]), *_words(used), document["profile"]}
    named = {section: words & set(catalog.names(section)) for section in catalog.SECTIONS}
    return named | {"residuals": set(catalog.names("residuals"))}


def _words(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _words(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _words(part)
