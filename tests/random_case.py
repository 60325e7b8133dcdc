"""Random small serving problems, made to hit the corners: full pools, ties, long queues, failures.

Every duration is a multiple of a power of two, so that sums are exact in any order and two
correct loops agree to the last bit; only retries with jitter make odd times. Deadlines, retries
and outages are off the grid of ticks, so that they never meet the end of a step.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from models.kv_layout import KvLayout
from models.kv_use import KvUse
from sim.engine.rules import Rules
from tests.plain_loop import Client, Fleet, Outage
from tests.random_requests import SLOT_S, draw_requests

TICK_S = 2.0**-20
PREEMPTIONS = ("recompute", "recompute", "recompute", "swap", "swap", "never")
ROUTERS = (
    "round_robin",
    "least_outstanding",
    "power_of_two",
    "prefix_affinity",
    "shared_queue",
)


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
    fleet: Fleet
    drafted_per_step: int

    def describe(self) -> str:
        requests = self.requests
        return (
            f"seed {self.seed}: {len(requests.prompt_tokens)} requests in "
            f"{int((requests.turn == 0).sum())} sessions, users {requests.users}, "
            f"{len(requests.prefixes.keys)} prefix nodes, {int((requests.keeps > 0).sum())} kept\n"
            f"{self.fleet}\n{self.rules}\n{self.cost}"
        )


def random_case(seed: int) -> Case:
    """Draw one case. The same seed always gives the same case."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(0, 6))
    replicas = int(rng.choice([1, 1, 2, 2, 3, 4]))
    block_tokens = int(rng.choice([4, 8, 16]))
    prefix_cache = bool(rng.random() < 0.7)
    n = int(rng.integers(5, 61))
    requests = draw_requests(rng, n, block_tokens, replicas)
    rules = draw_rules(rng, requests, k, block_tokens, prefix_cache)
    cost = draw_cost(rng)
    return Case(
        seed=seed,
        requests=requests,
        paths=draw_paths(rng, requests.output_tokens, k),
        rules=rules,
        cost=cost,
        fleet=draw_fleet(rng, seed, replicas, requests, cost),
        drafted_per_step=k,
    )


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
    room = float(rng.choice([0.0, 0.1, 0.25, 0.5, 1.2]))
    longest = int(total.max()) if rng.random() < 0.85 else int(np.quantile(total, 0.9))
    return Rules(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=budget,
        max_model_len=longest,
        block_tokens=block_tokens,
        n_blocks=max(1, largest + int(rng.integers(0, 12)), int(room * crowd)),
        slots=slots,
        kv=KvUse(KvLayout(block_tokens, slots)),
        width=k + 1,
        async_scheduling=bool(rng.random() < 0.6),
        prefix_cache=cache,
        drop_matched_block=bool(k and rng.random() < 0.5),
        preemption=str(rng.choice(PREEMPTIONS)),  # type: ignore[arg-type]
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


def draw_fleet(
    rng: np.random.Generator, seed: int, replicas: int, requests: SimpleNamespace, cost: Cost
) -> Fleet:
    step_s = cost.coefficients[0] * TICK_S
    decoding_s = float(np.mean(requests.output_tokens)) * step_s
    rounds = len(requests.turn) / (requests.users or len(requests.turn))
    span_s = float(np.nanmax(requests.arrival_s)) + (1 + rounds) * decoding_s + 10 * step_s
    refresh_s = float(rng.choice([1, 5, 20])) * step_s
    return Fleet(
        replicas=replicas,
        router=str(rng.choice(ROUTERS)),
        refresh_s=off_grid(rng, refresh_s) if rng.random() < 0.4 else 0.0,
        queue_limit=int(rng.choice([1, 2, 3, 6])) if rng.random() < 0.4 else None,
        client=draw_client(rng, step_s, decoding_s),
        outages=draw_outages(rng, replicas, span_s) if rng.random() < 0.45 else (),
        seed=seed,
    )


def draw_client(rng: np.random.Generator, step_s: float, decoding_s: float) -> Client:
    """Draw one that waits for ever, or now and then not long enough; and some retries."""
    patient = rng.random() < 0.5
    whole_s = decoding_s * float(rng.choice([0.5, 1, 2, 4, 16])) + 2 * step_s
    first_s = step_s * float(rng.choice([1.5, 4, 16, 64]))
    whole, first = ((True, True), (True, False), (False, True))[int(rng.integers(3))]
    return Client(
        timeout_s=None if patient or not whole else off_grid(rng, whole_s),
        first_token_timeout_s=None if patient or not first else off_grid(rng, first_s),
        retries=int(rng.choice([0, 0, 1, 2, 4])),
        backoff_s=off_grid(rng, float(rng.choice([0.5, 3, 20])) * step_s),
        backoff_factor=float(rng.choice([1, 1.5, 2])),
        jitter=float(rng.choice([0, 0.5, 1])),
    )


def draw_outages(rng: np.random.Generator, replicas: int, span_s: float) -> tuple[Outage, ...]:
    """Draw one to three, while requests come; a quarter of the replicas never come back."""
    outages = []
    for _ in range(int(rng.integers(1, 4))):
        at_s = off_grid(rng, float(rng.random()) * span_s)
        up_s = at_s + off_grid(rng, float(rng.choice([0.02, 0.1, 0.5])) * span_s)
        outages.append(
            Outage(
                replica=int(rng.integers(replicas)),
                at_s=at_s,
                up_s=None if rng.random() < 0.25 else up_s,
                resend=bool(rng.random() < 0.5),
            )
        )
    return tuple(outages)


def off_grid(rng: np.random.Generator, time_s: float) -> float:
    """Round to whole ticks and add an odd fraction of one."""
    return (int(time_s / TICK_S) + (2 * int(rng.integers(512)) + 1) / 1024) * TICK_S
