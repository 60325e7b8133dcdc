"""What happens and what it means: scenario, SimPy engine, tables, metrics, report, planning."""

from __future__ import annotations

from pathlib import Path

import models


def _require_our_models() -> None:
    """Refuse to run on another project's ``models`` package.

    Raises
    ------
    ImportError
        If ``models`` is not the folder beside this one.
    """
    ours = Path(__file__).resolve().parent.parent / "models"
    found = next(iter(getattr(models, "__path__", ())), None) or getattr(models, "__file__", None)
    if found is None or Path(found).resolve() != ours:
        raise ImportError(
            f"speccast needs its own package 'models' at {ours}, but Python found {found}; "
            "move that one off sys.path or run speccast in an environment of its own"
        )


_require_our_models()
