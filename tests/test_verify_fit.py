"""Attention of several query tokens: arithmetic hides reading the KV cache, or it does not."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from calibration.kernels import rows
from calibration.kernels.fits.attention import fit_attention
from models import catalog

H100 = catalog.hardware("h100_sxm")
BW, PEAK = H100.memory_bandwidth_bytes_per_s, H100.peak_flops["bf16"]
LAUNCH_S, READ, COMPUTE = 10e-6, 0.8, 0.1


def timed(verify_s) -> pd.DataFrame:
    """Decode and prompts by their laws, and verification by the one given (bytes, flops)."""
    lengths = np.array(
        [
            *itertools.product((1, 4, 16, 64), (1, 2, 4, 8, 16, 32, 64), (512, 2048, 8192)),
            *itertools.product((1, 4), (512, 1024, 2048, 4096), (0,)),
        ]
    )
    batch, query, context = lengths.T
    frame = rows.frame(
        "attention",
        **{"dtype": "bf16", "kv_dtype": "bf16", "mask": "causal", "device": "h100_sxm"},
        **{"batch": batch, "query_tokens": query, "context_tokens": context},
        **{"heads": 32, "kv_heads": 8, "head_dim": 128, "time_s": 1.0},
    )
    moved, flops = frame["bytes"], frame["flops"]
    prompt = flops / (0.6 * PEAK) + moved / (0.4 * BW)
    several = verify_s(moved, flops)
    time_s = several.where(query > 1, moved / (READ * BW)).where(context > 0, prompt)
    return frame.assign(time_s=time_s + LAUNCH_S)


def test_reading_that_hides_has_no_constant_of_its_own():
    fit = fit_attention(
        timed(lambda moved, flops: np.maximum(moved / (READ * BW), flops / (COMPUTE * PEAK))), H100
    )
    assert fit.verify is not None
    assert fit.verify.memory is None
    assert fit.verify.compute.value == pytest.approx(COMPUTE, rel=0.02)


def test_reading_that_does_not_hide_is_found_with_its_own_rate():
    fit = fit_attention(
        timed(lambda moved, flops: moved / (0.3 * BW) + flops / (COMPUTE * PEAK)), H100
    )
    assert fit.verify is not None
    assert fit.verify.memory is not None
    assert fit.verify.memory.value == pytest.approx(0.3, rel=0.02)
    assert fit.verify.compute.value == pytest.approx(COMPUTE, rel=0.02)
    assert fit.decode["bf16"].memory.value == pytest.approx(READ, rel=0.02)
