"""Speculative decoding strategies: one file each, found by listing this folder."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from models.strategies.base import DraftPass, ExtraMemory, Strategy

__all__ = ["DraftPass", "ExtraMemory", "Strategy", "fixed_types", "strategy_types"]


@cache
def strategy_types() -> dict[str, type[Strategy]]:
    """Every strategy class by its ``kind``, in alphabetical order of the files."""
    found: dict[str, type[Strategy]] = {}
    for module in pkgutil.iter_modules(__path__):
        namespace = vars(importlib.import_module(f"{__name__}.{module.name}"))
        for item in namespace.values():
            if not (isinstance(item, type) and issubclass(item, Strategy)) or item is Strategy:
                continue
            kind = item.model_fields["kind"].default
            if isinstance(kind, str) and item.__module__ == f"{__name__}.{module.name}":
                found[kind] = item
    return found


def fixed_types() -> dict[str, type[Strategy]]:
    """Those whose sequences do the same in every step, by ``kind``."""
    return {kind: one for kind, one in strategy_types().items() if not one.switches}
