"""Time of one kernel on one device: closed forms over the profile's fitted constants.

All functions take counts as integers or integer arrays and return seconds of the same shape;
a count of zero costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from models.hardware import Accelerator
from models.profile import Profile
from models.schema import BYTES_PER_KV, BYTES_PER_WEIGHT, Dtype, KvDtype, ModelError
from models.transformer import Transformer

Seconds = NDArray[np.float64]
US = 1e-6
ACTIVATION_BYTES = 2.0


@dataclass(frozen=True)
class Kernels:
    """Kernels of one accelerator under one profile.

    Notes
    -----
    GEMM of (m, k) by (k, n), weights of ``w`` byte:
    ``max(2mnk / (e_c P), (w nk + a mk + 2 mn) / (e_m BW)) + c`` with activations of ``a`` byte
    (1 in fp8, else 2). The form and its constants are in the profile.
    """

    accelerator: Accelerator
    profile: Profile

    def gemm(self, m: ArrayLike, n: float, k: float, weights: Dtype) -> Seconds:
        """Dense GEMM of ``m`` rows; fp8 also quantises its activations."""
        compute = self.accelerator.compute_dtype(weights)
        fitted = self.profile.gemm[compute]
        rows = np.asarray(m, dtype=np.float64)
        operand = BYTES_PER_WEIGHT[compute]
        flops = 2.0 * rows * n * k
        moved = BYTES_PER_WEIGHT[weights] * n * k + operand * rows * k + ACTIVATION_BYTES * rows * n
        bandwidth = self.accelerator.memory_bandwidth_bytes_per_s
        seconds = np.maximum(
            flops / (fitted.compute.value * self.accelerator.peak_flops[compute]),
            moved / (fitted.memory.value * bandwidth),
        )
        seconds = seconds + fitted.launch_us.value * US
        if fitted.quantise_us is not None:
            seconds += fitted.quantise_us.value * US + 3.0 * rows * k / (self._stream * bandwidth)
        return np.where(rows > 0, seconds, 0.0)

    def gemm_bound(self, m: float, n: float, k: float, weights: Dtype) -> str:
        """Whether a GEMM is limited by ``compute`` or by ``memory``."""
        compute = self.accelerator.compute_dtype(weights)
        fitted = self.profile.gemm[compute]
        moved = BYTES_PER_WEIGHT[weights] * n * k
        moved += BYTES_PER_WEIGHT[compute] * m * k + ACTIVATION_BYTES * m * n
        bandwidth = fitted.memory.value * self.accelerator.memory_bandwidth_bytes_per_s
        flops = 2.0 * m * n * k / (fitted.compute.value * self.accelerator.peak_flops[compute])
        return "compute" if flops > moved / bandwidth else "memory"

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
            known = ", ".join(str(n) for n in sorted(self.profile.all_reduce))
            raise ModelError(
                f"profile {self.profile.name} has all-reduce constants for {known} GPUs, got {tp}",
                "model.tp",
            )
        small = self.profile.all_reduce[tp]
        large = small.large
        moved = 2 * (tp - 1) / tp * size / link.bandwidth_bytes_per_s
        seconds = np.where(
            size < large.from_bytes,
            small.latency_us.value * US + moved / small.efficiency.value,
            large.latency_us.value * US + moved / large.efficiency.value,
        )
        return np.where(size > 0, seconds, 0.0)

    def experts(self, m: ArrayLike, net: Transformer, weights: Dtype, tp: int) -> Seconds:
        """Routed experts of one layer: those hit by ``m`` tokens, plus the router.

        Notes
        -----
        Experts hit under uniform routing: ``X (1 - (1 - k/X)^m)``. Real routing is correlated.
        """
        rows = np.asarray(m, dtype=np.float64)
        constants, accelerator = self.profile.moe, self.accelerator
        if constants is None:
            raise ModelError(f"profile {self.profile.name} has no constants of expert layers")
        compute = accelerator.compute_dtype(weights)
        share = net.experts_per_token / net.experts
        hit = net.experts * (1.0 - (1.0 - share) ** rows)
        per_expert = 3 * net.hidden * net.expert_intermediate / tp
        flops = 2.0 * rows * net.experts_per_token * per_expert
        moved = hit * per_expert * BYTES_PER_WEIGHT[weights]
        bandwidth = accelerator.memory_bandwidth_bytes_per_s
        seconds = np.maximum(
            flops / (constants.compute.value * accelerator.peak_flops[compute]),
            moved / (constants.memory.value * bandwidth),
        )
        fixed = (constants.fixed_us.value + constants.router_us.value) * US
        router = self.gemm(rows, net.experts, net.hidden, "bf16")
        return np.where(rows > 0, seconds + fixed + router, 0.0)

    def attention_launch_s(self, kv: KvDtype) -> float:
        """Fixed time of one layer's attention kernel [s]."""
        return self.profile.attention[kv].launch_us.value * US

    def kv_read_s(self, net: Transformer, kv: KvDtype, tp: int) -> float:
        """Time to read one context token's KV in one layer [s]."""
        heads = -(-net.kv_heads // tp)
        size = 2 * heads * net.head_dim * BYTES_PER_KV[kv]
        efficiency = self.profile.attention[kv].memory.value
        return size / (efficiency * self.accelerator.memory_bandwidth_bytes_per_s)

    def attention_flops_s(self, net: Transformer, tp: int) -> float:
        """Compute time of one (query token, context token) pair in one layer [s]."""
        flops = 4.0 * net.heads / tp * net.head_dim
        rate = self.profile.prefill_attention.compute.value * self.accelerator.peak_flops["bf16"]
        return flops / rate

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
