"""A profile: the fitted kernel constants of one device, and how far they were wrong."""

from __future__ import annotations

from pydantic import Field

from models.schema import Basis, Constant, Fraction, Frozen, KvDtype, PositiveInt


class GemmConstants(Frozen):
    """``max(flops / (compute peak), bytes / (memory bandwidth)) + launch_us``."""

    compute: Constant
    memory: Constant
    launch_us: Constant
    quantise_us: Constant | None = None


class AttentionConstants(Frozen):
    """Decode attention of one layer: ``launch_us + KV bytes / (memory bandwidth)``."""

    memory: Constant
    launch_us: Constant


class LargeAllReduce(Frozen):
    """All-reduce of large messages."""

    from_bytes: PositiveInt
    latency_us: Constant
    efficiency: Constant


class AllReduceConstants(Frozen):
    """``latency_us + 2 (tp-1)/tp bytes / (efficiency bandwidth)`` for one group size.

    ``large`` replaces both constants for messages of ``from_bytes`` and more, where the engine
    changes from one exchange of everything to reduce-scatter and all-gather.
    """

    latency_us: Constant
    efficiency: Constant
    large: LargeAllReduce


class ElementwiseConstants(Frozen):
    """Norms, rotary embedding, activation of one layer: ``fixed_us + bytes / (memory bw)``."""

    fixed_us: Constant
    qk_norm_factor: Constant
    memory: Constant


class MoeConstants(Frozen):
    """Grouped expert GEMMs of one layer, and the router in front of them."""

    compute: Constant
    memory: Constant
    fixed_us: Constant
    router_us: Constant


class HeadConstants(Frozen):
    """LM head beyond its GEMM: logits traffic and small kernels, of the target and of Medusa."""

    fixed_us: Constant
    logit_bytes: Constant
    medusa_kernel_us: Constant
    medusa_logit_bytes: Constant


class Residual(Frozen):
    """Relative step-time error seen against real runs, as a 90 % interval.

    Attributes
    ----------
    family : str
        Strategy family, or ``"*"``.
    engine : str
        Engine family the runs used, or ``"*"``.
    m_max : int or None
        Largest query tokens a step this row speaks for; None for any.
    lo, hi : float
        5 % and 95 % quantile of measured / predicted.
    basis : str
        ``validated`` where it was scored on runs of this very kind.
    source : str
        The runs.
    """

    family: str
    engine: str
    m_max: PositiveInt | None = None
    lo: float = Field(gt=0, le=1)
    hi: float = Field(ge=1)
    basis: Basis
    source: str


class Profile(Frozen):
    """Kernel constants of one device. Times in microseconds, efficiencies as fractions of peak."""

    name: str
    device: str
    engine: str
    date: str
    source: str
    valid_m: tuple[PositiveInt, PositiveInt]
    gemm: dict[str, GemmConstants]
    attention: dict[KvDtype, AttentionConstants]
    prefill_attention: Constant
    all_reduce: dict[int, AllReduceConstants]
    elementwise: ElementwiseConstants
    moe: MoeConstants
    head: HeadConstants
    residuals: tuple[Residual, ...] = Field(min_length=1)
    level: Fraction = 0.9

    def residual(self, family: str, engine: str, m: float) -> Residual:
        """Residual row for a strategy family on an engine family at ``m`` query tokens a step.

        The most specific row wins: family and engine, then family, then the catch-all; among
        those the smallest ``m_max`` that still holds ``m``.
        """
        matching = [
            r
            for r in self.residuals
            if r.family in (family, "*")
            and r.engine in (engine, "*")
            and (r.m_max is None or m <= r.m_max)
        ]
        if not matching:
            raise ValueError(f"profile {self.name} has no residual row for {family} on {engine}")
        return min(
            matching,
            key=lambda r: (r.family == "*", r.engine == "*", r.m_max is None, r.m_max or 0),
        )
