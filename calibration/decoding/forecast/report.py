"""Prediction against measurement, for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from calibration.decoding.autoregressive import BASELINE
from calibration.decoding.forecast import runs, steps
from calibration.decoding.forecast.constants import ENGINE
from calibration.validation.report import signed
from models import catalog
from sim.analysis.layout import Column, Group, Line, paragraph, render, table

if TYPE_CHECKING:
    from calibration.decoding.forecast.command import Comparison

MS = 1e3


def figures(comparison: Comparison) -> dict[str, Any]:
    """Errors in sum: of steps, prompts and whole runs."""
    single, cells, whole = comparison.steps, comparison.cells, comparison.runs
    drafted = whole[whole["strategy"] != BASELINE]
    found: dict[str, Any] = {
        "steps": len(single),
        "step_mape": steps.mape(single["forecast_s"], single["measured_s"]),
        "mean_step_mape": steps.mape(cells["forecast_s"], cells["measured_s"]),
        "mean_step_worst": float(cells["error"].abs().max()),
        "prefill_mape": steps.mape(
            comparison.prefills["forecast_s"], comparison.prefills["measured_s"]
        ),
    }
    for name in ("replayed", "fitted"):
        for what in ("tpot_s", "speedup"):
            pair = drafted[[f"{name}_{what}", f"measured_{what}"]].dropna()
            found[f"{name}_{what}_mape"] = steps.mape(pair.iloc[:, 0], pair.iloc[:, 1])
        right, told = runs.sides(drafted, name)
        found[f"{name}_sides"] = {"right": right, "told": told}
    return found


def as_json(comparison: Comparison) -> dict[str, Any]:
    """See `Comparison.as_json`."""
    return {
        "errors": figures(comparison),
        "constants_us": comparison.constants,
        "steps": _records(comparison.cells),
        "runs": _records(comparison.runs),
        "left_out": comparison.left_out,
    }


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain data: no NaN, no numbers of numpy."""
    return [
        {
            str(name): None if pd.isna(value) else getattr(value, "item", lambda v=value: v)()
            for name, value in row.items()
        }
        for row in frame.to_dict("records")
    ]


def text(comparison: Comparison, width: int, colour: bool) -> str:
    """See `Comparison.text`."""
    return render(_lines(comparison, width), colour)


def _lines(comparison: Comparison, width: int) -> Iterator[Line]:
    found = figures(comparison)
    yield Line("Mean decode step by strategy and domain, measured and forecast [ms]", "title")
    yield from _steps(comparison.cells, width)
    yield Line("")
    yield from paragraph(
        f"Mean steps: MAPE {_percent(found['mean_step_mape'])}, worst "
        f"{_percent(found['mean_step_worst'])}. {found['steps']} single steps: MAPE "
        f"{_percent(found['step_mape'])}. Prompts: MAPE {_percent(found['prefill_mape'])}.",
        width,
    )
    yield Line("")
    yield Line("Whole runs: time per output token and speedup over plain decoding", "title")
    yield from _runs(comparison.runs, width)
    yield Line("")
    for name, how in (("replayed", "recorded acceptance"), ("fitted", "acceptance of the fit")):
        sides = found[f"{name}_sides"]
        yield from paragraph(
            f"With {how}: TPOT MAPE {_percent(found[f'{name}_tpot_s_mape'])}, speedup MAPE "
            f"{_percent(found[f'{name}_speedup_mape'])}, right side of 1 "
            f"{sides['right']}/{sides['told']}.",
            width,
        )
    yield Line("")
    yield from paragraph(_note(comparison), width, "note")


def _note(comparison: Comparison) -> str:
    around = catalog.engine(ENGINE).draft_pass_us.value
    host = comparison.constants["host_speculative.per_step_us"] - around
    choosing = comparison.constants["sampling_us"]
    left = "".join(
        f" Not forecast: {label}, {reason}." for label, reason in comparison.left_out.items()
    )
    return (
        "Forecast from kernels timed one by one; of the runs only prompts, lengths, acceptance, "
        f"and of plain decoding the host ({host:.0f} us a step) and choosing a token "
        f"({choosing:.0f} us) enter. Side of 1: speedups measured more than 5 % from it.{left}"
    )


def _steps(cells: pd.DataFrame, width: int) -> Iterator[Line]:
    keys = _keys(cells)
    groups = [
        Group("", [Column("steps", [str(n) for n in cells["steps"]])]),
        Group(
            "step",
            [
                Column("measured", _ms(cells["measured_s"])),
                Column("forecast", _ms(cells["forecast_s"])),
                Column("error", [signed(value) for value in cells["error"]]),
            ],
        ),
    ]
    for part in steps.PARTS:
        columns = [
            Column(name, _ms(cells[f"{name}_{part}_s"])) for name in ("measured", "forecast")
        ]
        groups.append(Group(part, columns))
    yield from table(keys, groups, width, [False] * len(cells))


def _runs(found: pd.DataFrame, width: int) -> Iterator[Line]:
    names = ("measured", "replayed", "fitted")
    groups = [
        Group("tokens a step", [Column(n, _plain(found[f"{n}_tau"])) for n in names]),
        Group("TPOT [ms]", [Column(n, _ms(found[f"{n}_tpot_s"])) for n in names]),
        Group("speedup", [Column(n, _plain(found[f"{n}_speedup"])) for n in names]),
    ]
    yield from table(_keys(found), groups, width, [False] * len(found))


def _keys(frame: pd.DataFrame) -> Sequence[Column]:
    names = frame["strategy"].mask(frame["strategy"] == frame["strategy"].shift(), "")
    return [
        Column("  strategy", [f"  {name}" for name in names], left=True),
        Column("domain", list(frame["domain"]), left=True),
    ]


def _ms(seconds: pd.Series) -> list[str]:
    return ["-" if pd.isna(value) else f"{MS * value:.2f}" for value in seconds]


def _plain(values: pd.Series) -> list[str]:
    return ["-" if pd.isna(value) else f"{value:.2f}" for value in values]


def _percent(value: float) -> str:
    return "-" if pd.isna(value) else f"{100 * value:.1f} %"
