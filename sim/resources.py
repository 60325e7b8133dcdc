"""What one strategy takes of a GPU: memory at its peak, time in a decode step, largest steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.break_even import Operating
from sim.engine.recorder import Recorder
from sim.outside import outside, reach_of
from sim.scenario.build import Deployment
from sim.setup import Setup
from sim.tables import Columns


def memory(setup: Setup, recorders: Sequence[Recorder]) -> dict[str, Any]:
    """KV use at its peak, of the fullest replica, and where the memory of each of its GPUs goes.

    Returns
    -------
    dict
        Keys of a result row. ``kv_budget_bytes`` splits ``memory``, that of one GPU, into
        ``unused`` (beyond the engine's share), ``weights``, ``draft``, ``reserve`` (activations
        and graphs) and ``kv``, of which ``kv_peak_used`` was in use at the peak. ``batch_peak`` is
        the most sequences one replica decoded at once, ``kv_unusable`` the mean share of its
        blocks that were free but in no stretch a sequence's branches fit into; where
        losses of the KV are stated, ``quality_loss`` is the sum of those of quality.
    """
    peak = max(totals.blocks_peak for recorder in recorders for totals in recorder.totals)
    budget = setup.budget
    return {
        "kv_use_peak": peak / budget.n_blocks,
        "kv_free_bytes": (budget.n_blocks - peak) * budget.block_bytes,
        "kv_tokens": budget.n_blocks * setup.rules.block_tokens,
        "max_model_len": setup.rules.max_model_len,
        "batch_peak": max(totals.n_peak for recorder in recorders for totals in recorder.totals),
        "kv_unusable": _unusable(setup, recorders),
        **_stated(setup),
        "kv_budget_bytes": {
            "memory": budget.memory_bytes,
            "unused": budget.unused_bytes,
            "weights": budget.weights_bytes,
            "draft": budget.draft_bytes,
            "reserve": budget.reserve_bytes,
            "kv": budget.kv_bytes,
            "kv_peak_used": peak * budget.block_bytes,
        },
    }


def _unusable(setup: Setup, recorders: Sequence[Recorder]) -> float:
    totals = [totals for recorder in recorders for totals in recorder.totals]
    ran_s = sum(each.decode_s + each.stalled_s for each in totals)
    unusable_s = sum(each.unusable_s for each in totals)
    return unusable_s / (ran_s * setup.budget.n_blocks) if ran_s else 0.0


def _stated(setup: Setup) -> dict[str, float]:
    """What the user said of answers from cut or quantised KV; nothing where nothing was said."""
    loss = setup.deployment.quality_loss
    return {} if loss is None else {"quality_loss": loss}


def decode_step(setup: Setup, at: Operating | None) -> dict[str, Any] | None:
    """One decode step where the strategy ran on average, by component.

    None if it never decoded, and where sequences switch: no step then stands for all.

    Returns
    -------
    dict or None
        ``components`` (name to seconds), ``batch`` (sequences), ``context`` (tokens of each).
    """
    if at is None or setup.strategy.switches:
        return None
    (n, query_tokens), context = _usual(setup, at), round(at.context)
    components = setup.step_time.breakdown(n, n * context, query_tokens)
    components |= fetching(setup, components, n * at.cold)
    return {"components": components, "batch": n, "context": context}


def fetching(setup: Setup, components: Mapping[str, float], cold: float) -> dict[str, float]:
    """Time a step spends on KV from outside the GPU [s], under ``fetch``; nothing without any."""
    step_s = sum(components.values())
    more_s = setup.rules.kv.fetch_s(step_s, cold) - step_s
    return {"fetch": more_s} if more_s else {}


def _usual(setup: Setup, at: Operating) -> tuple[int, int]:
    """Sequences and query tokens of the decode step nearest to the mean."""
    n = max(1, min(round(at.n), setup.rules.max_num_seqs))
    return n, round(n * min(at.width, float(setup.rules.width)))


def beyond(
    setup: Setup, recorders: Sequence[Recorder], runs: Sequence[Columns], at: Operating | None
) -> dict[str, Any]:
    """What of its steps lies outside of what kernels were measured at, as ``outside`` gives it."""
    reach = reach_of(setup, recorders, runs)
    return outside(setup, reach, *((0, 0) if at is None else _usual(setup, at)))


def cost(deployment: Deployment, tok_per_s_per_gpu: float | None) -> float | None:
    """Price of a million output tokens at the rate served [USD]; None where none is known."""
    if not tok_per_s_per_gpu or not deployment.price_per_gpu_hour:
        return None
    return deployment.price_per_gpu_hour / (3600 * tok_per_s_per_gpu) * 1e6
