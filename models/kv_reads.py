"""Closed form of reading the KV cache in decode attention: one line, or the lesser of two."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from models.gemm import US, Seconds
from models.kernel_constants import AttentionConstants


def kv_read_s(
    fitted: AttentionConstants, moved_bytes: ArrayLike, bandwidth_bytes_per_s: float
) -> Seconds:
    """Time of decode attention beyond its launch [s].

    Notes
    -----
    ``B / (e BW)``; where large reads have constants of their own, no more than
    ``(launch_large - launch) + B / (e_large BW)``: filling the device takes time, and once it is
    full the rate is higher.
    """
    moved = np.asarray(moved_bytes, dtype=np.float64) / bandwidth_bytes_per_s
    later_s, share = large_read_s(fitted, 1 / fitted.memory.value)
    return np.asarray(np.minimum(moved / fitted.memory.value, later_s + share * moved))


def large_read_s(fitted: AttentionConstants, token_s: float) -> tuple[float, float]:
    """What much KV takes beyond the launch, and each context token of it [s].

    Parameters
    ----------
    fitted : AttentionConstants
    token_s : float
        What a context token takes where little is read.
    """
    if fitted.large is None:
        return 0.0, token_s
    later_s = (fitted.large.launch_us.value - fitted.launch_us.value) * US
    return later_s, token_s * fitted.memory.value / fitted.large.memory.value
