"""The tau at which a strategy only equals plain decoding, at plain decoding's own load."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sim.analysis.metrics import finished, joined, select
from sim.beside import Beside, decode_s, prefill_s
from sim.engine.recorder import Recorder
from sim.setup import Setup
from sim.tables import Array, Columns

ROUNDS = 30
"""Most fixed-point rounds for what follows tau; the error shrinks by half or more in each."""


class Operating(NamedTuple):
    """Where a strategy ran on average.

    Attributes
    ----------
    n : float
        Sequences decoding on a replica, time-weighted.
    context, width : float
        Context its attention reads and query tokens of each [token].
    delivered : float
        Tokens a step delivered over tau: the last step of a request may accept more than it asked.
    met : float
        Requests that start while one decodes: rate times the time from first to last token.
    queue_s : float
        Time from arrival to the first step with own prompt tokens [s].
    computed, cached, output : float
        Prompt tokens computed, prompt tokens found in the cache, and output tokens of a request.
    cold : float
        Context tokens each sequence fetches in a step.
    """

    n: float
    context: float
    width: float
    delivered: float
    met: float
    queue_s: float
    computed: float
    cached: float
    output: float
    cold: float = 0.0

    @property
    def query_tokens(self) -> float:
        """Query tokens a decode step."""
        return self.n * self.width


def operating_point(
    recorders: Sequence[Recorder], runs: Sequence[Columns], setup: Setup
) -> Operating | None:
    """Means over decode steps and requests; None where nothing was decoded."""
    totals = [totals for recorder in recorders for totals in recorder.totals]
    decode_s, n_s = sum(t.decode_s for t in totals), sum(t.n_s for t in totals)
    table = joined([{name: run[name] for name in _COLUMNS} for run in runs])
    done = select(table, finished(table))
    if not decode_s or not done["n_steps"].sum():
        return None
    prompt, cached, output = done["prompt_tokens"], done["cached_tokens"], done["output_tokens"]
    # A request's context grows from its prompt by its output while it decodes.
    decoding = done["finish_s"] - done["first_token_s"]
    accepted = (done["n_steps"] + done["accepted"]).sum()
    context = prompt + (1 + output) / 2
    cold, dropped = _spared(setup, prompt, context)
    return Operating(
        n=n_s / decode_s,
        context=float(np.average(context - dropped, weights=decoding)),
        width=sum(t.width_s for t in totals) / n_s or setup.rules.width,
        delivered=min(1.0, float((output - 1).sum() / accepted)),
        met=decoding.sum() / sum(_span_s(run) for run in runs) / len(recorders[0].totals),
        queue_s=float((done["schedule_s"] - done["arrival_s"]).mean()),
        computed=float((prompt - cached).mean()),
        cached=float(cached.mean()),
        output=float(output.mean()),
        cold=float(np.average(cold, weights=decoding)),
    )


def _spared(setup: Setup, prompt: Array, context: Array) -> tuple[Array, Array]:
    """Tokens fetched and tokens not read, of requests half way through their answers."""
    kv, tokens = setup.rules.kv, context.astype(np.int64)
    return kv.cold(prompt, tokens).astype(float), (tokens - kv.attended(prompt, tokens)) + 0.0


def _span_s(run: Columns) -> float:
    """Time from the first arrival to the last finish of one run [s]."""
    finish = run["finish_s"][finished(run)]
    return float(finish.max() - run["arrival_s"].min()) if len(finish) else 0.0


_COLUMNS = (
    "status",
    "arrival_s",
    "schedule_s",
    "first_token_s",
    "finish_s",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "n_steps",
    "accepted",
)


def break_even_tau(
    setup: Setup,
    tau: float | None,
    own: Operating | None,
    baseline: Setup,
    at: Operating | None,
    users: float | None,
) -> float | None:
    """Value of tau at which a strategy only equals plain decoding.

    A request of O tokens decodes for ``(O - 1) t_step / tau`` and is held up by prefills for
    ``w``: in an open loop by those of requests that arrive while it decodes, in a closed loop,
    where the whole of its time counts, also by its own and by those it queues behind. Equal time at
    the same batch gives ``tau = (O - 1) t / ((O - 1) t_plain + w_plain - w)``.

    Parameters
    ----------
    setup : Setup
    tau : float or None
        Mean tokens emitted a step in the strategy's own run.
    own : Operating or None
        Where the strategy ran. Where its width varies, fewer accepted tokens mean fewer drafted
        ones: the width is taken along with tau, and so is the excess of the last step.
    baseline : Setup
    at : Operating or None
        Where the baseline ran.
    users : float or None
        Users a replica in a closed loop; None in an open one.

    Returns
    -------
    float or None
        At least 1, since no strategy emits less than a token a step. None for plain decoding,
        where a run decoded nothing, where no tau is enough, and where sequences switch: what they
        emit then follows what they do.
    """
    if not setup.strategy.drafted or setup.strategy.switches or own is None or at is None:
        return None
    n = max(1, min(round(at.n), setup.rules.max_num_seqs))
    tokens = max(at.output - 1, 1.0)
    plain = _times(baseline, n, 1.0, at, users)
    # Even an idle engine lets a request wait for the step that runs.
    queued = min(max(at.queue_s / plain.own - 1, 0.0), max((users or 1.0) - 1, 0.0))
    varies = setup.strategy.varies_width(setup.deployment.engine)
    value = tau or 1.0
    for _ in range(ROUNDS):
        share = max(value - 1, 0.0) / (tau - 1) if tau and tau > 1 else 1.0
        width = 1 + (own.width - 1) * share if varies else own.width
        times = _times(setup, n, min(width, setup.rules.width), at, users)
        spare = tokens * plain.step + plain.held - times.held
        if users is not None:
            spare += (1 + queued) * (plain.own - times.own)
        if spare <= 0:
            return None
        # Extrapolated in tau, so kept to a last step that wastes at most half of all.
        delivered = max(1 - (1 - own.delivered) * share, 0.5)
        before, value = value, tokens * times.step / spare / delivered
        if abs(value - before) < 1e-9 * value:
            break
    return max(value, 1.0)


class _Times(NamedTuple):
    """A decode step, prefills of others while a request decodes, and its own prefill [s]."""

    step: float
    held: float
    own: float


def _times(setup: Setup, n: int, width: float, at: Operating, users: float | None) -> _Times:
    exclusive = setup.rules.exclusive_prefill
    others = 1.0 if users is None else 1 - 1 / max(users, 1.0)
    beside = Beside(n, at.context, width, at.cold)
    step = decode_s(setup.step_time, setup.rules, beside)
    prefill, steps = _prefill_s(setup, beside._replace(n=0 if exclusive else n), at)
    extra = prefill - steps * step * (not exclusive)
    own, _ = _prefill_s(setup, beside._replace(n=0 if exclusive else round(n * others)), at)
    return _Times(step, at.met * others * extra, own)


def _prefill_s(setup: Setup, beside: Beside, at: Operating) -> tuple[float, int]:
    return prefill_s(setup.step_time, setup.rules, beside, at.computed, at.cached)
