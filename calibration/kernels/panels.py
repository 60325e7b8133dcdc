"""Which kernels the picture of a calibration shows: a few shapes, and the ratio over all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from calibration.kernels import predict
from models.hardware import Accelerator
from models.profile import Profile
from sim.analysis.kernel_plots import Curve, Panel, Ratio

MOST_CURVES = 4
FEWEST_POINTS = 3
PER_OCTAVE = 2
"""Bins of the ratio."""


class View(NamedTuple):
    """How one operation is shown.

    ``shape`` are the columns that tell curves apart, ``label`` names one of them, and ``size``
    orders them.
    """

    title: str
    x: str
    at: Callable[[pd.DataFrame], pd.Series]
    shape: tuple[str, ...]
    label: str
    size: Callable[[pd.DataFrame], pd.Series]


def panels(rows: pd.DataFrame, profile: Profile, accelerator: Accelerator) -> list[Panel]:
    """Panels of every operation and type that was timed and that the profile has constants for.

    Parameters
    ----------
    rows : DataFrame
        Timed kernels; those flagged are left out.
    profile : Profile
    accelerator : Accelerator
        The device the profile speaks of.
    """
    usable = rows[rows["flag"] == ""].reset_index(drop=True)
    fitted = usable.assign(fitted_s=predict.seconds(usable, profile, accelerator)).dropna()
    return [_panel(view, part) for view, part in _views(fitted) if len(part)]


def _views(rows: pd.DataFrame) -> Iterator[tuple[View, pd.DataFrame]]:
    for operation, of_operation in rows.groupby("operation", sort=False):
        if operation in ("gemm", "moe"):
            for dtype, part in of_operation.groupby("dtype", sort=False):
                yield _matrix(str(operation), str(dtype)), _usual_kernel(part)
        elif operation == "attention":
            yield from _attention_views(of_operation)
        elif operation == "all_reduce":
            yield ALL_REDUCE, _usual_kernel(of_operation)


def _attention_views(rows: pd.DataFrame) -> Iterator[tuple[View, pd.DataFrame]]:
    prompt = rows["context_tokens"] == 0
    several = ~prompt & (rows["query_tokens"] > 1)
    for kv, part in rows[~prompt & ~several].groupby("kv_dtype", sort=False):
        yield DECODE._replace(title=f"Decode attention, {kv} KV"), _usual_kernel(part)
    for kv, part in rows[several].groupby("kv_dtype", sort=False):
        yield VERIFY._replace(title=f"Verification attention, {kv} KV"), _usual_kernel(part)
    yield PREFILL, _usual_kernel(rows[prompt])


def _usual_kernel(rows: pd.DataFrame) -> pd.DataFrame:
    return rows[rows["kernel"] == rows["kernel"].mode().min()] if len(rows) else rows


def _matrix(operation: str, dtype: str) -> View:
    """GEMMs and experts, by tokens a step."""
    shape: tuple[str, ...] = ("n", "k")
    title, label = f"GEMM, {dtype}", "n {n}, k {k}"
    if operation == "moe":
        shape = ("n", "k", "experts", "experts_per_token")
        title, label = f"Experts, {dtype}", "{experts} of {k} x {n}"
    return View(title, "tokens m", lambda r: r["m"], shape, label, lambda r: r["n"] * r["k"] * 1.0)


_SEQUENCES = ("batch", "heads", "kv_heads", "head_dim")

DECODE = View(
    "Decode attention",
    "KV cache and queries read, MB",
    lambda r: r["bytes"] / 1e6,
    _SEQUENCES,
    "batch {batch}, {kv_heads} KV heads",
    lambda r: r["batch"] * r["kv_heads"] * 1.0,
)
VERIFY = View(
    "Verification attention",
    "query tokens a sequence",
    lambda r: r["query_tokens"],
    ("batch", "context_tokens", "heads", "kv_heads", "head_dim", "mask"),
    "batch {batch}, context {context_tokens}",
    lambda r: r["batch"] * r["context_tokens"] * 1.0,
)
PREFILL = View(
    "Prefill attention",
    "prompt tokens",
    lambda r: r["query_tokens"],
    (*_SEQUENCES, "kv_dtype"),
    "batch {batch}, {heads}/{kv_heads} heads",
    lambda r: r["batch"] * r["heads"] * 1.0,
)
ALL_REDUCE = View(
    "All-reduce",
    "message, kB",
    lambda r: r["message_bytes"] / 1e3,
    ("gpus",),
    "{gpus} GPUs",
    lambda r: r["gpus"] * 1.0,
)


def _panel(view: View, rows: pd.DataFrame) -> Panel:
    rows = rows.assign(at=view.at(rows).astype(float), size=view.size(rows))
    return Panel(
        view.title,
        view.x,
        {view.label.format(**_shape(curve)): _curve(curve) for curve in _chosen(view, rows)},
        _ratio(rows),
    )


def _shape(curve: pd.DataFrame) -> dict[str, object]:
    return {str(name): value for name, value in curve.iloc[0].items()}


def _chosen(view: View, rows: pd.DataFrame) -> list[pd.DataFrame]:
    """Curves of a few shapes from the smallest to the largest, among those timed most often."""
    shapes = [part for _, part in rows.groupby(list(view.shape), sort=True)]
    most = max(part["at"].nunique() for part in shapes)
    full = [p for p in shapes if p["at"].nunique() >= max(0.8 * most, min(FEWEST_POINTS, most))]
    full.sort(key=lambda part: float(part["size"].iloc[0]))
    places = np.linspace(0, len(full) - 1, min(MOST_CURVES, len(full))).round().astype(int)
    return [full[place] for place in places]


def _curve(part: pd.DataFrame) -> Curve:
    means = part.groupby("at")[["time_s", "fitted_s"]].median()
    return Curve(
        means.index.to_numpy(dtype=np.float64),
        means["time_s"].to_numpy(dtype=np.float64),
        means["fitted_s"].to_numpy(dtype=np.float64),
    )


def _ratio(rows: pd.DataFrame) -> Ratio:
    """Quantiles at each size, sizes close together taken as one."""
    at = rows["at"]
    if at.nunique() > 60:
        at = 2.0 ** ((np.log2(at) * PER_OCTAVE).round() / PER_OCTAVE)
    found = (
        (rows["time_s"] / rows["fitted_s"])
        .groupby(at)
        .quantile(np.array([0.05, 0.5, 0.95]))
        .unstack()
    )
    return Ratio(found.index.to_numpy(dtype=np.float64), *_columns(found))


def _columns(found: pd.DataFrame) -> Sequence[np.ndarray]:
    return [found[name].to_numpy(dtype=np.float64) for name in found.columns]
