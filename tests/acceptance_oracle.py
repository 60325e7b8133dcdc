"""Decoding as the equations of acceptance state it, one step after another."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from calibration.acceptance.trace import Trace


class Truth(NamedTuple):
    """Parameters of one domain, as in the law."""

    logits: tuple[float, ...]
    spread: float = 0.0
    step_spread: float = 0.0
    step_memory: float = 0.0
    context_slope: float = 0.0
    reference: float = 200.0


class MatchTruth(NamedTuple):
    """Parameters of n-gram lookup in one domain, as logits."""

    enter: float
    stay: float
    logits: tuple[float, ...]
    spread: float = 0.0
    step_spread: float = 0.0
    step_memory: float = 0.0


def sigmoid(x: float) -> float:
    return 1.0 / (1.0 + np.exp(-x))


def levels_passed(rng: Any, logits: tuple[float, ...], shift: float) -> int:
    for i, logit in enumerate(logits):
        if rng.random() >= sigmoid(logit + shift):
            return i
    return len(logits)


def request(rng: Any, truth: Truth, tokens: int, prompt: int) -> list[tuple[int, int, int]]:
    """(accepted, drafted, context) of each step."""
    z = rng.standard_normal()
    e = rng.standard_normal()
    steps, emitted = [], 0
    while emitted < tokens:
        if steps and rng.random() >= truth.step_memory:
            e = rng.standard_normal()
        context = prompt + 1 + emitted
        shift = truth.spread * z + truth.step_spread * e
        shift += truth.context_slope * np.log2(context / truth.reference)
        accepted = levels_passed(rng, truth.logits, shift)
        steps.append((accepted, len(truth.logits), context))
        emitted += accepted + 1
    return steps


def lookup(rng: Any, truth: MatchTruth, tokens: int, prompt: int) -> list[tuple[int, int, int]]:
    """The same for n-gram lookup."""
    z = rng.standard_normal()
    e = rng.standard_normal()
    steps, emitted, whole = [], 0, False
    while emitted < tokens:
        if steps and rng.random() >= truth.step_memory:
            e = rng.standard_normal()
        shift = truth.spread * z + truth.step_spread * e
        match = rng.random() < sigmoid((truth.stay if whole else truth.enter) + shift)
        accepted = levels_passed(rng, truth.logits, shift) if match else 0
        whole = match and accepted == len(truth.logits)
        drafted = len(truth.logits) if match else 0
        steps.append((accepted, drafted, prompt + 1 + emitted))
        emitted += accepted + 1
    return steps


def trace(
    truth: Truth | MatchTruth,
    requests: int,
    tokens: int = 128,
    seed: int = 0,
    prompts: tuple[int, int] = (60, 400),
) -> Trace:
    """Recorded requests."""
    rng = np.random.default_rng(seed)
    draw: Any = request if isinstance(truth, Truth) else lookup
    made = [draw(rng, truth, tokens, int(rng.integers(*prompts))) for _ in range(requests)]
    flat = np.array([step for one in made for step in one], dtype=np.int64)
    offsets = np.concatenate(([0], np.cumsum([len(one) for one in made])))
    return Trace(offsets, *flat.T)
