"""What a profile says of timed kernels: their times by its closed forms."""

from __future__ import annotations

from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from models.gemm import US, gemm_s
from models.hardware import Accelerator
from models.kernels import Kernels
from models.kv_reads import kv_read_s
from models.profile import Profile
from models.schema import Dtype

Floats = NDArray[np.float64]


def seconds(rows: pd.DataFrame, profile: Profile, accelerator: Accelerator) -> Floats:
    """Time of every row by the closed forms of a profile [s].

    Parameters
    ----------
    rows : DataFrame
        Timed kernels, columns of ``sim.kernel_rows.KERNELS``.
    profile : Profile
    accelerator : Accelerator
        The device the profile speaks of.

    Returns
    -------
    ndarray
        Shape (rows,); NaN where the profile has no constants for a row.
    """
    found = np.full(len(rows), np.nan)
    forms = {
        "gemm": _gemm,
        "attention": _attention,
        "all_reduce": _all_reduce,
        "moe": _moe,
    }
    for operation, form in forms.items():
        which = (rows["operation"] == operation).to_numpy()
        if which.any():
            found[which] = form(rows[which], profile, accelerator)
    return found


def _gemm(rows: pd.DataFrame, profile: Profile, accelerator: Accelerator) -> Floats:
    """GEMMs as they were timed: with the quantising of activations where that was part of it."""
    found = np.full(len(rows), np.nan)
    for dtype, fitted in profile.gemm.items():
        which = (rows["dtype"] == dtype).to_numpy()
        m, n, k = (rows[name].to_numpy()[which] for name in ("m", "n", "k"))
        found[which] = gemm_s(fitted, accelerator, m, n, k, cast(Dtype, dtype))
    return found


def _attention(rows: pd.DataFrame, profile: Profile, accelerator: Accelerator) -> Floats:
    """Decoding reads the KV cache; verification computes if that takes longer; prompts do both.

    Verification also does both where the profile says so.
    """
    fitted = profile.attention
    launch = rows["kv_dtype"].map({kv: c.launch_us.value for kv, c in fitted.items()})
    bandwidth, peak = accelerator.memory_bandwidth_bytes_per_s, accelerator.peak_flops["bf16"]
    prefill = profile.prefill_attention
    own = profile.verify_attention and profile.verify_attention.compute
    verify_compute = own or prefill.compute
    read_s = pd.Series(np.nan, index=rows.index)
    for kv, constants in fitted.items():
        which = rows["kv_dtype"] == kv
        read_s[which] = kv_read_s(constants, rows.loc[which, "bytes"], bandwidth)
    verify_s = rows["flops"] / (verify_compute.value * peak)
    if profile.verify_attention is None or profile.verify_attention.memory is None:
        verify_s = verify_s.where(verify_s > read_s, read_s)
    else:
        verify_s = verify_s + rows["bytes"] / (profile.verify_attention.memory.value * bandwidth)
    prefill_s = rows["flops"] / (prefill.compute.value * peak)
    if prefill.memory is not None:
        prefill_s = prefill_s + rows["bytes"] / (prefill.memory.value * bandwidth)
    of_context = read_s.where(rows["query_tokens"] == 1, verify_s)
    return np.asarray(of_context.where(rows["context_tokens"] > 0, prefill_s) + launch * US)


def _all_reduce(rows: pd.DataFrame, profile: Profile, accelerator: Accelerator) -> Floats:
    kernels, found = Kernels(accelerator, profile), np.full(len(rows), np.nan)
    for gpus in profile.all_reduce:
        which = (rows["gpus"] == gpus).to_numpy()
        found[which] = kernels.all_reduce(rows["message_bytes"].to_numpy()[which], gpus)
    return found


def _moe(rows: pd.DataFrame, profile: Profile, accelerator: Accelerator) -> Floats:
    if profile.moe is None:
        return np.full(len(rows), np.nan)
    peak = rows["dtype"].map(dict(accelerator.peak_flops))
    bandwidth = accelerator.memory_bandwidth_bytes_per_s
    compute_s = rows["flops"] / (profile.moe.compute.value * peak)
    memory_s = rows["bytes"] / (profile.moe.memory.value * bandwidth)
    return np.asarray(np.maximum(compute_s, memory_s) + profile.moe.fixed_us.value * US)
