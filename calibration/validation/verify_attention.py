"""Attention of several query tokens against a context: published kernel times and predictions.

No table of kernels has it, so these few figures are all there is until a GPU is at hand.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from calibration.kernels import predict, rows
from calibration.validation.case import Case
from models import catalog
from models.profile import Profile

BYTES = 2.0
"""Of every element: the figures are for a 16-bit KV cache."""
LATENT_WIDTH = 576
"""Elements cached a token by latent attention, for one head that all query heads share."""


def read_published(path: str | Path) -> pd.DataFrame:
    """Published calls of a CSV file as timed kernels, their traffic that of the KV cache alone.

    Parameters
    ----------
    path : path-like
        Columns ``hardware`` (catalogue name), ``kernel``, ``batch``, ``query_tokens``,
        ``context_tokens``, ``heads``, ``kv_width`` and ``pair_width`` (elements cached a token, and
        elements a query head multiplies for each), ``time_us``, ``source``.
    """
    raw = pd.read_csv(path, keep_default_na=False)
    return _calls(raw)


def of_case(case: Case) -> float:
    """Predicted time of the one call that a case of the suite ``kernels`` describes [s]."""
    call = {
        "hardware": case.scenario["hardware"]["gpu"],
        "kernel": case.labels["engine"],
        **case.scenario["attention"],
        "time_us": 1e6 * case.measured["time_s"],
        "source": case.source,
    }
    return float(predicted_s(_calls(pd.DataFrame([call])))[0])


def _calls(raw: pd.DataFrame) -> pd.DataFrame:
    query, context = raw["query_tokens"], raw["context_tokens"]
    pairs = query * context + query * (query + 1) / 2
    return rows.frame(
        "attention",
        device=raw["hardware"],
        kernel=raw["kernel"],
        dtype="bf16",
        kv_dtype="bf16",
        batch=raw["batch"],
        query_tokens=query,
        context_tokens=context,
        heads=raw["heads"],
        kv_heads=(raw["kv_width"] == LATENT_WIDTH).astype(int),
        bytes=BYTES * raw["batch"] * (context + query) * raw["kv_width"],
        flops=2.0 * raw["batch"] * raw["heads"] * raw["pair_width"] * pairs,
        time_s=raw["time_us"] * 1e-6,
        source=raw["source"],
    )


def predicted_s(published: pd.DataFrame) -> np.ndarray:
    """Time of every call by the profile of its device in the catalogue [s], shape (calls,)."""
    found = np.zeros(len(published))
    for device, part in published.groupby("device"):
        accelerator = catalog.hardware(str(device))
        profile = catalog.profile(accelerator.profile)
        latent = part["kv_heads"] == 1
        for calls, constants in ((part[latent], _one_line(profile)), (part[~latent], profile)):
            found[calls.index] = predict.seconds(calls, constants, accelerator)
    return found


def _one_line(profile: Profile) -> Profile:
    """Reading much has a rate of its own on grouped heads; latent attention keeps one line."""
    kept = {kv: one.model_copy(update={"large": None}) for kv, one in profile.attention.items()}
    return profile.model_copy(update={"attention": kept})
