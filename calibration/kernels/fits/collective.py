"""Fit of the all-reduce: two straight lines a group size, for small and for large messages."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calibration.kernels.fits import held_out
from calibration.kernels.fits.held_out import Score
from calibration.kernels.fits.robust import SOFT, Fitted, Form, fit_form
from calibration.kernels.fits.select import column, good, of_preferred_link, source_of
from models.gemm import US
from models.hardware import Accelerator
from models.kernel_constants import AllReduceConstants, LargeAllReduce

Floats = NDArray[np.float64]

SHAPE = ("message_bytes",)
FEWEST = 3
"""Sizes on either side of the change from one algorithm to the other, in half of the rows."""


class Pieces(NamedTuple):
    """Fits to messages below and from ``from_bytes``, and the loss of both together."""

    from_bytes: int
    small: Fitted
    large: Fitted
    loss: float


def fit_all_reduce(
    rows: pd.DataFrame, accelerator: Accelerator
) -> tuple[dict[int, AllReduceConstants], list[Score]]:
    """Constants by group size; none where the device has no link, or fewer than 12 messages.

    Parameters
    ----------
    rows : DataFrame
        Timed kernels; those flagged are left out.
    accelerator : Accelerator
        The efficiencies are shares of its link's bandwidth.
    """
    link = accelerator.interconnect
    timed = good(rows, "all_reduce")
    constants: dict[int, AllReduceConstants] = {}
    scores: list[Score] = []
    if link is None:
        return constants, scores
    form = _form(link.bandwidth_bytes_per_s)
    for gpus in sorted(set(timed["gpus"])):
        used = of_preferred_link(timed[timed["gpus"] == gpus]).sort_values("message_bytes")
        if used["message_bytes"].nunique() < 4 * FEWEST:
            continue
        pieces = _pieces(form, used)
        constants[int(gpus)] = _constants(pieces, used)
        measured, predicted = column(used, "time_s"), _predicted_unseen(form, used)
        name = f"{gpus} GPUs, {used['kernel'].iloc[0]}"
        score = held_out.of_times("all_reduce", used["dtype"].iloc[0], name, measured, predicted)
        scores.append(score)
    return constants, scores


def _form(bandwidth: float) -> Form:
    def seconds(values: Floats, rows: pd.DataFrame) -> Floats:
        return np.asarray(values[0] * US + column(rows, "bytes") / (values[1] * bandwidth))

    return Form("two lines", (6.0, 0.5), seconds)


def _pieces(form: Form, rows: pd.DataFrame) -> Pieces:
    """The change of algorithm, wherever two lines fit the rows best."""
    sizes = sorted(set(rows["message_bytes"]))
    tried = []
    for size in sizes[FEWEST : len(sizes) - FEWEST + 1]:
        below = rows["message_bytes"] < size
        small, large = (fit_form(form, part, SHAPE) for part in (rows[below], rows[~below]))
        loss = _loss(form, small, rows[below]) + _loss(form, large, rows[~below])
        tried.append(Pieces(int(size), small, large, loss))
    return min(tried, key=lambda pieces: pieces.loss)


def _loss(form: Form, found: Fitted, rows: pd.DataFrame) -> float:
    off = np.log(form.seconds(found.values, rows) / column(rows, "time_s")) / SOFT
    return float(np.sum(np.sqrt(1.0 + off**2) - 1.0))


def _predicted_unseen(form: Form, rows: pd.DataFrame) -> Floats:
    """Every second size from the fit to the others."""
    first = np.arange(len(rows)) % 2 == 0
    predicted = np.zeros(len(rows))
    for seen in (first, ~first):
        pieces, unseen = _pieces(form, rows[seen]), rows[~seen]
        small = form.seconds(pieces.small.values, unseen)
        large = form.seconds(pieces.large.values, unseen)
        below = column(unseen, "message_bytes") < pieces.from_bytes
        predicted[~seen] = np.where(below, small, large)
    return predicted


def _constants(pieces: Pieces, rows: pd.DataFrame) -> AllReduceConstants:
    source = f"{source_of(rows)}, {rows['kernel'].iloc[0]}"
    low, high = rows["message_bytes"].min(), rows["message_bytes"].max()
    small = source, f"messages of {low} byte and more, below {pieces.from_bytes}"
    large = source, f"messages of {pieces.from_bytes} to {high} byte"
    return AllReduceConstants(
        latency_us=pieces.small.constant(0, *small),
        efficiency=pieces.small.constant(1, *small),
        large=LargeAllReduce(
            from_bytes=pieces.from_bytes,
            latency_us=pieces.large.constant(0, *large),
            efficiency=pieces.large.constant(1, *large),
        ),
    )
