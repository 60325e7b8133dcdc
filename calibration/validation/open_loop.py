"""Step time alone against real serving runs: at the concurrency measured, nothing simulated.

A simulation feeds an error of the step back into the number of sequences that run, which multiplies
it. Here that number is taken from the run itself, so what is left is the error of the step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd

from calibration.validation import score as scoring
from calibration.validation.predict import Outcome
from calibration.validation.suites import inference_sim
from calibration.validation.suites.rows import read
from models import catalog
from models.kernels import Kernels
from models.schema import Dtype
from models.step_time import Deployed, StepTime
from models.strategies.autoregressive import Autoregressive

MAX_NUM_SEQS = 128
DISTINCT_PROMPTS = 100
STEP = "step_s"


class Stage(NamedTuple):
    """One load stage of a real server under evenly spaced arrivals.

    ``stage`` counts within a run: the first one starts with an empty prefix cache. ``kv_blocks``
    is the server's KV budget; times are means [s].
    """

    transformer: str
    weights: Dtype
    tp: int
    stage: int
    rate_per_s: float
    duration_s: float
    prompt_tokens: int
    output_tokens: int
    max_num_batched_tokens: int
    kv_blocks: int
    ttft_s: float
    tpot_s: float
    e2e_s: float
    run: str

    @property
    def decoding(self) -> float:
        """Sequences that decode at a time, by Little's law."""
        return self.rate_per_s * (self.e2e_s - self.ttft_s)

    @property
    def context_tokens(self) -> float:
        """Mean context of a decoding sequence."""
        return self.prompt_tokens + self.output_tokens / 2

    def cold_share(self, block_tokens: int) -> float:
        """Share of the requests whose prompt is not in the prefix cache.

        Notes
        -----
        The clients send 100 prompts in turn. If all of them stay in the cache beside the outputs
        of the running sequences, only the first round of the first stage computes them; if not,
        the least recently used one is always the next one needed, and every request does.
        """
        running = self.decoding * math.ceil(self.output_tokens / block_tokens)
        kept = DISTINCT_PROMPTS * math.ceil(self.prompt_tokens / block_tokens)
        if kept + running > self.kv_blocks:
            return 1.0
        return 0.0 if self.stage else DISTINCT_PROMPTS / (self.rate_per_s * self.duration_s)


class Error(NamedTuple):
    """Predicted time per token of a stage [s], and its relative error."""

    stage: Stage
    step_s: float
    relative: float


class Score(NamedTuple):
    """How far predictions are off: mean, median and 90 % quantile of |error|, and mean error."""

    stages: int
    mape: float
    median: float
    p90: float
    bias: float


def stages() -> list[Stage]:
    """Stages of the published load runs that are scored. FP16 costs what bf16 does."""
    return [_stage(row) for row in read(inference_sim.ROWS) if not row["unscored"]]


def _stage(row: dict[str, str]) -> Stage:
    return Stage(
        transformer=row["model"],
        weights="bf16",
        tp=int(row["tp"]),
        stage=int(row["stage"]),
        rate_per_s=float(row["rate_per_s"]),
        duration_s=float(row["duration_s"]),
        prompt_tokens=int(row["prompt_tokens"]),
        output_tokens=int(row["output_tokens"]),
        max_num_batched_tokens=int(row["max_num_batched_tokens"]),
        kv_blocks=int(row["kv_blocks"]),
        ttft_s=float(row["ttft_mean_ms"]) / 1e3,
        tpot_s=float(row["tpot_mean_ms"]) / 1e3,
        e2e_s=float(row["e2e_mean_ms"]) / 1e3,
        run=row["run"],
    )


def step_s(stage: Stage, time: StepTime) -> float:
    """Mean time between two tokens of a sequence at the load measured [s].

    Parameters
    ----------
    stage : Stage
    time : StepTime
        Of plain decoding on the deployment of the stage.

    Raises
    ------
    ValueError
        If computing the prompts alone takes all the time there is.

    Notes
    -----
    A step of ``N`` decoding sequences takes ``D(N)``. In a step of ``T`` seconds ``rate T`` prompts
    join, each adding ``c``: what the cache does not hold of it, and a row of the LM head. So
    ``T = D(N) + rate T c``.
    """
    decoding, context = stage.decoding, stage.context_tokens
    below = math.floor(decoding)
    low, high = (time.mixed(n, n * context, n, n * context) for n in (below, below + 1))
    block = time.deployed.engine.block_tokens
    prompt = stage.prompt_tokens
    cold = stage.cold_share(block)

    def joined_s(tokens: int) -> float:
        pairs = tokens * (prompt - tokens) + tokens**2 / 2
        ctx = below * context
        return time.mixed(below, ctx, below, ctx, tokens, prompt, pairs, finishing=1)

    joined = cold * joined_s(prompt) + (1 - cold) * joined_s(
        prompt - block * ((prompt - 1) // block)
    )
    decode_s = low + (decoding - below) * (high - low)
    left = 1 - stage.rate_per_s * (joined - low)
    if left <= 0:
        raise ValueError(f"{stage.run}: prompts alone keep the GPU busy")
    return decode_s / left


def errors(
    stages: Iterable[Stage],
    kernels: Kernels,
    engine: str = "vllm_0.15",
) -> list[Error]:
    """Prediction and relative error of every stage.

    Parameters
    ----------
    stages : iterable of Stage
    kernels : Kernels
        Of the GPU they ran on.
    engine : str
        Engine version of the catalogue.
    """
    times: dict[tuple[str, Dtype, int, int], StepTime] = {}
    found = []
    for stage in stages:
        key = stage.transformer, stage.weights, stage.tp, stage.max_num_batched_tokens
        if key not in times:
            times[key] = StepTime(_deployed(stage, kernels, engine), Autoregressive())
        step = step_s(stage, times[key])
        found.append(Error(stage, step, step / stage.tpot_s - 1))
    return found


def outcomes(kernels: Kernels | None = None) -> pd.DataFrame:
    """Errors of the step as rows beside those of ``score.table``, metric ``step_s``.

    Parameters
    ----------
    kernels : Kernels, optional
        Default those of the catalogue.
    """
    if kernels is None:
        accelerator = catalog.hardware("h100_sxm")
        kernels = Kernels(accelerator, catalog.profile(accelerator.profile))
    cases = (case for case in inference_sim.cases() if not case.unscored)
    return scoring.table(
        Outcome(case, STEP, error.stage.tpot_s, error.step_s)
        for case, error in zip(cases, errors(stages(), kernels), strict=True)
    )


def score(found: Iterable[Error]) -> Score:
    """Sum up relative errors; there must be at least one."""
    relative = np.array([error.relative for error in found])
    off = np.abs(relative)
    return Score(
        len(off),
        float(off.mean()),
        float(np.median(off)),
        float(np.quantile(off, 0.9)),
        float(relative.mean()),
    )


def _deployed(stage: Stage, kernels: Kernels, engine: str) -> Deployed:
    target = catalog.transformer(stage.transformer)
    return Deployed(
        kernels=kernels,
        target=target,
        engine=catalog.engine(engine),
        weights=stage.weights,
        kv="bf16",
        tp=stage.tp,
        top_p=target.top_p_default,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=stage.max_num_batched_tokens,
    )
