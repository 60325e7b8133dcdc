"""Measured figures of ``calibration/data``, row by row."""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files


@cache
def _rows(name: str) -> tuple[dict[str, str], ...]:
    text = files("calibration").joinpath("data", *name.split("/")).read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def read(name: str) -> list[dict[str, str]]:
    """Rows of a CSV file of ``calibration/data``, such as ``serving/vllm_0.15.csv``."""
    return [dict(row) for row in _rows(name)]
