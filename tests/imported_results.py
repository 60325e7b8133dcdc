"""Results of other load generators, as they are and with values changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from calibration.live.imports import command
from calibration.live.imports.command import Given

DATA = Path(__file__).parent / "measured" / "live" / "imports"
NGRAM = "{kind: ngram, k: 4}"


def imported(*names: str | Path, **given: Any) -> command.Imported:
    return command.read_results([DATA / name for name in names], Given(**given))


def changed(tmp_path: Path, name: str, **values: Any) -> Path:
    """A copy of a measured result with other values; None takes a key out."""
    data = json.loads((DATA / name).read_text()) | values
    path = tmp_path / "changed.json"
    kept = {key: value for key, value in data.items() if value is not None}
    path.write_text(json.dumps(kept))
    return path
