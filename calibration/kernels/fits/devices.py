"""Facts about devices that tell which timed kernels speak for serving."""

from __future__ import annotations

STREAMING_MULTIPROCESSORS = {
    "a100_80g_sxm": 108,
    "h100_sxm": 132,
    "h200_sxm": 132,
    "l40s": 142,
    "b200_sxm": 148,
}
"""By catalogue name, from NVIDIA's architecture white papers."""

CACHE_BYTES = {
    "a100_80g_sxm": 40e6,
    "h100_sxm": 50e6,
    "h200_sxm": 50e6,
    "l40s": 96e6,
    "b200_sxm": 126e6,
}
"""Second-level cache, from the same papers."""
