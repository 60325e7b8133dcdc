"""Measured figures of ``calibration/data``, row by row."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files


@cache
def _rows(name: str) -> tuple[dict[str, str], ...]:
    text = files("calibration").joinpath("data", *name.split("/")).read_text(encoding="utf-8")
    rows = tuple(csv.DictReader(text.splitlines()))
    if any(None in row or None in row.values() for row in rows):
        raise ValueError(f"calibration/data/{name}: a row has not as many cells as the head")
    return rows


def read(name: str) -> list[dict[str, str]]:
    """Rows of a CSV file of ``calibration/data``, such as ``serving/vllm_0.15.csv``."""
    return [dict(row) for row in _rows(name)]
