"""Time of one kernel on one device: closed forms over fitted constants, or measured rows.

All functions take counts as integers or integer arrays and return seconds of the same shape;
a count of zero costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from models.engine import Engine, Fp8Kv
from models.gemm import ACTIVATION_BYTES, US, Seconds, fused, gemm_roofs, gemm_s, quantising_s
from models.hardware import Accelerator
from models.kernel_constants import MoeConstants
from models.kernel_log import Use
from models.kernel_table import ExpertShape, KernelTable
from models.profile import Profile, Range
from models.schema import BYTES_PER_KV, BYTES_PER_WEIGHT, Constant, Dtype, KvDtype, ModelError
from models.transformer import Transformer

ALL_REDUCE = "all-reduce"
Backend = Literal["auto", "roofline", "table"]


@dataclass(frozen=True)
class Kernels:
    """Kernels of one accelerator under one profile.

    Attributes
    ----------
    table : KernelTable or None
        Measured rows of this very device.
    backend : str
        ``auto`` takes measured rows where the profile says that they beat the closed form,
        ``table`` wherever there are any, ``roofline`` nowhere.
    log : list of Use or None
        Where every kernel that is priced is noted; None: nowhere.
    engine : Engine or None
        Who calls the kernels, with ways of its own in fp8; None: they run as they were timed.
    """

    accelerator: Accelerator
    profile: Profile
    table: KernelTable | None = None
    backend: Backend = "auto"
    log: list[Use] | None = None
    engine: Engine | None = None

    def traced(self) -> Kernels:
        """The same kernels with an empty ``log``."""
        return replace(self, log=[])

    def gemm(self, m: ArrayLike, n: float, k: float, weights: Dtype) -> Seconds:
        """Dense GEMM of ``m`` rows; fp8 quantises its activations unless the engine fuses that.

        The closed form is that of ``gemm_s``. Weight-only types have no measured rows.
        """
        compute = self.accelerator.compute_dtype(weights)
        timed = fitted = self.profile.gemm[compute]
        rows = np.asarray(m, dtype=np.float64)

        def form(m: Seconds, n: float, k: float) -> Seconds:
            return gemm_s(timed, self.accelerator, m, n, k, weights)

        def log_ratio(table: KernelTable) -> Seconds | None:
            gemms = table.gemm.get(compute) if weights == compute else None
            return gemms.log_ratio(rows, n, k, form) if gemms else None

        seconds = form(rows, n, k)
        if compute == "fp8" and self.engine is not None and self.engine.fuses_quantisation:
            fitted = fused(fitted, self.profile.gemm["bf16"])
            seconds = gemm_s(fitted, self.accelerator, rows, n, k, weights)
        where = self.profile.table_where.gemm.get(compute)
        kernel = f"gemm {n:g} x {k:g} ({weights})"
        measured = self._measured(kernel, rows, seconds, where, log_ratio)
        seconds = np.where(np.isnan(measured), seconds, measured)
        bandwidth = self._stream * self.accelerator.memory_bandwidth_bytes_per_s
        seconds = seconds + quantising_s(fitted, rows, k, bandwidth)
        return np.where(rows > 0, seconds, 0.0)

    def _measured(
        self,
        kernel: str,
        at: Seconds,
        closed: Seconds,
        where: Range | None,
        log_ratio: Callable[[KernelTable], Seconds | None],
    ) -> Seconds:
        """Measured times where they are there and wanted [s]; NaN where the closed form stands."""
        wanted = at > 0
        if self.backend == "auto" and self.table is not None:
            low, high = where or (1, 0)
            wanted = (at >= low) & (at <= high)
        found = None
        if self.table is None or self.backend == "roofline":
            wanted = np.zeros_like(wanted)
        elif wanted.any():
            found = log_ratio(self.table)
        seconds = np.full(at.shape, np.nan)
        if found is not None:
            seconds = np.where(wanted, np.exp(found) * closed, np.nan)
        if self.log is not None:
            measured = bool(np.isfinite(seconds).any())
            collective = kernel.startswith(ALL_REDUCE)
            self.log.append(Use(kernel, collective, bool(wanted.any()), measured))
        return seconds

    def gemm_bound(self, m: float, n: float, k: float, weights: Dtype) -> str:
        """Whether a GEMM is limited by ``compute`` or by ``memory``, by its closed form."""
        fitted = self.profile.gemm[self.accelerator.compute_dtype(weights)]
        computing, moving = gemm_roofs(fitted, self.accelerator, m, n, k, weights)
        return "compute" if computing > moving else "memory"

    @property
    def _stream(self) -> float:
        return self.profile.elementwise.memory.value

    def elementwise(self, m: ArrayLike, net: Transformer, tp: int) -> Seconds:
        """Norms, rotary embedding and activation of one layer."""
        rows = np.asarray(m, dtype=np.float64)
        heads = (net.heads + 2 * net.kv_heads) * net.head_dim
        width = net.intermediate
        if net.experts:
            width = net.expert_intermediate * (net.experts_per_token + net.shared_experts)
        per_row = 2 * 4 * net.hidden * 2 + heads / tp * 8 + 3 * width / tp * 2
        constants = self.profile.elementwise
        fixed = constants.fixed_us.value * US
        if net.qk_norm:
            fixed *= constants.qk_norm_factor.value
        bandwidth = self._stream * self.accelerator.memory_bandwidth_bytes_per_s
        return np.where(rows > 0, fixed + rows * per_row / bandwidth, 0.0)

    def all_reduce(self, size_bytes: ArrayLike, tp: int) -> Seconds:
        """Sum over the tensor-parallel group; free for one GPU.

        Raises
        ------
        ModelError
            If no link joins so many GPUs, or the profile has no constants for ``tp``.
        """
        size = np.asarray(size_bytes, dtype=np.float64)
        if tp == 1:
            return np.zeros_like(size)
        self.accelerator.check_group(tp)
        link = self.accelerator.interconnect
        assert link is not None
        if tp not in self.profile.all_reduce:
            known = ", ".join(str(n) for n in sorted(self.profile.all_reduce)) or "no"
            raise ModelError(
                f"profile {self.profile.name} has all-reduce constants for {known} GPUs, got {tp}",
                "model.tp",
            )
        small, bandwidth = self.profile.all_reduce[tp], link.bandwidth_bytes_per_s

        def form(size: Seconds) -> Seconds:
            large, moved = small.large, 2 * (tp - 1) / tp * size / bandwidth
            return np.where(
                size < large.from_bytes,
                small.latency_us.value * US + moved / small.efficiency.value,
                large.latency_us.value * US + moved / large.efficiency.value,
            )

        def log_ratio(table: KernelTable) -> Seconds | None:
            curve = table.all_reduce.get(tp)
            return curve.log_ratio(size, form) if curve else None

        seconds = form(size)
        measured = self._measured(f"{ALL_REDUCE} of {tp} GPUs", size, seconds, None, log_ratio)
        seconds = np.where(np.isnan(measured), seconds, measured)
        return np.where(size > 0, seconds, 0.0)

    def experts(self, m: ArrayLike, net: Transformer, weights: Dtype, tp: int) -> Seconds:
        """Routed experts of one layer: those hit by ``m`` tokens, plus the router.

        Notes
        -----
        Experts hit under uniform routing: ``X (1 - (1 - k/X)^m)``. Real routing is correlated.
        """
        rows = np.asarray(m, dtype=np.float64)
        constants = self.profile.moe
        if constants is None:
            raise ModelError(f"profile {self.profile.name} has no constants of expert layers")
        width = net.expert_intermediate / tp
        shape = ExpertShape(weights, width, net.hidden, net.experts, net.experts_per_token)

        def form(m: Seconds) -> Seconds:
            return self._grouped(constants, shape, m, weights)

        def log_ratio(table: KernelTable) -> Seconds | None:
            curve = table.moe.get(shape)
            return curve.log_ratio(rows, form) if curve else None

        seconds = form(rows)
        kernel = f"{net.experts} experts {width:g} x {net.hidden} ({weights})"
        measured = self._measured(kernel, rows, seconds, None, log_ratio)
        fixed = (constants.fixed_us.value + constants.router_us.value) * US
        router = self.gemm(rows, net.experts, net.hidden, "bf16")
        timed = measured + constants.router_us.value * US
        seconds = np.where(np.isnan(measured), seconds + fixed, timed)
        return np.where(rows > 0, seconds + router, 0.0)

    def _grouped(
        self, constants: MoeConstants, shape: ExpertShape, m: Seconds, weights: Dtype
    ) -> Seconds:
        """Roofs of the grouped GEMMs of the experts that ``m`` tokens hit."""
        accelerator = self.accelerator
        share = shape.experts_per_token / shape.experts
        hit = shape.experts * (1.0 - (1.0 - share) ** m)
        per_expert = 3 * shape.k * shape.n
        flops = 2.0 * m * shape.experts_per_token * per_expert
        moved = hit * per_expert * BYTES_PER_WEIGHT[weights]
        peak = accelerator.peak_flops[accelerator.compute_dtype(weights)]
        bandwidth = accelerator.memory_bandwidth_bytes_per_s
        return np.maximum(
            flops / (constants.compute.value * peak),
            moved / (constants.memory.value * bandwidth),
        )

    def attention_launch_s(self, kv: KvDtype) -> float:
        """Fixed time of one layer's attention kernel [s]."""
        slow = self.slow_fp8_kv(kv)
        if slow is not None:
            return (self.profile.attention["bf16"].launch_us.value + slow.per_layer_us.value) * US
        return self.profile.attention_of(kv).launch_us.value * US

    def slow_fp8_kv(self, kv: KvDtype) -> Fp8Kv | None:
        """How this engine reads an fp8 cache, if not as the profile says; no faster in int4."""
        if self.engine is None or kv == "bf16" or "bf16" not in self.profile.attention:
            return None
        return self.engine.fp8_kv

    def kv_read_s(self, net: Transformer, kv: KvDtype, tp: int) -> float:
        """Time to read one context token's KV in one layer [s]."""
        slow = self.slow_fp8_kv(kv)
        if slow is not None:
            share = slow.per_token(net.heads / net.kv_heads)
            return share * self._kv_s(self.profile.attention["bf16"].memory, net, "bf16", tp)
        return self._kv_s(self.profile.attention_of(kv).memory, net, kv, tp)

    def verify_read_s(self, net: Transformer, kv: KvDtype, tp: int) -> float | None:
        """The same for several query tokens, where arithmetic does not hide it; None: it does."""
        verify = self.profile.verify_attention
        if verify is None or verify.memory is None:
            return None
        return self._kv_s(verify.memory, net, kv, tp)

    def _kv_s(self, share: Constant, net: Transformer, kv: KvDtype, tp: int) -> float:
        size = 2 * -(-net.kv_heads // tp) * net.head_dim * BYTES_PER_KV[kv]
        return size / (share.value * self.accelerator.memory_bandwidth_bytes_per_s)

    def pair_s(self, net: Transformer, tp: int) -> float:
        """Compute time of one (query token, context token) pair of a prompt in one layer [s]."""
        return self._pair_s(self.profile.prefill_attention.compute, net, tp)

    def verify_pair_s(self, net: Transformer, tp: int) -> float:
        """The same of a query token that decodes: measured by itself, or as in a prompt [s]."""
        verify = self.profile.verify_attention
        own = verify and verify.compute
        return self._pair_s(own or self.profile.prefill_attention.compute, net, tp)

    def _pair_s(self, share: Constant, net: Transformer, tp: int) -> float:
        flops = 4.0 * net.heads / tp * net.head_dim
        rate = share.value * self.accelerator.peak_flops["bf16"]
        return flops / rate

    def prompt_token_s(self, net: Transformer, tp: int) -> float:
        """Time to stream queries, keys, values and outputs of one prompt token in one layer [s]."""
        memory = self.profile.prefill_attention.memory
        if memory is None:
            return 0.0
        moved = (2 * net.heads / tp + 2 * -(-net.kv_heads // tp)) * net.head_dim * ACTIVATION_BYTES
        return moved / (memory.value * self.accelerator.memory_bandwidth_bytes_per_s)

    def lm_head(self, rows: ArrayLike, hidden: int, vocab: int, tp: int) -> Seconds:
        """LM head in bf16 without its collective: GEMM, logits traffic, small kernels."""
        count = np.asarray(rows, dtype=np.float64)
        constants = self.profile.head
        bandwidth = self._stream * self.accelerator.memory_bandwidth_bytes_per_s
        seconds = self.gemm(count, vocab / tp, hidden, "bf16") + constants.fixed_us.value * US
        seconds = seconds + constants.logit_bytes.value * count * vocab / bandwidth
        return np.where(count > 0, seconds, 0.0)

    def medusa_head(self, rows: ArrayLike, hidden: int, vocab: int, tp: int) -> Seconds:
        """One Medusa head without its collective: residual block h -> h, LM head, arg-max."""
        count = np.asarray(rows, dtype=np.float64)
        constants = self.profile.head
        small = 2 * constants.medusa_kernel_us.value * US
        bandwidth = self._stream * self.accelerator.memory_bandwidth_bytes_per_s
        seconds = self.gemm(count, hidden, hidden, "bf16") + small
        seconds = seconds + self.gemm(count, vocab / tp, hidden, "bf16")
        seconds = seconds + constants.medusa_logit_bytes.value * count * vocab / bandwidth
        return np.where(count > 0, seconds, 0.0)
