"""How far predicted steps were from real serving runs, by engine and strategy family."""

from __future__ import annotations

from pydantic import Field

from models.schema import Basis, Dtype, Frozen, PositiveInt

LEVEL = 0.9
"""Share of outcomes between the two quantiles of a residual."""


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
    scored_engines, scored_weights, scored_devices : tuple of str
        Engine versions, weight types and GPUs of those runs; elsewhere ``validated`` is read as
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
    scored_devices: tuple[str, ...] = ()
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

    def basis_for(self, engine: str, weights: Dtype, mixture: bool, device: str) -> Basis:
        """Basis for one engine version, weight type, kind of model and GPU."""
        scored = engine in self.scored_engines and weights in self.scored_weights
        scored = scored and device in self.scored_devices
        if self.basis == "validated" and not (scored and (self.scored_mixtures or not mixture)):
            return "extrapolated"
        return self.basis


class Residuals(Frozen):
    """Residuals of steps, and of computing prompts on top of them.

    One entry of the catalogue holds those of one engine family; ``title`` and ``source`` say what
    was scored.
    """

    name: str = ""
    title: str = ""
    source: str = ""
    steps: tuple[Residual, ...] = ()
    prefill: tuple[Residual, ...] = ()

    def of_step(self, family: str, engine: str, weights: Dtype, m: float) -> Residual:
        """Step-time residual of a strategy family on an engine family at ``m`` tokens a step.

        The most specific row wins: by family, engine and weights named, then the smallest
        ``m_max`` that still holds ``m``.

        Raises
        ------
        ValueError
            If no row matches.
        """
        return _most_specific(self.steps, family, engine, weights, m)

    def of_prefill(self, engine: str, weights: Dtype) -> Residual:
        """Residual of computing a prompt, on top of that of the step."""
        return _most_specific(self.prefill, "*", engine, weights, 0.0)


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
