"""Residual rows of the catalogue, written anew from the errors of the measured runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from calibration.validation.residual_rules import PREFILL, RULES
from calibration.validation.residuals import Rule, Span, is_row_of, span
from models import catalog
from models.residuals import Residual
from sim.staging import staged

DECIMALS = 3


def texts(frame: pd.DataFrame) -> dict[str, str]:
    """Text of every file of the section ``residuals``, by name.

    Parameters
    ----------
    frame : DataFrame
        As ``residual_rules.figures`` makes it.
    """
    return {name: _text(name, frame) for name in catalog.names("residuals")}


def write(frame: pd.DataFrame, folder: Path) -> list[Path]:
    """Write those files; all appear together."""
    with staged(folder) as scratch:
        for name, text in texts(frame).items():
            (scratch / f"{name}.yaml").write_text(text, "utf-8")
        written = [folder / path.name for path in sorted(scratch.iterdir())]
        for path in written:
            (scratch / path.name).replace(path)
    return written


def _text(name: str, frame: pd.DataFrame) -> str:
    data = catalog.entry("residuals", name)
    lines = [f"{key}: {data[key]}" for key in ("name", "title", "source")]
    for section, rules in (("steps", RULES), ("prefill", PREFILL)):
        if section in data:
            lines += ["", f"{section}:"]
            lines += [_line(row, rules, frame) for row in data[section]]
    return "\n".join(lines) + "\n"


def _line(row: dict[str, Any], rules: Sequence[Rule], frame: pd.DataFrame) -> str:
    parsed = Residual.model_validate(row)
    for rule in rules:
        ends = span(rule, frame) if is_row_of(parsed, rule) else None
        if ends is not None:
            row |= {"lo": round(ends.lo, DECIMALS), "hi": round(ends.hi, DECIMALS)}
            row["source"] = _source(rule, ends)
    keys = [f"{key}: {_flow(value)}" for key, value in row.items() if key != "source"]
    return f"  - {{{', '.join(keys)},\n     source: {_quoted(row['source'])}}}"


def _source(rule: Rule, ends: Span) -> str:
    kinds = "models" if rule.group == "model" else "data sets"
    if rule.group == "workload" and rule.metric != "speedup":
        kinds = "pairs of lengths"
    figures = f"{ends.runs} figures of {ends.groups} {kinds}"
    return f"{rule.runs_of}; {figures}; where 90 % of another's should fall"


def _flow(value: Any) -> str:
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000)
    return text.removesuffix("...\n").strip().replace("'", '"')


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
