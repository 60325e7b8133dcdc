"""An engine reduced to a queue: steps whose length a test chooses, and room for everything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from models.acceptance import Law, plain_law
from models.kv_layout import KvLayout
from models.kv_use import KvUse
from sim.engine.fleet import Fleet
from sim.engine.recorder import Recorder
from sim.engine.rules import Rules
from sim.engine.simulate import Plan, simulate
from sim.scenario.workload import Requests, Workload, generate

PLENTY = 10**9

RULES = Rules(
    max_num_seqs=1,
    max_num_batched_tokens=PLENTY,
    max_model_len=PLENTY,
    block_tokens=16,
    n_blocks=PLENTY,
    slots=1,
    kv=KvUse(KvLayout(16, 1)),
    width=1,
    async_scheduling=False,
    prefix_cache=False,
    drop_matched_block=False,
    preemption="recompute",
    exclusive_prefill=False,
    watermark_blocks=0,
    request_s=0.0,
    swap_s_per_block=0.0,
)


class Cost:
    """A step lasts ``step_s``, and ``token_s`` more for each prompt token computed in it [s]."""

    def __init__(self, step_s: float, token_s: float = 0.0) -> None:
        self._step_s, self._token_s = step_s, token_s

    def decode(self, n: int, ctx: int) -> float:
        return self._step_s

    def mixed(
        self,
        n: int,
        ctx: float,
        query_tokens: int,
        query_ctx: float,
        prefill_tokens: int = 0,
        *rest: float,
    ) -> float:
        return self._step_s + self._token_s * prefill_tokens

    def host_s(self, sequences: int, drafted: int = 0) -> float:
        return 0.0

    def draft_s(self, *counts: float) -> float:
        return 0.0


def serve(
    requests: Requests, cost: Cost, law: Law | None = None, replicas: int = 1, **rules: Any
) -> Recorder:
    """Run requests, round robin over replicas, with the rules above, some replaced.

    Step rows are kept in ``rows`` of what it returns.
    """
    law = law or plain_law()
    asked = replace(RULES, width=law.depth + 1, **rules)
    plan = Plan(asked, cost, law, law.depth, fleet=Fleet(replicas, "round_robin"))
    return simulate_with_rows(plan, requests)


def simulate_with_rows(plan: Plan, requests: Requests, seed: int = 1) -> Recorder:
    """Simulate, and keep the step rows in ``rows``."""
    rows: list[Any] = []
    recorder = simulate(plan, requests, seed, on_steps=rows.extend)
    recorder.rows = rows  # type: ignore[assignment]
    return recorder


def poisson(rate_per_s: float, n: int, replication: int = 0) -> Requests:
    """Poisson arrivals of one-token requests."""
    return _one_token({"kind": "poisson", "rate_per_s": rate_per_s}, n, replication)


def closed_loop(users: int, n: int) -> Requests:
    """One-token requests of users who send again at once."""
    return _one_token({"kind": "closed_loop", "users": users}, n, 0)


def _one_token(arrivals: dict[str, Any], n: int, replication: int) -> Requests:
    length = {"kind": "fixed", "value": 1}
    stream = {"prompt_tokens": length, "output_tokens": length}
    workload = {"arrivals": arrivals, "requests": n, "streams": [stream]}
    return generate(Workload.model_validate(workload), seed=2024, replication=replication)


def queue_s(recorder: Recorder) -> np.ndarray:
    """Time in the queue of every request [s]."""
    return np.array(recorder.log.schedule_s) - np.array(recorder.log.arrival_s)
