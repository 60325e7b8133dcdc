"""Fits of attention: decode by its traffic, prefill and verification by their arithmetic too."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.kernels.fits import held_out
from calibration.kernels.fits.held_out import Score
from calibration.kernels.fits.robust import ZERO, Fitted, Form, fit_form
from calibration.kernels.fits.select import (
    FEWEST_SHAPES,
    beyond_cache,
    column,
    good,
    of_one_kernel,
    of_usual_heads,
    shape_columns,
    source_of,
)
from models.gemm import US
from models.hardware import Accelerator
from models.kernel_constants import (
    AttentionConstants,
    LargeReads,
    PrefillAttentionConstants,
    VerifyAttentionConstants,
)
from models.kv_reads import kv_read_s
from models.schema import KvDtype, ModelError

Floats = NDArray[np.float64]

SHORTEST = 128
"""Tokens a sequence attends to from which a call is more than its launch."""

LARGEST_BATCH = 512
WIDEST_VERIFY = 64
FEWEST_COMPUTE_BOUND = 5
CLEARLY = 0.8
"""Share of the error of the simpler form that one with a constant more must stay below."""

MUCH = 10.0
"""Launches it takes to read the KV cache from which a call reads much."""

MOST = 1.1
"""Share of what the device can do above which a constant is none of its own: the rows of the fit
do not depend on it."""

VAGUE = 0.5
"""Standard error, as a share of a constant, above which the rows do not tell it either."""

KV_DTYPES: tuple[KvDtype, ...] = ("bf16", "fp8")

SHAPES = (("heads", "kv_heads"), ("batch", "query_tokens", "context_tokens"))
"""What is held out together: heads, or where all rows have the same ones, the lengths."""


class AttentionFit(NamedTuple):
    """Constants of attention, and how far they are off on rows the fit has not seen."""

    decode: dict[KvDtype, AttentionConstants]
    prefill: PrefillAttentionConstants
    verify: VerifyAttentionConstants | None
    scores: list[Score]


def fit_attention(rows: pd.DataFrame, accelerator: Accelerator) -> AttentionFit:
    """Constants of decode attention by KV type, of prompts, and of verification where timed.

    Parameters
    ----------
    rows : DataFrame
        Timed kernels; those flagged, and other head dimensions than 128, are left out.
    accelerator : Accelerator

    Notes
    -----
    The launch is that of decode attention: a layer starts one kernel for all its sequences.

    Raises
    ------
    ModelError
        If no decode or no prefill rows are left, or too few.
    """
    usual = of_usual_heads(good(rows, "attention"))
    decode: dict[KvDtype, AttentionConstants] = {}
    scores: list[Score] = []
    for kv in KV_DTYPES:
        used = decode_rows(usual[usual["kv_dtype"] == kv], accelerator)
        if len(used):
            decode[kv], score = _fit_decode(used, accelerator, kv)
            scores.append(score)
    if not decode:
        raise ModelError("no usable rows of decode")
    kv, constants = next(iter(decode.items()))
    cached = usual[usual["kv_dtype"] == kv]
    prefill, of_prefill = _fit_prefill(cached, accelerator, constants, kv)
    verify, of_verify = _fit_verify(cached, accelerator, constants, prefill, kv)
    return AttentionFit(decode, prefill, verify, [*scores, *of_prefill, *of_verify])


def decode_rows(rows: pd.DataFrame, accelerator: Accelerator) -> pd.DataFrame:
    """One query token a sequence against a context whose KV comes from memory."""
    attended = rows["context_tokens"] + rows["query_tokens"]
    decode = (rows["query_tokens"] == 1) & (attended >= SHORTEST)
    used = rows[decode & (rows["batch"] <= LARGEST_BATCH)]
    return beyond_cache(of_one_kernel(used), accelerator)


def _fit_decode(
    used: pd.DataFrame, accelerator: Accelerator, kv: KvDtype
) -> tuple[AttentionConstants, Score]:
    """One line for all rows; another for those that read much, where it is clearly closer to them.

    The rows of a shape are held out together.
    """
    bandwidth = accelerator.memory_bandwidth_bytes_per_s

    def seconds(values: Floats, rows: pd.DataFrame) -> Floats:
        return np.asarray(column(rows, "bytes") / (values[0] * bandwidth) + values[1] * US)

    form = Form("decode", (0.8, 10.0), seconds)
    found, score = _fit(form, used, kv, used["batch"])
    about = source_of(used), _lengths(used, "context_tokens")
    small = AttentionConstants(
        memory=found.constant(0, *about), launch_us=found.constant(1, *about)
    )
    much = column(used, "bytes") > MUCH * small.launch_us.value * US * bandwidth
    several = used[much].groupby(list(shape_columns(used, *SHAPES))).ngroups >= FEWEST_SHAPES
    if not several:
        return small, score
    large, of_large = _fit(form, used[much], kv, used[much]["batch"])
    all_rows = held_out.predicted_unseen(form, used, shape_columns(used, *SHAPES))
    measured = column(used, "time_s")
    of_small = held_out.of_times("attention", kv, "decode", measured[much], all_rows[much])
    rises = bool((large.values > found.values).all())
    if not rises or of_large.median >= CLEARLY * of_small.median:
        return small, score
    shape = shape_columns(used[much], *SHAPES)
    all_rows[much] = np.minimum(all_rows[much], held_out.predicted_unseen(form, used[much], shape))
    about = source_of(used), _lengths(used[much], "context_tokens")
    reads = LargeReads(memory=large.constant(0, *about), launch_us=large.constant(1, *about))
    batch = (int(used["batch"].min()), int(used["batch"].max()))
    score = held_out.of_times("attention", kv, "decode", measured, all_rows, batch)
    return small.model_copy(update={"large": reads}), score


def _fit_prefill(
    rows: pd.DataFrame, accelerator: Accelerator, decode: AttentionConstants, kv: KvDtype
) -> tuple[PrefillAttentionConstants, list[Score]]:
    """Arithmetic and traffic one after the other."""
    prompts = (rows["context_tokens"] == 0) & (rows["query_tokens"] >= SHORTEST)
    used = of_one_kernel(rows[prompts])
    if used.empty:
        raise ModelError("no usable rows of prefill")
    bandwidth, peak = accelerator.memory_bandwidth_bytes_per_s, accelerator.peak_flops["bf16"]
    launch_s = decode.launch_us.value * US

    def seconds(values: Floats, of: pd.DataFrame) -> Floats:
        compute = column(of, "flops") / (values[0] * peak)
        return np.asarray(compute + column(of, "bytes") / (values[1] * bandwidth) + launch_s)

    form = Form("prefill", (0.6, 0.4), seconds)
    found, score = _fit(form, used, kv, used["batch"] * used["query_tokens"])
    about = source_of(used), _lengths(used, "query_tokens")
    constants = PrefillAttentionConstants(
        compute=found.constant(0, *about), memory=found.constant(1, *about)
    )
    return constants, [score]


def _fit_verify(
    rows: pd.DataFrame,
    accelerator: Accelerator,
    decode: AttentionConstants,
    prefill: PrefillAttentionConstants,
    kv: KvDtype,
) -> tuple[VerifyAttentionConstants | None, list[Score]]:
    """Several query tokens against a context: arithmetic beside reading the KV, or after it.

    Reading as in decoding hides behind arithmetic, unless a rate of its own that does not is
    clearly closer to the rows held out. A constant that the rows do not tell is left out; then
    arithmetic takes as long as in a prompt.
    """
    several = rows["query_tokens"].between(2, WIDEST_VERIFY) & (rows["context_tokens"] > 0)
    used = of_one_kernel(rows[several])
    if used.empty:
        return None, []
    bandwidth, peak = accelerator.memory_bandwidth_bytes_per_s, accelerator.peak_flops["bf16"]
    memory, launch_s = decode.memory.value, decode.launch_us.value * US

    def hidden(values: Floats, of: pd.DataFrame) -> Floats:
        compute = column(of, "flops") / (values[0] * peak)
        read = kv_read_s(decode, column(of, "bytes"), bandwidth)
        return np.asarray(np.maximum(read, compute) + launch_s)

    def summed(values: Floats, of: pd.DataFrame) -> Floats:
        compute = column(of, "flops") / (values[0] * peak)
        return np.asarray(compute + column(of, "bytes") / (values[1] * bandwidth) + launch_s)

    def reading(values: Floats, of: pd.DataFrame) -> Floats:
        return summed(np.array([prefill.compute.value, *values]), of)

    tokens = used["batch"] * used["query_tokens"]
    about = source_of(used), _lengths(used, "query_tokens")
    found, score = _fit(Form("verification", (0.2,), hidden), used, kv, tokens)
    both, of_both = _fit(Form("verification", (0.2, memory), summed), used, kv, tokens)
    compute = both.constant(0, *about) if _told(both) else None
    if compute is None:
        both, of_both = _fit(Form("verification", (memory,), reading), used, kv, tokens)
    if _told(both) and of_both.p90 < CLEARLY * score.p90:
        constants = VerifyAttentionConstants(compute=compute, memory=both.constant(-1, *about))
        return constants, [of_both]
    compute_s = column(used, "flops") / (found.values[0] * peak)
    bound = compute_s > kv_read_s(decode, column(used, "bytes"), bandwidth)
    if not _told(found) or bound.sum() < FEWEST_COMPUTE_BOUND:
        return None, [score]
    return VerifyAttentionConstants(compute=found.constant(0, *about)), [score]


def _told(found: Fitted) -> bool:
    """Whether the rows tell all constants, each a share of a roof."""
    within = (found.values > ZERO) & (found.values <= MOST)
    vague = found.se > VAGUE * found.values
    return bool((within & ~vague).all())


def _fit(
    form: Form, rows: pd.DataFrame, kv: KvDtype, tokens: pd.Series[int]
) -> tuple[Fitted, Score]:
    shape = shape_columns(rows, *SHAPES)
    predicted = held_out.predicted_unseen(form, rows, shape)
    reach = (int(tokens.min()), int(tokens.max()))
    measured = column(rows, "time_s")
    score = held_out.of_times("attention", kv, form.name, measured, predicted, reach)
    return fit_form(form, rows, shape), score


def _lengths(rows: pd.DataFrame, of: str) -> str:
    head_dim, batch = rows["head_dim"].iloc[0], rows["batch"]
    what = of.replace("_", " ")
    reach = f"{what} {rows[of].min()}-{rows[of].max()}, batch {batch.min()}-{batch.max()}"
    return f"{len(rows)} rows, head dimension {head_dim}, {reach}"
