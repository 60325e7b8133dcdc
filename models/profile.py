"""A profile: the fitted kernel constants of one device, and how far they were off."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field, field_validator, model_validator

from models.hardware import Accelerator
from models.kernel_constants import (
    AllReduceConstants,
    AttentionConstants,
    ElementwiseConstants,
    GemmConstants,
    HeadConstants,
    MoeConstants,
    PrefillAttentionConstants,
    VerifyAttentionConstants,
)
from models.schema import Frozen, KvDtype, ModelError, NonNegative, Positive
from models.strict_yaml import Document, show, validate

VERSION: Final = 2
"""Version of the schema; a profile of another one is refused."""

NonNegativeInt = Annotated[int, Field(ge=0)]
Range = tuple[NonNegativeInt, NonNegativeInt]
Operation = Literal["gemm", "attention", "all_reduce", "moe", "elementwise", "layer"]


class TimedTable(Frozen):
    """Kernels a fit used: of which operation and version, how many rows, how many left out."""

    operation: str
    kernel: str = ""
    version: str = ""
    rows: NonNegativeInt
    flagged: NonNegativeInt = 0


class Provenance(Frozen):
    """How a profile came about: the package measured with, what fitted it, and from which rows."""

    package: str
    speccast: str
    command: str
    tables: tuple[TimedTable, ...] = ()


class Valid(Frozen):
    """What the fit has seen: tokens a step, context of a sequence, sequences; None: not said."""

    m: Range
    context_tokens: Range | None = None
    batch: Range | None = None

    @field_validator("m", "context_tokens", "batch")
    @classmethod
    def _rising(cls, value: Range | None) -> Range | None:
        if value is not None and value[0] > value[1]:
            raise ValueError(f"must rise, got {list(value)}")
        return value


class KernelResidual(Frozen):
    """Error of fitted kernels on rows the fit has not seen; of layers, on all rows.

    Attributes
    ----------
    operation, dtype : str
        What was timed; ``layer`` is a whole decoder layer put together from measured kernels.
    m : (int, int) or None
        Tokens a step it speaks for; None: any.
    median, p90 : float
        Of the absolute relative error, over ``rows`` rows.
    lo, hi : float
        The 5 % and 95 % quantile of measured/fitted.
    """

    operation: Operation
    dtype: str
    m: Range | None = None
    rows: NonNegativeInt
    median: NonNegative
    p90: NonNegative
    lo: Positive
    hi: Positive

    def matches(self, operation: str, dtype: str, m: float) -> bool:
        """Whether it speaks for an operation at ``m`` tokens a step."""
        inside = self.m is None or self.m[0] <= m <= self.m[1]
        return (self.operation, self.dtype) == (operation, dtype) and inside


class TableWhere(Frozen):
    """Tokens a step, by type, for which measured rows beat the closed form."""

    gemm: dict[str, Range] = Field(default={})


class Profile(Frozen):
    """Kernel constants of one device. Times in microseconds, efficiencies as fractions of peak.

    Attributes
    ----------
    version : int
        Version of this schema.
    device : str
        Catalogue name of the device they were measured on, or the name of ``accelerator``.
    accelerator : Accelerator or None
        The device itself, where the catalogue does not have it.
    table : str or None
        File of the measured rows (Parquet), relative to the folder of the profile.
    table_where : TableWhere
        Where the measured rows replace the closed form unless the scenario says otherwise.
    all_reduce, moe, verify_attention
        Left out where they were not measured; needing them is an error, but verification then
        takes the constants of ``prefill_attention``.
    residuals : tuple of KernelResidual
        Errors of the kernels, not of serving.
    """

    version: Literal[2] = VERSION
    name: str
    device: str
    engine: str
    date: str
    source: str
    accelerator: Accelerator | None = None
    provenance: Provenance | None = None
    valid: Valid
    table: str | None = None
    table_where: TableWhere = TableWhere()
    gemm: dict[str, GemmConstants] = Field(min_length=1)
    attention: dict[KvDtype, AttentionConstants] = Field(min_length=1)
    prefill_attention: PrefillAttentionConstants
    verify_attention: VerifyAttentionConstants | None = None
    all_reduce: dict[int, AllReduceConstants] = Field(default={})
    elementwise: ElementwiseConstants
    moe: MoeConstants | None = None
    head: HeadConstants
    residuals: tuple[KernelResidual, ...] = ()

    @field_validator("gemm")
    @classmethod
    def _with_bf16(cls, gemm: dict[str, GemmConstants]) -> dict[str, GemmConstants]:
        if "bf16" not in gemm:
            raise ValueError(f"needs bf16, the type of LM heads, got {', '.join(gemm)}")
        return gemm

    @model_validator(mode="after")
    def _of_one_device(self) -> Profile:
        if self.accelerator is not None and self.accelerator.name != self.device:
            raise ModelError(
                f"must be the name of the accelerator, '{self.accelerator.name}', "
                f"got '{self.device}'",
                "device",
            )
        return self

    def attention_of(self, kv: KvDtype) -> AttentionConstants:
        """Constants of decode attention; of int4, where none were measured, those of fp8."""
        measured = self.attention
        return measured["fp8" if kv == "int4" and kv not in measured else kv]

    def kernel_residual(self, operation: str, dtype: str, m: float) -> KernelResidual | None:
        """Error of an operation at ``m`` tokens a step, from the narrowest row that speaks of it.

        Beyond all of them that of the nearest; None where there is no row of the operation.
        """
        matching = [row for row in self.residuals if row.matches(operation, dtype, m)]
        if matching:
            return min(matching, key=_width)
        own = [row for row in self.residuals if (row.operation, row.dtype) == (operation, dtype)]
        return min(own, key=lambda row: _distance(row, m), default=None)


def _width(row: KernelResidual) -> float:
    return float("inf") if row.m is None else row.m[1] - row.m[0]


def _distance(row: KernelResidual, m: float) -> float:
    assert row.m is not None
    return max(row.m[0] / m, m / row.m[1])


def profile_of(document: Document) -> Profile:
    """Profile described by a document.

    Raises
    ------
    InputError
        If it is of another version of the schema, or wrong.
    """
    data = document.data if isinstance(document.data, dict) else {}
    version = data.get("version", 1 if "valid_m" in data else VERSION)
    if version != VERSION:
        raise document.error(
            "version",
            f"must be {VERSION}, the profiles this speccast reads; write it anew with "
            f"`speccast calibrate`, got {show(version)}",
        )
    return validate(Profile, document)
