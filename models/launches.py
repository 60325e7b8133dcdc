"""Launch overhead of an engine mode: what a step and a draft pass cost the host besides."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from models.schema import Frozen

Microseconds = Annotated[float, Field(ge=0, le=1e9)]


class Launches(Frozen):
    """Time to launch kernels that no engine constant has in it; nothing hides it.

    Claimed by a write-up of production use of TensorRT-LLM on H100s, never measured here: 1.4 ms
    a step eagerly, .18 ms with CUDA graphs and fused tree attention.
    """

    per_step_us: Microseconds = Field(
        default=0.0,
        description="More time of every step [us]. Claimed of TensorRT-LLM on H100: 1400 eager, "
        "180 with CUDA graphs and fused tree attention; not measured here.",
    )
    per_pass_us: Microseconds = Field(
        default=0.0,
        description="More time of every draft pass [us]; heads run within the target's pass.",
    )
    plain: bool = Field(
        default=True, description="Whether steps of plain decoding pay per_step_us as well."
    )

    def step_us(self, drafts: bool) -> float:
        """More time of a step, with a strategy that drafts or without [us]."""
        return self.per_step_us if drafts or self.plain else 0.0


NO_LAUNCHES = Launches()
