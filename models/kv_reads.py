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
    seconds = moved / fitted.memory.value
    if fitted.large is not None:
        later_s = (fitted.large.launch_us.value - fitted.launch_us.value) * US
        seconds = np.minimum(seconds, later_s + moved / fitted.large.memory.value)
    return np.asarray(seconds)
