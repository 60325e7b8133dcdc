"""Which kernels the picture of a calibration shows: a few shapes, and the ratio over all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from calibration.kernels import predict
from calibration.kernels.fits.attention import SHORTEST, WIDEST_VERIFY, decode_rows
from calibration.kernels.fits.gemm import served_shapes
from calibration.kernels.fits.moe import served_experts
from calibration.kernels.fits.select import good, of_one_kernel, of_preferred_link, of_usual_heads
from models.hardware import Accelerator
from models.profile import Profile
from models.schema import Dtype, ModelError
from sim.analysis.kernel_plots import Curve, Panel, Ratio

GEMM_DTYPES: tuple[Dtype, ...] = ("bf16", "fp8")
MOST_CURVES = 4
FEWEST_POINTS = 3
MOST_SIZES = 60
"""Sizes from which on the ratio takes those of an octave together."""


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

    They show the rows a fit uses: of the kernels and shapes that serving runs, flagged ones left
    out.

    Parameters
    ----------
    rows : DataFrame
        Timed kernels.
    profile : Profile
    accelerator : Accelerator
        The device the profile speaks of.

    Raises
    ------
    ModelError
        If there is nothing to show.
    """
    fitted = rows.assign(fitted_s=predict.seconds(rows, profile, accelerator))
    known = fitted[fitted["fitted_s"].notna()].reset_index(drop=True)
    found = [_panel(view, part) for view, part in _views(known, accelerator) if len(part)]
    if not found:
        raise ModelError(f"profile {profile.name} has no constants for any of the timed kernels")
    return found


def _views(rows: pd.DataFrame, accelerator: Accelerator) -> Iterator[tuple[View, pd.DataFrame]]:
    for dtype in GEMM_DTYPES:
        yield _gemm(dtype), served_shapes(rows, accelerator, dtype)
    yield from _attention_views(of_usual_heads(good(rows, "attention")), accelerator)
    reduced = good(rows, "all_reduce")
    yield ALL_REDUCE, of_preferred_link(reduced)
    yield EXPERTS, served_experts(good(rows, "moe"))[0]


def _attention_views(
    rows: pd.DataFrame, accelerator: Accelerator
) -> Iterator[tuple[View, pd.DataFrame]]:
    prompt = (rows["context_tokens"] == 0) & (rows["query_tokens"] >= SHORTEST)
    several = (rows["context_tokens"] > 0) & rows["query_tokens"].between(2, WIDEST_VERIFY)
    for kv in sorted(set(rows["kv_dtype"])):
        cached = rows["kv_dtype"] == kv
        yield _of(DECODE, kv), decode_rows(rows[cached], accelerator)
        yield _of(VERIFY, kv), of_one_kernel(rows[several & cached])
    yield PREFILL, of_one_kernel(rows[prompt & (rows["kv_dtype"] == rows["kv_dtype"].min())])


def _of(view: View, kv: str) -> View:
    return view._replace(title=f"{view.title}, {kv} KV")


def _gemm(dtype: str) -> View:
    return View(
        f"GEMM, {dtype}",
        "tokens m",
        lambda r: r["m"],
        ("n", "k"),
        "n {n}, k {k}",
        lambda r: r["n"] * r["k"] * 1.0,
    )


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
EXPERTS = View(
    "Experts, bf16",
    "tokens m",
    lambda r: r["m"],
    ("n", "k", "experts", "experts_per_token"),
    "{experts} of {k} x {n}",
    lambda r: r["n"] * r["k"] * 1.0,
)
ALL_REDUCE = View(
    "All-reduce",
    "message, MB",
    lambda r: r["message_bytes"] / 1e6,
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
    if at.nunique() > MOST_SIZES:
        at = 2.0 ** np.log2(at).round()
    found = (
        (rows["time_s"] / rows["fitted_s"])
        .groupby(at)
        .quantile(np.array([0.05, 0.5, 0.95]))
        .unstack()
    )
    return Ratio(found.index.to_numpy(dtype=np.float64), *_columns(found))


def _columns(found: pd.DataFrame) -> Sequence[np.ndarray]:
    return [found[name].to_numpy(dtype=np.float64) for name in found.columns]
