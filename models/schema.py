"""The base classes every described thing is built from: frozen, strict, with sources."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Dtype = Literal["bf16", "fp8", "int8", "int4"]
KvDtype = Literal["bf16", "fp8", "int4"]
Basis = Literal["validated", "extrapolated", "assumed"]

Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]
Fraction = Annotated[float, Field(gt=0, le=1)]
PositiveInt = Annotated[int, Field(gt=0)]

BYTES_PER_WEIGHT: dict[str, float] = {"bf16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}
# int4: half a byte, and a scale and a zero point in fp16 for the 128 values of a head and token, as
# LMDeploy quantises (asymmetric, by head and token: docs/en/quantization/kv_quant.md of v0.4).
BYTES_PER_KV: dict[str, float] = {"bf16": 2.0, "fp8": 1.0, "int4": 0.5 + 4 / 128}


_WEAKER: tuple[Basis, ...] = ("validated", "extrapolated", "assumed")


def weakest(bases: Iterable[Basis]) -> Basis:
    """The least certain of several bases: what a prediction made of all of them rests on."""
    return max(bases, key=_WEAKER.index)


class Frozen(BaseModel):
    """A value object: immutable, unknown keys and NaN refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ModelError(ValueError):
    """What was asked contradicts the model; ``key`` is the dotted key at fault, where known."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class Constant(Frozen):
    """One measured number.

    Attributes
    ----------
    value : float
        The number, in the unit its field name carries.
    se : float or None
        Standard error, same unit; None where the source gives none.
    source : str
        Where it was measured or read.
    fitted_on : str or None
        The data a fit used; None when the number was read, not fitted.
    """

    value: float
    se: NonNegative | None = None
    source: str
    fitted_on: str | None = None
