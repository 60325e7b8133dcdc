"""Steps of one replica in a steady state: decoding, and prefills beside what decodes."""

from __future__ import annotations

from typing import NamedTuple

from models.step_cost import StepCost
from sim.engine.rules import Rules


class Beside(NamedTuple):
    """What decodes in a step.

    Attributes
    ----------
    n : int
        Sequences.
    context, width, cold : float
        Context each attends to, its query tokens, and the tokens it fetches [token].
    """

    n: int
    context: float
    width: float
    cold: float = 0.0

    @property
    def query_tokens(self) -> int:
        """Query tokens of them all."""
        return round(self.n * self.width)

    @property
    def sums(self) -> tuple[int, float, int, float]:
        """First arguments of `models.step_cost.StepCost.mixed`."""
        ctx = self.n * self.context
        return self.n, ctx, self.query_tokens, ctx * self.width


def decode_s(cost: StepCost, rules: Rules, beside: Beside) -> float:
    """A step without prefill [s]."""
    return rules.kv.fetch_s(cost.mixed(*beside.sums), beside.n * beside.cold)


def prefill_s(
    cost: StepCost, rules: Rules, beside: Beside, computed: float, cached: float
) -> tuple[float, int]:
    """Steps that prefill one request beside what decodes [s], and how many they are.

    Parameters
    ----------
    cost, rules : StepCost, Rules
    beside : Beside
        Nothing, where prefills have steps of their own. A full batch leaves no room until a
        sequence of it has finished.
    computed, cached : float
        Prompt tokens computed, and found in the cache.
    """
    budget = rules.max_num_batched_tokens
    beside = beside._replace(n=min(beside.n, max(0, int(budget / beside.width) - 1)))
    steps = max(1, -(-round(computed) // (budget - beside.query_tokens)))
    tokens, seconds, done = round(computed / steps), 0.0, cached
    for index in range(steps):
        pairs = tokens * done + tokens**2 / 2
        done += tokens
        step = cost.mixed(*beside.sums, tokens, done, pairs, int(index == steps - 1))
        seconds += rules.kv.fetch_s(step, beside.n * beside.cold)
    return seconds, steps
