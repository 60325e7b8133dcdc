"""The tau at which a strategy only equals plain decoding, at plain decoding's own load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sim.analysis.metrics import finished, select
from sim.engine.recorder import Recorder
from sim.setup import Setup
from sim.tables import Columns

ROUNDS = 30
"""Fixed-point rounds for widths that follow tau; the error shrinks by half or more in each."""


class Operating(NamedTuple):
    """Where a strategy ran on average.

    Attributes
    ----------
    n : float
        Sequences decoding, time-weighted.
    context, width : float
        Context and query tokens of each [token].
    computed, cached, output : float
        Prompt tokens computed, prompt tokens found in the cache, and output tokens of a request.
    """

    n: float
    context: float
    width: float
    computed: float
    cached: float
    output: float

    @property
    def query_tokens(self) -> float:
        """Query tokens a decode step."""
        return self.n * self.width


def operating_point(
    recorders: Sequence[Recorder], runs: Sequence[Columns], setup: Setup
) -> Operating:
    """Means over decode steps and requests; one sequence where nothing was decoded."""
    totals = [totals for recorder in recorders for totals in recorder.totals]
    decode_s = sum(t.decode_s for t in totals)
    sequence_s = sum(recorder.itl.total_s for recorder in recorders)
    table = {name: np.concatenate([run[name] for run in runs]) for name in _COLUMNS}
    done = select(table, finished(table))
    if not decode_s or not len(done["finish_s"]):
        return Operating(1.0, 1.0, setup.rules.width, 0.0, 0.0, 1.0)
    prompt, cached, output = done["prompt_tokens"], done["cached_tokens"], done["output_tokens"]
    # A request's context grows from its prompt by its output while it decodes.
    decoding = done["finish_s"] - done["first_token_s"]
    context = float(np.average(prompt + (1 + output) / 2, weights=decoding))
    width = sum(t.width_s for t in totals) / sequence_s or setup.rules.width
    return Operating(
        sequence_s / decode_s,
        context,
        width,
        float((prompt - cached).mean()),
        float(cached.mean()),
        float(output.mean()),
    )


_COLUMNS = (
    "status",
    "first_token_s",
    "finish_s",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
)


def break_even_tau(
    setup: Setup, tau: float | None, width: float, baseline: Setup, at: Operating
) -> float | None:
    """Value of tau at which a strategy only equals plain decoding; None for plain decoding.

    A request of O tokens meets the prefills of n/O others a token, so
    ``TPOT = t_step / tau + (n / O) extra`` with ``extra`` what a prefill adds to a step. Equal
    TPOT at the same n gives ``tau = t / (t_plain + (n / O) (extra_plain - extra))``.

    Parameters
    ----------
    setup : Setup
    tau, width : float
        Mean tokens emitted and query tokens a sequence of the strategy's own run. Where the width
        varies, fewer accepted tokens mean fewer drafted ones: it is taken along with tau.
    baseline : Setup
    at : Operating
        Where the baseline ran.
    """
    if not setup.strategy.drafted:
        return None
    n = max(1, min(round(at.n), setup.rules.max_num_seqs))
    plain, plain_extra = _costs(baseline, n, 1.0, at)
    varies = setup.strategy.varies_width(setup.deployment.engine)
    value, drafted = tau or 1.0, width
    for _ in range(ROUNDS if varies else 1):
        if varies and tau and tau > 1:
            drafted = 1 + (width - 1) * max(value - 1, 0.0) / (tau - 1)
        own, extra = _costs(setup, n, min(drafted, setup.rules.width), at)
        per_token = plain + n / max(at.output, 1.0) * (plain_extra - extra)
        if per_token <= 0:
            return None
        value = own / per_token
    return value


def _costs(setup: Setup, n: int, width: float, at: Operating) -> tuple[float, float]:
    """Decode step, and what the prefill of one request adds to the steps it shares [s]."""
    cost, ctx = setup.step_time, n * at.context
    query = round(n * width), ctx * width
    step = cost.mixed(n, ctx, *query)
    room = setup.rules.max_num_batched_tokens - query[0]
    chunks = max(1, -(-round(at.computed) // room))
    tokens, extra, done = round(at.computed / chunks), 0.0, at.cached
    for chunk in range(chunks):
        pairs = tokens * done + tokens**2 / 2
        done += tokens
        last = int(chunk == chunks - 1)
        extra += cost.mixed(n, ctx, *query, tokens, done, pairs, last) - step
    return step, extra
