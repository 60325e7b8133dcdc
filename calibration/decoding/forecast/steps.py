"""Every recorded step predicted by itself: its context and width are known, its time is not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from calibration.decoding.forecast.constants import argmax_s
from calibration.decoding.forecast.recorded import Recorded
from models.gemm import US
from models.step_time import StepTime

PARTS = ("draft", "verify", "sample", "host")


class Forecast(NamedTuple):
    """One step, or the mean of several [s]."""

    draft_s: float
    verify_s: float
    sample_s: float
    host_s: float


def frame(recorded: Recorded, times: Mapping[str, StepTime]) -> pd.DataFrame:
    """Measured and predicted time of every decode step.

    Parameters
    ----------
    recorded : Recorded
    times : mapping
        Step times by label; steps of other strategies are left out.

    Returns
    -------
    DataFrame
        A row a step: ``strategy``, ``domain``, ``request``, ``context``, ``width``, and for each
        of the parts and their sum ``measured_*_s`` and ``forecast_*_s``.
    """
    own = recorded.steps[recorded.steps["strategy"].isin(list(times))]
    forecasts = [
        forecast(times[label], int(context), int(width))
        for label, context, width in zip(own["strategy"], own["context"], own["width"], strict=True)
    ]
    found = own[["strategy", "domain", "request", "context", "width"]].copy()
    for part in PARTS:
        found[f"measured_{part}_s"] = own[f"{part}_s"]
        found[f"forecast_{part}_s"] = [getattr(one, f"{part}_s") for one in forecasts]
    found["measured_s"] = own["duration_s"]
    found["forecast_s"] = [sum(one) for one in forecasts]
    return found.reset_index(drop=True)


def forecast(time: StepTime, context: int, width: int) -> Forecast:
    """A step of one sequence as the simulator prices it, in the parts that runs record."""
    engine, target = time.deployed.engine, time.deployed.target
    whole = time.mixed(1, context, width, width * context)
    draft = time.draft_s(1, width, context, width * context, 0.0)
    host = time.host_s(1, width - 1)
    # The arg-max of every verified row is in the price of the LM head, choosing in the host's, and
    # so is what a pass takes besides its layers.
    chosen, around = engine.sampling_us.value * US, engine.draft_pass_us.value * US
    best = width * argmax_s(time.deployed.kernels, target.vocab)
    verify = whole - draft - host - best + around
    return Forecast(draft, verify, best + chosen, host - chosen - around)


def cells(steps: pd.DataFrame) -> pd.DataFrame:
    """Mean step by strategy and domain, measured and predicted, with its relative ``error``.

    ``single`` is the mean absolute error over the single steps.
    """
    columns = [name for name in steps.columns if name.startswith(("measured", "forecast"))]
    off = (steps["forecast_s"] / steps["measured_s"] - 1).abs()
    groups = steps.assign(single=off).groupby(["strategy", "domain"], sort=False)
    found = groups[[*columns, "context", "width", "single"]].mean()
    found.insert(0, "steps", groups.size())
    found["error"] = found["forecast_s"] / found["measured_s"] - 1
    return found.reset_index()


def prefills(recorded: Recorded, times: Mapping[str, StepTime]) -> pd.DataFrame:
    """Measured and predicted time of every prompt: ``measured_s``, ``forecast_s``."""
    own = recorded.prefills[recorded.prefills["strategy"].isin(list(times))]
    found = own[["strategy", "domain", "request", "prompt_tokens"]].copy()
    found["measured_s"] = own["duration_s"]
    found["forecast_s"] = [
        _prefill_s(times[label], int(tokens))
        for label, tokens in zip(own["strategy"], own["prompt_tokens"], strict=True)
    ]
    return found.reset_index(drop=True)


def _prefill_s(time: StepTime, tokens: int) -> float:
    seconds = time.mixed(0, 0, 0, 0, tokens, tokens, tokens * tokens / 2, 1)
    return seconds + time.deployed.engine.request_us.value * US


def mape(forecast: pd.Series, measured: pd.Series) -> float:
    """Mean absolute relative error."""
    return float(np.mean(np.abs(forecast / measured - 1)))
