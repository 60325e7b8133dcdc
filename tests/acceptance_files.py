"""A small acceptance file, for the tests of files, of replays and of whole runs."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from models.acceptance_file import AcceptanceFile, dump

CODE = {
    "alpha_by_pos": [0.6, 0.55, 0.5],
    "spread": 0.3,
    "step_spread": 0.7,
    "step_memory": 0.6,
    "context_slope": -0.1,
    "context_reference": 400,
    "context_range": [100, 2000],
    "uncertainty": 0.02,
    "basis": "validated",
}
DATA: dict[str, Any] = {
    "version": 1,
    "title": "runs: of one's own",
    "target": "llama-3.1-8b",
    "date": "2026-01-31",
    "source": "no",
    "entries": {
        "draft": {
            "strategy": {"kind": "draft_model", "draft": "llama-3.2-1b", "k": 3},
            "tau": {"code": {"value": 2.0, "lo": 1.9, "hi": 2.1, "steps": 900, "requests": 16}},
            "standard_errors": {"code": {"alpha_by_pos": [0.01, 0.02, 0.02], "spread": None}},
            "acceptance": {"by_domain": {"code": CODE, "chat": {"tau": 1.5}}},
            "replay": {"code": {"accepted": ["0 3 1", "2", "1 0 0 2 3"]}},
        },
        "chains": {
            "strategy": {"kind": "medusa", "heads": 3},
            "acceptance": {"heads": [[0.5, 0.1], [0.4, 0.1], [0.3, 0.1]]},
            "standard_errors": {"code": {"heads": [[0.01, 0.01]]}},
        },
        "tree": {
            "strategy": {"kind": "medusa", "heads": 2, "tree": [[0], [1], [0, 0]]},
            "shape": {"drafted": 3, "depth": 2},
            "acceptance": {"by_domain": {"code": {"alpha_by_pos": [0.6, 0.3], "step_spread": 0}}},
            "replay": {"code": {"accepted": ["1 0 2", "0 1"]}},
        },
        "lookup": {
            "strategy": {"kind": "ngram", "k": 4},
            "acceptance": {"match_rate": 0.3, "match_stay": 0.8, "alpha_by_pos": [0.7]},
            "replay": {
                "code": {"accepted": ["0 4 1 0", "0"], "drafted": ["0 4 4 0", "4"]},
                "chat": {"accepted": ["0 0 2"], "drafted": ["0 0 4"]},
            },
        },
        "jacobi": {
            "strategy": {"kind": "lookahead", "w": 3, "n": 3, "g": 3, "found_share": 0.5},
            "shape": {"drafted": 11, "depth": 2},
            "acceptance": {"by_domain": {"code": {"alpha_by_pos": [0.4, 0.5], "step_spread": 0.5}}},
            "replay": {"code": {"accepted": ["0 2 1"], "drafted": ["5 11 7"]}},
        },
    },
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The data of the file with one value replaced, or a key added."""
    data = copy.deepcopy(DATA)
    *parents, last = path.split("/")
    inner = data
    for key in parents:
        inner = inner[key]
    inner[last] = value
    return data


def written(folder: Path, name: str = "acceptance.yaml") -> Path:
    """The file on disk."""
    path = folder / name
    path.write_text(dump(AcceptanceFile.model_validate(DATA)), encoding="utf-8")
    return path
