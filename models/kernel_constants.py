"""The fitted constants of each kernel: what a profile holds of one device."""

from __future__ import annotations

from pydantic import Field, field_validator

from models.schema import Constant, Frozen, PositiveInt


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
    wave_exponent: Constant
    norm: Constant
    unaligned: Constant | None = None

    @field_validator("steps")
    @classmethod
    def _rising(cls, steps: tuple[TileStep, ...]) -> tuple[TileStep, ...]:
        *ends, last = [step.up_to_m for step in steps]
        known = [end for end in ends if end is not None]
        if last is not None or known != ends or known != sorted(set(known)):
            raise ValueError("up_to_m must rise from step to step and be null in the last")
        return steps


class GemmConstants(Frozen):
    """``max(flops / (compute peak), bytes / (memory bandwidth)) + launch_us``.

    ``tile`` adds tiles and waves. Activations are quantised by a kernel of ``quantise_us`` before,
    or, where what was timed is the layer that does so, at ``quantise_memory`` of the bandwidth.
    """

    compute: Constant
    memory: Constant
    launch_us: Constant
    quantise_us: Constant | None = None
    quantise_memory: Constant | None = None
    tile: Tiles | None = None


class AttentionConstants(Frozen):
    """Decode attention of one layer: ``launch_us + KV bytes / (memory bandwidth)``."""

    memory: Constant
    launch_us: Constant


class PrefillAttentionConstants(Frozen):
    """Attention of prompts: ``flops / (compute peak) + bytes / (memory bandwidth)``.

    Without ``memory`` the traffic of queries, keys and values is free.
    """

    compute: Constant
    memory: Constant | None = None


class VerifyAttentionConstants(Frozen):
    """Attention of several query tokens against a context.

    ``max(KV read as in decoding, flops / (compute peak))``, or with ``memory``, for kernels whose
    reading does not hide behind arithmetic, ``flops / (compute peak) + KV bytes / (memory
    bandwidth)``. Without ``compute`` arithmetic takes as long as in a prompt.
    """

    compute: Constant | None = None
    memory: Constant | None = None


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
