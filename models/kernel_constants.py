"""The fitted constants of each kernel: what a profile holds of one device."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, field_validator, model_validator

from models.schema import Constant, Frozen, ModelError, PositiveInt

HIGHEST_SHARE = 10.0
"""Shares of a datasheet pass 1 where data was found in a cache, but not by an order."""


def _share(constant: Constant) -> Constant:
    if not 0 < constant.value <= HIGHEST_SHARE:
        raise ValueError(f"value must be above 0 and at most {HIGHEST_SHARE:g}")
    return constant


def _not_negative(constant: Constant) -> Constant:
    if constant.value < 0:
        raise ValueError("value must not be negative")
    return constant


def _positive(constant: Constant) -> Constant:
    if constant.value <= 0:
        raise ValueError("value must be above 0")
    return constant


Share = Annotated[Constant, AfterValidator(_share)]
"""Share of a peak rate or bandwidth."""

Factor = Annotated[Constant, AfterValidator(_positive)]
"""Factor or exponent."""

Least = Annotated[Constant, AfterValidator(_not_negative)]
"""Fixed time or size."""


class TileStep(Frozen):
    """Tile of a GEMM up to ``up_to_m`` rows, which it pads to ``pad_rows``; None: and beyond."""

    up_to_m: PositiveInt | None
    pad_rows: PositiveInt
    tile_rows: PositiveInt
    tile_columns: PositiveInt


class Tiles(Frozen):
    """Waves of tiles over ``sms`` streaming multiprocessors: a part of a wave costs nearly one.

    ``wave_exponent`` 1 charges the whole wave, 0 only the part; ``norm`` is the p of the p-norm
    that joins both roofs; ``unaligned`` is how much longer rows compute that are no multiple of 16.
    """

    sms: PositiveInt
    steps: tuple[TileStep, ...] = Field(min_length=1)
    wave_exponent: Least
    norm: Factor
    unaligned: Least | None = None

    @field_validator("steps")
    @classmethod
    def _rising(cls, steps: tuple[TileStep, ...]) -> tuple[TileStep, ...]:
        *ends, last = [step.up_to_m for step in steps]
        known = [end for end in ends if end is not None]
        if last is not None or known != ends or known != sorted(set(known)):
            raise ValueError("up_to_m must rise from step to step and be null in the last")
        return steps


class FewTiles(Frozen):
    """Fewer tiles than the ``sms`` streaming multiprocessors leave some of them idle.

    ``exponent`` 0: splitting k keeps all of them busy; 1: each works alone on a tile for all of k.
    """

    sms: PositiveInt
    tile_rows: PositiveInt
    tile_columns: PositiveInt
    exponent: Least


class GemmConstants(Frozen):
    """``max(flops / (compute peak), bytes / (memory bandwidth)) + launch_us``.

    With ``norm`` the p-norm of both instead of the larger: near the ridge neither hides the other
    wholly. ``few_tiles`` lengthens computing where the output is small, ``tile`` adds tiles and
    waves, with a norm of their own. Activations are quantised by a kernel of ``quantise_us``
    before, or, where what was timed is the layer that does so, at ``quantise_memory`` of the
    bandwidth.
    """

    compute: Share
    memory: Share
    launch_us: Least
    quantise_us: Least | None = None
    quantise_memory: Share | None = None
    norm: Factor | None = None
    few_tiles: FewTiles | None = None
    tile: Tiles | None = None

    @model_validator(mode="after")
    def _one_form(self) -> GemmConstants:
        if self.norm is not None and self.tile is not None:
            raise ModelError("tiles have a norm of their own, tile.norm", "norm")
        if self.few_tiles is not None and self.tile is not None:
            raise ModelError("tiles fill waves already, tile.wave_exponent", "few_tiles")
        return self


class LargeReads(Frozen):
    """Decode attention that reads much: more time to fill the device, then a higher rate."""

    memory: Share
    launch_us: Least


class AttentionConstants(Frozen):
    """Decode attention of one layer: ``launch_us + KV bytes / (memory bandwidth)``.

    With ``large`` the lesser of that and the same with its constants.
    """

    memory: Share
    launch_us: Least
    large: LargeReads | None = None

    @model_validator(mode="after")
    def _large_pays_later(self) -> AttentionConstants:
        for name in ("memory", "launch_us"):
            least = getattr(self, name).value
            if self.large is not None and getattr(self.large, name).value <= least:
                raise ModelError(f"must be above {least:g}, that of small reads", f"large.{name}")
        return self


class PrefillAttentionConstants(Frozen):
    """Attention of prompts: ``flops / (compute peak) + bytes / (memory bandwidth)``.

    Without ``memory`` the traffic of queries, keys and values is free.
    """

    compute: Share
    memory: Share | None = None


class VerifyAttentionConstants(Frozen):
    """Attention of several query tokens against a context.

    ``max(KV read as in decoding, flops / (compute peak))``, or with ``memory``, for kernels whose
    reading does not hide behind arithmetic, ``flops / (compute peak) + KV bytes / (memory
    bandwidth)``. Without ``compute`` arithmetic takes as long as in a prompt.
    """

    compute: Share | None = None
    memory: Share | None = None


class LargeAllReduce(Frozen):
    """All-reduce of large messages."""

    from_bytes: PositiveInt
    latency_us: Least
    efficiency: Share


class AllReduceConstants(Frozen):
    """``latency_us + 2 (tp-1)/tp bytes / (efficiency bandwidth)`` for one group size.

    ``large`` replaces both constants for messages of ``from_bytes`` and more, where the engine
    changes from one exchange of everything to reduce-scatter and all-gather.
    """

    latency_us: Least
    efficiency: Share
    large: LargeAllReduce


class ElementwiseConstants(Frozen):
    """Norms, rotary embedding, activation of one layer: ``fixed_us + bytes / (memory bw)``."""

    fixed_us: Least
    qk_norm_factor: Factor
    memory: Share


class MoeConstants(Frozen):
    """Grouped expert GEMMs of one layer, and the router in front of them."""

    compute: Share
    memory: Share
    fixed_us: Least
    router_us: Least


class HeadConstants(Frozen):
    """LM head beyond its GEMM: logits traffic and small kernels, of the target and of Medusa."""

    fixed_us: Least
    logit_bytes: Least
    medusa_kernel_us: Least
    medusa_logit_bytes: Least
