"""Constants of a profile that no table tells, each with its source."""

from __future__ import annotations

from models.kernel_constants import HeadConstants
from models.schema import Constant

SMALL_KERNELS = 5
"""Small kernels of a layer: two norms with their additions, rotary embedding, cache, activation."""

QK_NORM_FACTOR = Constant(
    value=1.3, source="assumed, two more small kernels where queries and keys are normalised"
)

ROUTER_US = Constant(value=4, source="assumed, softmax and top-k behind the router GEMM")

_H100 = "aiconfigurator-core 0.12.0 h100_sxm/quantize/vllm/0.24.0/scale_matrix_perf.parquet"

SMALL_KERNEL_US = Constant(
    value=2.107, source=f"assumed as on H100: {_H100}", fitted_on="static_fp8_quant of the H100"
)
"""What a small kernel takes at least, where none was timed."""

STREAM = Constant(
    value=0.8973, source=f"assumed as on H100: {_H100}", fitted_on="static_fp8_quant of the H100"
)
"""Share of peak bandwidth of a streaming kernel, where none was timed."""

HEAD = HeadConstants(
    fixed_us=Constant(
        value=20, source="assumed, small kernels between the LM head and the next step"
    ),
    logit_bytes=Constant(value=16, source="assumed, fp32 copy and reduction of bf16 logits"),
    medusa_kernel_us=Constant(value=5, source="assumed, one small kernel"),
    medusa_logit_bytes=Constant(value=8, source="assumed, arg-max over fp32 logits"),
)
