"""A profile: the fitted kernel constants of one device, and how far they were wrong."""

from __future__ import annotations

from pydantic import Field

from models.schema import Basis, Constant, Dtype, Fraction, Frozen, KvDtype, PositiveInt


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
    """Relative error seen against real runs, as the 5 % and 95 % quantile of measured/predicted.

    Attributes
    ----------
    family : tuple of str
        Strategy families it speaks for; ``("*",)`` any.
    engine : str
        Engine family the runs used, or ``"*"``.
    weights : tuple of str
        Weight types it speaks for; empty: any.
    m_max : int or None
        Largest query tokens a step it speaks for; None: any.
    lo, hi : float
        The quantiles.
    basis : str
        ``validated`` where it was scored on runs of this very kind.
    scored_engines, scored_weights : tuple of str
        Engine versions and weight types of those runs; elsewhere ``validated`` is read as
        ``extrapolated``.
    scored_mixtures : bool
        Mixtures of experts were among them.
    source : str
        The runs.
    """

    family: tuple[str, ...] = ("*",)
    engine: str = "*"
    weights: tuple[Dtype, ...] = ()
    m_max: PositiveInt | None = None
    lo: float = Field(gt=0, le=1)
    hi: float = Field(ge=1)
    basis: Basis
    scored_engines: tuple[str, ...] = ()
    scored_weights: tuple[Dtype, ...] = ("bf16",)
    scored_mixtures: bool = False
    source: str

    def matches(self, family: str, engine: str, weights: Dtype, m: float) -> bool:
        """Whether it speaks for this strategy and engine family at ``m`` query tokens a step."""
        return (
            (family in self.family or "*" in self.family)
            and self.engine in (engine, "*")
            and (not self.weights or weights in self.weights)
            and (self.m_max is None or m <= self.m_max)
        )

    def basis_for(self, engine: str, weights: Dtype, mixture: bool) -> Basis:
        """Basis for one engine version, weight type and kind of model."""
        scored = engine in self.scored_engines and weights in self.scored_weights
        if self.basis == "validated" and not (scored and (self.scored_mixtures or not mixture)):
            return "extrapolated"
        return self.basis


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
    prefill_residuals: tuple[Residual, ...] = Field(min_length=1)
    level: Fraction = 0.9

    def residual(self, family: str, engine: str, weights: Dtype, m: float) -> Residual:
        """Step-time residual of a strategy family on an engine family at ``m`` tokens a step.

        The most specific row wins: by family, engine and weights named, then the smallest
        ``m_max`` that still holds ``m``.

        Raises
        ------
        ValueError
            If no row matches.
        """
        return _most_specific(self.residuals, family, engine, weights, m)

    def prefill_residual(self, engine: str, weights: Dtype) -> Residual:
        """Residual of computing a prompt, on top of that of the step."""
        return _most_specific(self.prefill_residuals, "*", engine, weights, 0.0)


def _most_specific(
    rows: tuple[Residual, ...], family: str, engine: str, weights: Dtype, m: float
) -> Residual:
    matching = [row for row in rows if row.matches(family, engine, weights, m)]
    if not matching:
        raise ValueError(f"no residual row for {family} on {engine} with {weights} weights")
    return min(
        matching,
        key=lambda r: ("*" in r.family, r.engine == "*", not r.weights, r.m_max or float("inf")),
    )
