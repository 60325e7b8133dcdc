"""Every scalar fitted to runs of whole servers, and predictions by scalars fitted without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from calibration.validation import request_time, scalars
from calibration.validation.case import Case
from calibration.validation.predict import Outcome, predict
from calibration.validation.scalars import Fit, Fitted
from calibration.validation.suites import medusa_vllm_v0
from models import catalog
from models.gemm import US
from models.schema import Constant

STEP = "host_plain.per_step_us+host_speculative.per_step_us"
PASS = "draft_pass_us"
ENGINES = ("vllm_0.15", "vllm_0.10", "sglang_0.5", "vllm_v0", "tgi_2023")
"""Entries whose constants were fitted; others repeat them."""
DRAFT_LENGTH, BENCH, STEPS = "vLLM draft length", "SpecDecode-Bench", "SpecDecode-Bench steps"
FEW = ("1", "16")
"""Batches at which the host shows."""
READ = frozenset({"sampler"})
"""Fitted to timed kernels, not to servers."""


def vllm_host(cases: Sequence[Case]) -> dict[str, Fitted]:
    """Host time of a step and of a draft pass of vLLM V1, by the publication left out.

    Parameters
    ----------
    cases : sequence of Case
        Of the suite ``speculation``.

    Notes
    -----
    Speedups of EAGLE tell a draft pass, hardly a step, which plain decoding pays too; so without
    the times per token by draft length, host shares at batch 1 stand in for those.
    """
    lengths = [case for case in cases if case.origin == DRAFT_LENGTH and PASS in _touched(case)]
    bench = [case for case in cases if _replayed(case) and case.labels["batch"] in FEW]
    bench = [case for case in bench if case.labels["traces_of"] == "this run"]
    steps = [case for case in cases if case.origin == STEPS and case.labels["batch"] == "1"]
    steps = [case for case in steps if case.labels["strategy"] != "draft_model"]

    def fitted(*parts: Sequence[Case]) -> Fitted:
        used = [case for part in parts for case in part]
        fit = Fit((STEP, PASS), "vllm_0.10", used, ("tpot_s.mean", "speedup", "share.host"))
        return scalars.solve(fit, scalars.responses(fit))

    return {DRAFT_LENGTH: fitted(bench, steps), BENCH: fitted(lengths)}


def _touched(case: Case) -> set[str]:
    names = {part for name in case.fitted for part in name.split("+")}
    return names | {PASS} if "host_plain.per_step_us" in names else names


def _replayed(case: Case) -> bool:
    return (
        case.origin == BENCH and case.acceptance == "traces" and case.labels["strategy"] == "eagle"
    )


def without(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """Figures predicted with constants fitted without their publication, or without their model.

    Parameters
    ----------
    outcomes : sequence of Outcome
        Of all suites, predicted with the catalogue's constants.

    Returns
    -------
    DataFrame
        ``case``, ``metric``, ``predicted``, and the ``constant`` that was fitted anew.
    """
    rows = _request(outcomes)
    cases = list({o.case.name: o.case for o in outcomes if not o.case.anchor}.values())
    present = {case.origin for case in cases}
    host = vllm_host(cases) if {DRAFT_LENGTH, BENCH, STEPS} <= present else {}
    for case in cases if host else []:
        if case.origin == DRAFT_LENGTH and PASS in _touched(case):
            rows += _again(scalars.with_constants(case, host[DRAFT_LENGTH].values), PASS)
        elif _replayed(case):
            rows += _again(scalars.with_constants(case, host[BENCH].values), PASS)
    for case in medusa_vllm_v0.held_out() if medusa_vllm_v0.ORIGIN in present else []:
        rows += _again(case, "host_plain.per_step_us")
    return pd.DataFrame(rows, columns=["case", "metric", "predicted", "constant"])


def _again(case: Case, constant: str) -> list[dict[str, object]]:
    return [
        {
            "case": case.name.removesuffix(medusa_vllm_v0.HELD_OUT),
            "metric": outcome.metric,
            "predicted": outcome.predicted,
            "constant": constant,
        }
        for outcome in predict(case)
    ]


def _request(outcomes: Sequence[Outcome]) -> list[dict[str, object]]:
    """Times to first token move by what the constant moves by, and nothing else does."""
    served = [outcome for outcome in outcomes if request_time.CONSTANT in outcome.case.fitted]
    if not served:
        return []
    folds = request_time.leave_one_model_out(served).set_index("left_out")["request_us"]
    rows = []
    for outcome in served:
        model, case = outcome.case.labels["model"], outcome.case
        if not outcome.metric.startswith("ttft_s") or outcome.predicted is None:
            continue
        if not case.scores(outcome.metric):
            continue
        shipped = catalog.engine(case.labels["engine"]).request_us.value
        moved = outcome.predicted + (folds[model] - shipped) * US
        rows.append(
            {
                "case": case.name,
                "metric": outcome.metric,
                "predicted": moved,
                "constant": "request_us",
            }
        )
    return rows


def table(outcomes: Sequence[Outcome], held_out: pd.DataFrame) -> pd.DataFrame:
    """One row a scalar, as ``extras.Extras`` wants it.

    Parameters
    ----------
    outcomes : sequence of Outcome
        Of all suites.
    held_out : DataFrame
        As ``without`` gives it.
    """
    rows: dict[str, dict[str, object]] = {}
    for engine in ENGINES:
        for name, constant in _fitted(engine).items():
            if name not in rows:
                rows[name] = _row(engine, name, constant, outcomes, held_out)
    return pd.DataFrame(rows.values())


def _fitted(engine: str) -> Mapping[str, Constant]:
    constants = catalog.engine(engine).constants
    named = {
        name if engine != "vllm_v0" else f"{name} (V0)": constant
        for name, constant in constants.items()
        if constant.fitted_on and name.split(".")[0] not in READ
    }
    return named


def _row(
    engine: str,
    name: str,
    constant: Constant,
    outcomes: Sequence[Outcome],
    held_out: pd.DataFrame,
) -> dict[str, object]:
    bare = name.removesuffix(" (V0)")
    touched = [
        outcome
        for outcome in outcomes
        if outcome.relative is not None
        and outcome.case.scores(outcome.metric)
        and outcome.case.in_sample(outcome.metric)
        and bare in {part for names in outcome.case.fitted for part in names.split("+")}
        and outcome.case.labels.get("engine", "").startswith("vllm_v0") == (engine == "vllm_v0")
    ]
    return {
        "name": name,
        "value": constant.value,
        "unit": "us",
        "se": constant.se,
        "fitted_on": constant.fitted_on,
        "n": len(touched),
        "in_sample": _mape(touched),
        "held_out": _mape_held_out(touched, held_out),
        "source": constant.source,
    }


def _mape(touched: Sequence[Outcome]) -> float | None:
    off = [abs(o.relative) for o in touched if o.relative is not None and _is_relative(o)]
    return float(np.mean(off)) if off else None


def _mape_held_out(touched: Sequence[Outcome], held_out: pd.DataFrame) -> float | None:
    known = held_out.set_index(["case", "metric"])["predicted"].dropna().to_dict()
    off = [
        abs(known[o.case.name, o.metric] / o.measured - 1)
        for o in touched
        if _is_relative(o) and (o.case.name, o.metric) in known
    ]
    return float(np.mean(off)) if off else None


def _is_relative(outcome: Outcome) -> bool:
    """Shares of a step are compared in points, which do not add up with relative errors."""
    return not outcome.metric.startswith("share.")
