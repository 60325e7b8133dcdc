"""Cases for the plain loop small enough to work out by hand. Every step takes 1 s."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from sim.engine.rules import Rules
from tests import server
from tests.plain_loop import simulate
from tests.plain_records import Result
from tests.random_case import Paths
from tests.random_requests import as_prefixes

RULES = replace(
    server.RULES,
    max_num_seqs=4,
    max_num_batched_tokens=16,
    max_model_len=1000,
    block_tokens=4,
    n_blocks=100,
)


def make_requests(*rows: tuple[float, int, int], **more: Any) -> SimpleNamespace:
    """Make requests of (arrival, prompt, output); `chains` lists (key, end) of shared nodes."""
    arrival_s, prompt, output = zip(*rows, strict=True)
    n = len(rows)
    return SimpleNamespace(
        arrival_s=np.array(arrival_s, dtype=float),
        prompt_tokens=np.array(prompt),
        output_tokens=np.array(output),
        prefixes=as_prefixes(more.get("chains", [[]] * n)),
        keeps=np.array(more.get("keeps", [0] * n)),
        turn=np.array(more.get("turn", [0] * n)),
        think_s=np.array(more.get("think_s", [0.0] * n)),
        users=more.get("users"),
    )


def make_paths(requests: SimpleNamespace, *steps: list[int]) -> Paths:
    """Make paths of what each step emits; without any, one token a step."""
    emitted = steps or tuple([1] * (int(tokens) - 1) for tokens in requests.output_tokens)
    flat = np.array([tokens for path in emitted for tokens in path], dtype=int)
    offsets = np.cumsum([0, *(len(path) for path in emitted)])
    return Paths(offsets, flat, np.ones_like(flat) if steps else flat * 0, None, None)


def serve(requests: SimpleNamespace, rules: Rules, *steps: list[int], **more: Any) -> Result:
    return simulate(requests, make_paths(requests, *steps), rules, lambda *work: 1.0, **more)


def column(result: Result, name: str) -> list[Any]:
    return [getattr(step, name) for step in result.steps]


def gaps(result: Result) -> dict[float, int]:
    total: Counter[float] = Counter()
    for gap_s, count in result.itl:
        total[gap_s] += count
    return dict(total)
