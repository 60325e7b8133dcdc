"""Accelerators: memory, bandwidth, peak rates and links, each number with its source."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from models.schema import Dtype, Frozen, ModelError, NonNegative, Positive, PositiveInt


class Interconnect(Frozen):
    """Link between the GPUs of one tensor-parallel group.

    ``bandwidth_bytes_per_s`` is per GPU and per direction; ``largest_group`` is how many GPUs it
    joins (two cards under an NVLink bridge).
    """

    kind: Literal["nvlink", "pcie"]
    bandwidth_bytes_per_s: Positive
    largest_group: PositiveInt


class Accelerator(Frozen):
    """One GPU as the runtime sees it.

    Attributes
    ----------
    memory_bytes : float
        Memory the CUDA runtime reports as total [byte], below the nominal size.
    memory_bandwidth_bytes_per_s : float
        Datasheet HBM or GDDR bandwidth [byte/s].
    peak_flops : dict
        Dense peak by operand type [FLOP/s]; a missing type cannot be computed on.
    interconnect : Interconnect or None
        None where no multi-GPU link constants exist: ``tp > 1`` is then refused.
    host_link_bytes_per_s : float
        GPU to host memory, one direction [byte/s]; prices swapping.
    price_per_gpu_hour : float
        Dated list price used when the user gives none; 0: not known.
    profile : str
        Catalogue profile holding this device's kernel constants; empty where the profile holds
        the device.
    profile_by_engine : dict
        Another profile for an engine family that brings its own kernels.
    large_batch_defaults : bool
        vLLM's OpenAI server picks 8192 tokens and 1024 sequences a step here, else 2048 and 256.
    source : str
        Where the numbers were read.
    """

    name: str
    title: str
    memory_bytes: Positive
    memory_bandwidth_bytes_per_s: Positive
    peak_flops: dict[Literal["bf16", "fp8", "int8"], Positive] = Field(min_length=1)
    interconnect: Interconnect | None = None
    host_link_bytes_per_s: Positive
    price_per_gpu_hour: NonNegative = 0.0
    profile: str = ""
    profile_by_engine: dict[str, str] = Field(default={})
    large_batch_defaults: bool = False
    source: str

    @field_validator("peak_flops")
    @classmethod
    def _with_bf16(cls, peaks: dict[str, float]) -> dict[str, float]:
        if "bf16" not in peaks:
            raise ValueError(f"needs bf16, the type of attention, got {', '.join(peaks)}")
        return peaks

    def profile_for(self, family: str) -> str:
        """Catalogue profile of its kernels under an engine family."""
        return self.profile_by_engine.get(family, self.profile)

    def check_group(self, tp: int) -> None:
        """Refuse a tensor-parallel group the link does not join.

        Raises
        ------
        ModelError
            If ``tp`` GPUs have no link, or not one that joins so many.
        """
        if tp == 1:
            return
        if self.interconnect is None:
            raise ModelError(f"{self.name} has no interconnect, so only 1 works, got {tp}")
        if tp > self.interconnect.largest_group:
            most = self.interconnect.largest_group
            raise ModelError(f"the link of {self.name} joins at most {most} GPUs, got {tp}")

    def compute_dtype(self, weights: Dtype) -> Literal["bf16", "fp8", "int8"]:
        """Type the tensor cores compute in for these weights; weight-only types compute in bf16.

        Raises
        ------
        ModelError
            If the device has no unit for that type (fp8 on an A100).
        """
        if weights == "fp8":
            if "fp8" not in self.peak_flops:
                raise ModelError(f"{self.title} has no fp8 tensor cores, got weights 'fp8'")
            return "fp8"
        return "bf16"
