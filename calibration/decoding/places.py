"""Files as a scenario beside recorded runs names them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from models import catalog


def seen_from(folder: Path, name: str, section: str = "") -> str:
    """A file as a scenario in ``folder`` names it.

    What is no file, such as a name of the catalogue, stays as it is.

    Parameters
    ----------
    folder : Path
    name : str
        Seen from here.
    section : str
        Of the catalogue, whose names go before files.
    """
    if (section and name in catalog.names(section)) or not Path(name).exists():
        return name
    path, own = Path(name).resolve(), folder.resolve()
    # What lies beside the runs moves with them.
    if not path.is_relative_to(own.parent):
        return str(path)
    seen = os.path.relpath(path, own)
    # A bare word would be looked up in the catalogue.
    return seen if "/" in seen or "." in seen else f"./{seen}"


def block_seen_from(folder: Path, block: dict[str, Any]) -> dict[str, Any]:
    """The block of a strategy whose draft is a file, one that wraps another included."""
    moved = dict(block)
    if "draft" in block:
        moved["draft"] = seen_from(folder, str(block["draft"]), "transformers")
    if "primary" in block:
        moved["primary"] = block_seen_from(folder, block["primary"])
    return moved


def seen_here(folder: Path, name: str) -> str:
    """The other way round: what a scenario in ``folder`` calls ``name``, from here."""
    there = folder / name
    return str(there) if there.exists() else name
