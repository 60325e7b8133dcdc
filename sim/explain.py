"""One engine step taken apart: where its time goes, how much of the hardware it uses."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from models.schema import ModelError
from models.thinning import ThinnedLaw
from sim.band import step_scale
from sim.engine.modes import Mode
from sim.outside import Reach, kernel_sources, outside
from sim.resources import fetching
from sim.scenario.arrivals import ClosedLoop
from sim.scenario.build import build
from sim.scenario.load import ScenarioFile
from sim.scenario.requests import Requests
from sim.scenario.trace.schema import Trace
from sim.scenario.workload import Workload, generate
from sim.setup import Setup, prepare

SAMPLE = 2000
"""Requests drawn to find the mean lengths of a workload."""

ROUNDING = 1e-9


class Point(NamedTuple):
    """A decode step: sequences, and tokens of context of each."""

    batch: int
    context: int


def explain(
    scenario_file: ScenarioFile, batch: int | None = None, context: int | None = None
) -> dict[str, Any]:
    """Document of ``speccast explain`` for the first point of a scenario file.

    Parameters
    ----------
    scenario_file : ScenarioFile
    batch : int, optional
        Sequences decoding; by default the steady state of plain decoding at this load. No more
        than every strategy can hold.
    context : int, optional
        Tokens of context of each; by default mean prompt and half the mean output.
    """
    scenario = scenario_file.points[0].scenario
    deployment = build(scenario)
    sample = _sample(scenario.workload, scenario.run.seed)
    domains = sample.domain_names
    setups = [prepare(deployment, strategy, domains) for strategy in scenario.strategies]
    tokens = context or round(float((sample.prompt_tokens + sample.output_tokens / 2).mean()))
    index = scenario.baseline
    plain = prepare(deployment, scenario.plain, domains) if index is None else setups[index]
    asked = batch or steady_batch(plain, scenario.workload, sample, tokens)
    at = Point(min(asked, *(_largest_batch(setup, tokens) for setup in setups)), tokens)
    return {
        "scenario": deployment.shown(scenario_file.resolved),
        "batch": at.batch,
        "batch_asked": asked,
        "context": at.context,
        "rows": [_row(setup, at) for setup in setups],
    }


def _sample(workload: Workload, seed: int) -> Requests:
    """Enough requests for their mean lengths; of a trace all, for its parts may differ."""
    trace = isinstance(workload.arrivals, Trace)
    if not trace and workload.expected_requests > 2 * SAMPLE:
        workload = workload.model_copy(update={"requests": SAMPLE, "duration_s": None})
    return generate(workload, seed, 0)


def steady_batch(setup: Setup, workload: Workload, sample: Requests, context: int) -> int:
    """Sequences decoding in the steady state, by Little's law; at most the engine's limit.

    Solves ``n = rate output t_step(n) / tau``, prefill left out, by walking up from one; the users
    of a closed loop send at a rate of ``users / (output t_step(n) / tau + think)``. A day counts
    at its peak, a ramp at its busier end.
    """
    arrivals, most = workload.arrivals, setup.rules.max_num_seqs
    output_tokens = float(sample.output_tokens.mean())
    users = arrivals.users if isinstance(arrivals, ClosedLoop) else 0
    think_s = float(sample.think_s.mean())
    for n in range(1, most + 1):
        busy_s = output_tokens * setup.step_time.decode(n, n * context) / _tau(setup, context)
        rate = users / (busy_s + think_s) if users else _rate_per_s(workload, sample)
        if n >= rate * busy_s / setup.deployment.replicas - ROUNDING:
            return n
    return most


def _tau(setup: Setup, context: int) -> float:
    """Tokens a step at this context, which a policy cuts or leaves whole."""
    law = setup.law
    return law.tau_at(context) if isinstance(law, ThinnedLaw) else law.tau


def _rate_per_s(workload: Workload, sample: Requests) -> float:
    """Requests a second where there are most; of a trace, as they come."""
    if not isinstance(workload.arrivals, Trace):
        return workload.arrivals.busy_rate_per_s / float((sample.turn == 0).mean())
    span_s = float(sample.arrival_s[-1] - sample.arrival_s[0])
    return len(sample) / span_s if span_s else math.inf


def _largest_batch(setup: Setup, context: int) -> int:
    """Sequences a strategy can hold at this context.

    Raises
    ------
    ModelError
        If not even one fits.
    """
    rules = setup.rules
    if context > rules.max_model_len:
        raise ModelError(f"is beyond max_model_len {rules.max_model_len}, got {context}", "context")
    tokens = np.array([context])
    blocks = int(rules.kv.blocks(tokens, tokens + 1)[0])
    if blocks > rules.n_blocks:
        raise ModelError(
            f"the KV pool of '{setup.strategy.name}' holds "
            f"{rules.n_blocks * rules.block_tokens} tokens, got {context}",
            "context",
        )
    return min(rules.max_num_seqs, rules.n_blocks // blocks)


def _start(setup: Setup) -> Mode | None:
    """Mode sequences start in; None where they do not switch."""
    modes = setup.modes
    return modes.modes[modes.start] if setup.strategy.switches and modes is not None else None


def mean_width(setup: Setup) -> float:
    """Query tokens of a sequence, averaged over the steps of many requests.

    Where sequences switch, of the mode they start in.
    """
    start = _start(setup)
    width = setup.rules.width if start is None else start.width
    if not setup.strategy.varies_width(setup.deployment.engine):
        return width
    ids = np.arange(SAMPLE)
    paths = setup.law.paths(0, ids, np.full(SAMPLE, 250), np.zeros(SAMPLE, dtype=np.int64))
    return float(paths.width.mean()) if paths.width is not None else width


def _row(setup: Setup, at: Point) -> dict[str, Any]:
    deployment, tau, start = setup.deployment, _tau(setup, at.context), _start(setup)
    n, kv, width = at.batch, setup.rules.kv, mean_width(setup)
    query, prompt = round(n * width), np.array([at.context])
    n_ctx = n * int(kv.attended(prompt, prompt)[0])
    components = setup.step_time.breakdown(n, n_ctx, query)
    components |= fetching(setup, components, n * int(kv.cold(prompt, prompt)[0]))
    seconds = sum(components.values())
    scale = step_scale(setup, query)
    accelerator, gpus = deployment.accelerator, deployment.tp
    compute = accelerator.compute_dtype(deployment.weights)
    flops, moved = _work(setup, n, query, n_ctx)

    def banded(value: float) -> dict[str, Any]:
        ends = {"lo": scale.lo * value, "hi": scale.hi * value}
        return {**ends, "level": scale.level, "basis": scale.basis}

    return {
        "strategy": setup.strategy.name,
        "hypothetical": setup.hypothetical,
        **({} if start is None else {"mode": start.name}),
        "t_step_s": seconds,
        "components": components,
        "tau": tau,
        "tpot_s": seconds / tau,
        "verify_tokens": query,
        "mfu": flops / gpus / (seconds * accelerator.peak_flops[compute]),
        "mbu": moved / gpus / (seconds * accelerator.memory_bandwidth_bytes_per_s),
        "roof": _roof(setup, query, components),
        "kernels": kernel_sources(setup, n, query),
        "outside": outside(setup, Reach(query, n, at.context), n, query),
        "band": {"t_step_s": banded(seconds), "tpot_s": banded(seconds / tau)},
    }


def _work(setup: Setup, n: int, query: int, ctx: float) -> tuple[float, float]:
    """FLOP and bytes of target and draft in one step, all GPUs together."""
    deployment, strategy = setup.deployment, setup.strategy
    target, attended = deployment.target, query / n * ctx
    flops = target.pass_flops(query, query, attended)
    moved = target.pass_bytes(query, ctx, deployment.weights, deployment.kv)
    passes = strategy.draft_passes(target, deployment.engine, deployment.weights, deployment.tp)
    for draft in passes:
        rows = n * draft.rows
        if draft.head_only:
            params = target.hidden**2 + target.lm_head_params()
            flops += draft.repeat * 2 * params * rows
            moved += draft.repeat * 2 * params
            continue
        tokens = query if draft.covers_prefill else rows
        flops += draft.repeat * draft.net.pass_flops(tokens, rows, tokens / n * ctx)
        moved += draft.repeat * draft.net.pass_bytes(tokens, ctx, draft.weights, deployment.kv)
    return flops, moved


def _roof(setup: Setup, query: int, components: dict[str, float]) -> str:
    """What takes most of the target pass: a roof of the GPU, the link, or launches."""
    deployment = setup.deployment
    bound = setup.step_time.deployed.kernels.gemm_bound(
        query,
        deployment.target.hidden,
        (deployment.target.expert_intermediate or deployment.target.intermediate) / deployment.tp,
        deployment.weights,
    )
    kinds = {
        "weights": f"{bound}: weights",
        "kv": "memory: KV",
        "lm_head": "memory: LM head",
        "attention": "launches",
        "elementwise": "launches",
        "collectives": "interconnect",
        "sampling": "sampling",
        "fetch": "fetching KV",
    }
    shares: dict[str, float] = {}
    for name, kind in kinds.items():
        shares[kind] = shares.get(kind, 0.0) + components.get(name, 0.0)
    return max(shares, key=lambda kind: shares[kind])
