"""What measured figures are grouped by: family of the strategy, bucket of the batch, metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

LABELS = ("model", "tp", "engine", "strategy", "workload", "batch")
"""Labels a case may have; others are kept, but nothing here reads them."""
WORKLOADS = ("workload", "dataset", "data_set")
"""Labels of what was served; the first a case has stands for all."""

PLAIN = "plain"
SHARE = "share."
FAMILIES = {
    "autoregressive": PLAIN,
    "ngram": "n-gram",
    "draft_model": "draft model",
    "eagle": "EAGLE",
    "eagle2": "EAGLE-2",
    "eagle3": "EAGLE-3",
    "mtp": "MTP",
    "medusa": "Medusa",
    "lookahead": "Lookahead",
}
BUCKETS = {"1": 1, "2-8": 8, "9-32": 32, "33-64": 64, "65-128": 128, "over 128": np.inf}
"""Largest batch of each bucket."""

LATENCIES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "e2e_s": "E2E", "itl_s": "ITL", "queue_s": "queue"}
PARTS = {"draft": "drafting", "verify": "verification", "sampling": "sampling", "host": "host"}
KERNEL = "time_s"
WHOLE = {
    KERNEL: "kernel time",
    "speedup": "speedup",
    "e2e_speedup": "E2E speedup",
    "step_ratio": "step ratio",
    "tok_per_s": "tokens/s",
    "duration_s": "duration",
}


def family_of(strategy: Mapping[str, Any]) -> str:
    """Name of the family of a strategy as a scenario states it; trees are one of their own."""
    kind = str(strategy["kind"])
    name = FAMILIES.get(kind, kind)
    return f"{name} tree" if strategy.get("tree") is not None or kind == "eagle2" else name


def bucket_of(batch: object) -> str:
    """Bucket of a batch; empty where a case has none."""
    try:
        size = float(str(batch))
    except ValueError:
        return ""
    return next((name for name, most in BUCKETS.items() if size <= most), "")


def metric_name(metric: str) -> str:
    """A metric in words, as ``TTFT p90``."""
    name, _, detail = metric.partition(".")
    if name == "share":
        return f"share of {PARTS.get(detail, detail)}"
    return f"{LATENCIES.get(name, WHOLE.get(name, name))} {detail}".rstrip()


def error_of(frame: pd.DataFrame) -> pd.Series:
    """Relative error of each figure; of a share of a step, which may be tiny, in points of it."""
    off: pd.Series = frame["predicted"].astype(float) - frame["measured"]
    return off.where(frame["metric"].str.startswith(SHARE), off / frame["measured"])


def with_groups(frame: pd.DataFrame) -> pd.DataFrame:
    """A table of outcomes ready to be summed up.

    Labels are never missing, ``bucket`` is that of the batch, ``relative`` as from ``error_of``.
    """
    if frame.empty:
        return frame
    served = pd.Series(np.nan, frame.index, dtype=object)
    for name in WORKLOADS:
        served = served.fillna(frame[name]) if name in frame else served
    frame = frame.assign(workload=served)
    labels = {name: frame.get(name, pd.Series("", frame.index)).fillna("") for name in LABELS}
    frame = frame.assign(relative=error_of(frame))
    return frame.assign(**labels, bucket=labels["batch"].map(bucket_of))
