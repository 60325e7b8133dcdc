"""Random small serving problems, made to hit the corners: full pools, ties, groups, long queues.

Every duration is a multiple of a power of two, so that sums are exact in any order and two
correct loops agree to the last bit.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from sim.engine.rules import Rules
from sim.scenario.workload import Prefixes

TICK_S = 2.0**-20
SLOT_S = 2.0**-10
DRAW = ("recompute", "recompute", "swap", "never")


class Paths(NamedTuple):
    """Decode steps of all requests; request r owns [offsets[r]:offsets[r + 1]]."""

    offsets: np.ndarray
    emitted: np.ndarray
    accepted: np.ndarray
    drafted: np.ndarray | None
    width: np.ndarray | None


class Cost:
    """Affine step time with whole numbers of ticks; `pairs` comes in halves, so its weight is even.

    A class, so that a failing case prints its coefficients.
    """

    def __init__(self, coefficients: tuple[int, ...]) -> None:
        self.coefficients = coefficients

    def __call__(
        self,
        n: int,
        ctx: int,
        query_tokens: int,
        query_ctx: int,
        prefill_tokens: int,
        prefill_ctx: int,
        pairs: float,
        finishing: int,
    ) -> float:
        work = (
            1, n, ctx, query_tokens, query_ctx, prefill_tokens, prefill_ctx, pairs, finishing
        )  # fmt: skip
        return TICK_S * sum(c * x for c, x in zip(self.coefficients, work, strict=True))

    def __repr__(self) -> str:
        return f"Cost({self.coefficients})"


class Case(NamedTuple):
    """What both loops are given."""

    seed: int
    requests: Any
    paths: Paths
    rules: Rules
    cost: Cost
    replicas: int
    router: str
    drafted_per_step: int

    def describe(self) -> str:
        return (
            f"seed {self.seed}: {len(self.requests.prompt_tokens)} requests, "
            f"users {self.requests.users}, {self.replicas} x {self.router}, {self.rules}"
        )


def random_case(seed: int) -> Case:
    """Draw one case. The same seed always gives the same case."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(0, 6))
    replicas = int(rng.integers(1, 4))
    block_tokens = int(rng.choice([4, 8, 16]))
    prefix_cache = bool(rng.random() < 0.7)
    n = int(rng.integers(5, 61))
    requests = draw_requests(rng, n, block_tokens, replicas)
    rules = draw_rules(rng, requests, k, block_tokens, prefix_cache)
    return Case(
        seed=seed,
        requests=requests,
        paths=draw_paths(rng, requests.output_tokens, k),
        rules=rules,
        cost=draw_cost(rng),
        replicas=replicas,
        router=str(rng.choice(["round_robin", "least_outstanding"])),
        drafted_per_step=k,
    )


def draw_requests(
    rng: np.random.Generator, n: int, block_tokens: int, replicas: int
) -> SimpleNamespace:
    """Draw lengths, groups and arrivals; some arrive together, some long after the rest."""
    # Skewed: a few long prompts, prefilled in many chunks, among many short ones.
    longest, skew = int(rng.choice([20, 80, 250, 700])), int(rng.choice([1, 4]))
    prompt = 1 + (longest * rng.random(n) ** skew).astype(np.int64)
    output = rng.integers(1, int(rng.choice([4, 30, 90])), size=n)
    group, prefix, prompt = draw_groups(rng, prompt, block_tokens)
    gap_slots = rng.integers(0, int(rng.choice([1, 2, 6, 25])), size=n)
    gap_slots[rng.random(n) < 0.03] += 3000
    arrival_s = np.cumsum(gap_slots) * SLOT_S
    users = None
    if rng.random() < 0.25:
        users = int(rng.integers(1, min(n, 8 * replicas) + 1))
        stagger = int(rng.integers(0, 4))
        arrival_s = np.where(np.arange(n) < users, np.arange(n) * stagger * SLOT_S, np.nan)
    return SimpleNamespace(
        arrival_s=arrival_s,
        stream=np.zeros(n, dtype=np.int32),
        prompt_tokens=prompt,
        output_tokens=output,
        group=group,
        prefix_tokens=prefix,
        prefixes=Prefixes.of_groups(group, prefix),
        keeps=np.zeros(n, dtype=np.int64),
        turn=np.zeros(n, dtype=np.int64),
        domain=np.zeros(n, dtype=np.int64),
        users=users,
        think_s=np.full(n, float(rng.choice([0, 3, 40])) * SLOT_S),
        stream_names=("all",),
        domain_names=("general",),
    )


def draw_groups(
    rng: np.random.Generator, prompt: np.ndarray, block_tokens: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Put requests in prefix groups: none, whole prompts repeated, or a prefix and a rest.

    All requests of one group share the same number of full blocks: a prompt that is exactly its
    prefix can share one block less than its longer neighbours, and is not drawn here.
    """
    n = len(prompt)
    zeros = np.zeros(n, dtype=np.int64)
    kind = rng.choice(["none", "all", "prefix"], p=[0.35, 0.2, 0.45])
    groups = int(rng.integers(1, 7))
    group = rng.integers(0, groups, size=n)
    if kind == "none":
        return zeros, zeros, prompt
    if kind == "all":
        lengths = rng.integers(1, int(prompt.max()) + 1, size=groups)
        return group + 1, lengths[group], lengths[group]
    sizes = rng.integers(1, int(rng.choice([6, 40])) * block_tokens, size=groups)
    member = rng.random(n) < 0.8
    whole = np.where(member, sizes[group] + prompt, prompt)
    return np.where(member, group + 1, 0), np.where(member, sizes[group], 0), whole


def draw_rules(
    rng: np.random.Generator, requests: SimpleNamespace, k: int, block_tokens: int, cache: bool
) -> Rules:
    """Draw limits so tight that sequences are preempted, and now and then one is rejected."""
    budget = int(rng.choice([64, 64, 100, 256, 2048]))
    max_num_seqs = min(int(rng.integers(4, 33)), budget // (k + 1))
    slots = int(rng.choice([k + 1, 2 * k + 1]))  # never fewer than a step can emit
    total = requests.prompt_tokens + requests.output_tokens
    needs = np.sort(-(-(total - 1 + slots) // block_tokens))
    largest = int(needs[-1] if rng.random() < 0.8 else needs[int(0.9 * len(needs))])
    crowd = int(np.mean(needs) * max_num_seqs)
    room = float(rng.choice([0.0, 0.15, 0.3, 0.6, 1.2]))
    longest = int(total.max()) if rng.random() < 0.85 else int(np.quantile(total, 0.9))
    return Rules(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        max_model_len=longest,
        block_tokens=block_tokens,
        n_blocks=max(1, largest + int(rng.integers(0, 12)), int(room * crowd)),
        slots=slots,
        width=k + 1,
        async_scheduling=bool(rng.random() < 0.6),
        prefix_cache=cache,
        drop_matched_block=bool(k and rng.random() < 0.5),
        preemption=str(rng.choice(DRAW)),  # type: ignore[arg-type]
        exclusive_prefill=bool(rng.random() < 0.2),
        watermark_blocks=int(rng.choice([0, 0, 1, 4])),
        request_s=float(rng.choice([0, 0, 2, 7])) * SLOT_S,
        swap_s_per_block=float(rng.integers(0, 200)) * TICK_S,
    )


def draw_paths(rng: np.random.Generator, output: np.ndarray, k: int) -> Paths:
    """Draw what each decode step accepts; in some cases its draft length varies as well."""
    varying = bool(k and rng.random() < 0.3)
    chance = rng.random() * 0.9
    emitted: list[int] = []
    accepted: list[int] = []
    drafted: list[int] = []
    offsets = [0]
    for tokens in output - 1:
        left = int(tokens)
        while left > 0:
            length = int(rng.integers(0, k + 1)) if varying else k
            hits = int(np.cumprod(rng.random(length) < chance).sum())
            accepted.append(hits)
            drafted.append(length)
            emitted.append(min(hits + 1, left))
            left -= emitted[-1]
        offsets.append(len(emitted))
    lengths = np.array(drafted, dtype=np.int64)
    return Paths(
        offsets=np.array(offsets, dtype=np.int64),
        emitted=np.array(emitted, dtype=np.int64),
        accepted=np.array(accepted, dtype=np.int64),
        drafted=lengths if varying else None,
        width=lengths + 1 if varying else None,
    )


def draw_cost(rng: np.random.Generator) -> Cost:
    """Draw weights: a constant of some milliseconds, and a little for every kind of work."""
    constant = int(rng.integers(1000, 20000))
    weights = rng.integers(0, [60, 4, 40, 3, 40, 3, 2, 500])
    weights[6] *= 2
    return Cost((constant, *(int(x) for x in weights)))
