"""How accepted counts are distributed: by step, over stretches of a request, by request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from models.paths import Floats, Ints

WINDOW = 8
"""Steps of a stretch: long enough that steps which resemble each other show."""
_POINTS = 50
_RARE = 0.005
NAMES = ("steps", "windows", "requests")


class Counts(NamedTuple):
    """Accepted tokens of every step, request ``r`` owning ``[offsets[r]:offsets[r + 1]]``."""

    accepted: Ints
    offsets: Ints


class Verdict(NamedTuple):
    """How often a sampler's own data lie as far from its mean as the observed.

    Attributes
    ----------
    p : float
        Of the three together: their smallest p value against that of every replicate.
    by_statistic : dict
        p value of each of `NAMES`.
    """

    p: float
    by_statistic: dict[str, float]


def distributions(counts: Counts, depth: int) -> list[Floats]:
    """Cumulative shares of accepted counts by step, by window of 8 steps, and of request means.

    Windows and requests are taken around the mean of all steps: how far off the level is shows in
    the steps, and would hide how much windows and requests differ.
    """
    windows, lengths = window_sums(counts), np.diff(counts.offsets)
    mean = counts.accepted.mean()
    means = _sums(counts)[lengths > 0] / lengths[lengths > 0]
    return [
        _cumulative(counts.accepted, np.arange(depth)),
        _cumulative(windows / WINDOW - mean, _grid(depth)),
        _cumulative(means - mean, _grid(depth)),
    ]


def _grid(depth: int) -> Floats:
    return np.linspace(-depth, depth, _POINTS * depth)


def window_sums(counts: Counts) -> Ints:
    """Accepted tokens of each whole stretch of 8 consecutive steps of a request."""
    lengths = np.diff(counts.offsets)
    whole = lengths // WINDOW
    places = np.arange(counts.accepted.size) - np.repeat(counts.offsets[:-1], lengths)
    inside = places < np.repeat(whole * WINDOW, lengths)
    sums: Ints = counts.accepted[inside].reshape(-1, WINDOW).sum(axis=1)
    return sums


def distances(observed: list[Floats], replicates: list[list[Floats]]) -> Floats:
    """Anderson-Darling distances to the mean distribution of the replicates.

    Returns
    -------
    float64, shape (statistics, 1 + replicates)
        The observed first.
    """
    every = (observed, *replicates)
    return np.array([_distances([one[i] for one in every]) for i in range(len(observed))])


def dispersion(counts: Counts, rng: np.random.Generator, replicates: int) -> Floats:
    """How much windows and requests differ, beside steps that know nothing of each other.

    Steps are dealt anew to all requests; what grows where steps resemble each other is the
    variance of window sums, and that of the means of requests. No fit is needed.

    Returns
    -------
    float64, shape (2, 1 + replicates)
        The observed first.
    """
    shuffled = (Counts(rng.permutation(counts.accepted), counts.offsets) for _ in range(replicates))
    return np.array([_clusters(counts), *map(_clusters, shuffled)]).T


def together(several: Sequence[Floats]) -> Verdict:
    """Verdict on several domains at once: their distances, each in its own units, added up.

    Parameters
    ----------
    several : sequence of float64, shape (statistics, 1 + replicates)
        From `distances` or `dispersion`; replicates of different domains are drawn independently.
    """
    spread = [np.maximum(one[:, 1:].std(axis=1, keepdims=True), 1e-12) for one in several]
    total = sum(one / own for one, own in zip(several, spread, strict=True))
    return verdict(np.asarray(total))


def _clusters(counts: Counts) -> tuple[float, float]:
    windows, lengths = window_sums(counts), np.diff(counts.offsets)
    away = _sums(counts) - lengths * counts.accepted.mean()
    return float(windows.var()) if windows.size else 0.0, float((away**2 / lengths).sum())


def verdict(distances: Floats) -> Verdict:
    """Of distances, shape (statistics, 1 + replicates), the observed first."""
    ordered = np.sort(distances, axis=1)
    as_far = np.array(
        [
            own.size - np.searchsorted(row, own * (1 - 1e-12) - 1e-15)
            for row, own in zip(ordered, distances, strict=True)
        ]
    )
    p = as_far / distances.shape[1]
    least = p.min(axis=0)
    own = {name: float(value) for name, value in zip(NAMES, p[:, 0], strict=False)}
    return Verdict(float((least <= least[0] + 1e-12).mean()), own)


def _distances(cumulated: list[Floats]) -> Floats:
    """Of each distribution to the mean of the replicates, the tails weighted up."""
    every = np.array(cumulated)
    mean = every[1:].mean(axis=0)
    weights = 1.0 / np.maximum(mean * (1.0 - mean), _RARE)
    distances: Floats = (every - mean) ** 2 @ weights
    return distances


def _sums(counts: Counts) -> Floats:
    lengths = np.diff(counts.offsets)
    owner = np.repeat(np.arange(lengths.size), lengths)
    summed: Floats = np.bincount(owner, counts.accepted, lengths.size).astype(np.float64)
    return summed


def _cumulative(values: Ints | Floats, at: Ints | Floats) -> Floats:
    """Share of the values at or below each point."""
    shares: Floats = np.searchsorted(np.sort(values), at, "right") / max(values.size, 1)
    return shares
