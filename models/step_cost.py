"""What an engine asks about time."""

from __future__ import annotations

from typing import Protocol


class StepCost(Protocol):
    """Seconds of engine steps; ``models.step_time.StepTime`` is one."""

    def decode(self, n: int, ctx: int) -> float:
        """Full-width decode step without prefill [s]."""
        ...

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
        """Any step [s]."""
        ...

    def host_s(self, sequences: int, drafted: int = 0) -> float:
        """Host part of a step that verifies ``drafted`` tokens [s]."""
        ...

    def draft_s(
        self,
        sequences: int,
        tokens: int,
        ctx: float,
        query_ctx: float,
        pairs: float,
        prompt_tokens: float = 0.0,
    ) -> float:
        """Draft part of a step [s]."""
        ...
