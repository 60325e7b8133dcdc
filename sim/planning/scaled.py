"""Step times with their decode and their prompt part off by factors of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace

from models.step_cost import StepCost
from sim.engine.simulate import Plan


@dataclass(frozen=True)
class Scaled:
    """A step cost, its parts multiplied; as ``StepCost``.

    Attributes
    ----------
    cost : StepCost
    decode_factor : float
        On what a step takes without its prompts.
    prefill_factor : float
        On what its prompts add to that.
    """

    cost: StepCost
    decode_factor: float
    prefill_factor: float

    def decode(self, n: int, ctx: int) -> float:
        """See ``StepCost.decode``."""
        return self.decode_factor * self.cost.decode(n, ctx)

    def mixed(
        self,
        n: int,
        ctx: float,
        query_tokens: int,
        query_ctx: float,
        prefill_tokens: int = 0,
        prefill_ctx: float = 0.0,
        pairs: float = 0.0,
        finishing: int = 0,
    ) -> float:
        """See ``StepCost.mixed``."""
        decoding = n, ctx, query_tokens, query_ctx
        alone = self.cost.mixed(*decoding) if n else 0.0
        whole = self.cost.mixed(*decoding, prefill_tokens, prefill_ctx, pairs, finishing)
        return self.decode_factor * alone + self.prefill_factor * (whole - alone)

    def host_s(self, sequences: int, drafted: int = 0) -> float:
        """See ``StepCost.host_s``; as it is."""
        return self.cost.host_s(sequences, drafted)

    def draft_s(
        self,
        sequences: int,
        tokens: int,
        ctx: float,
        query_ctx: float,
        pairs: float,
        prompt_tokens: float = 0.0,
    ) -> float:
        """See ``StepCost.draft_s``; as it is."""
        return self.cost.draft_s(sequences, tokens, ctx, query_ctx, pairs, prompt_tokens)


def scaled(plan: Plan, decode_factor: float, prefill_factor: float) -> Plan:
    """A plan whose steps are off in part.

    Strategies with several step costs take the decode factor on whole steps.
    """
    if plan.modes is not None:
        return replace(plan, scale=plan.scale * decode_factor)
    return replace(plan, cost=Scaled(plan.cost, decode_factor, prefill_factor))
