"""How long requests and sessions last, and over what time they begin."""

from __future__ import annotations

import numpy as np

from sim.analysis.metrics import Floats, Window, finished
from sim.tables import Columns


def arrival_span(columns: Columns) -> Window:
    """First to last arrival of a request that waits for no answer, or of any where all do."""
    first = columns["id"] == columns["session"]
    arrival = columns["arrival_s"][first if first.any() else slice(None)]
    arrival = arrival[~np.isnan(arrival)]
    if not len(arrival):
        return Window(0.0, 0.0)
    return Window(float(arrival.min()), float(arrival.max()))


def lifetimes(columns: Columns) -> float:
    """How many median lifetimes the arrivals lasted; infinite if nothing finished.

    A lifetime is the end-to-end time of a request; of a session it lasts from its first arrival to
    its last finish.
    """
    lives = lives_s(columns)
    if np.isnan(lives).all():
        return float("inf")
    lifetime = float(np.nanmedian(lives))
    return arrival_span(columns).length_s / lifetime if lifetime > 0 else float("inf")


def lives_s(columns: Columns) -> Floats:
    """First arrival to last finish of every session [s]; NaN where nothing finished."""
    _, session = np.unique(columns["session"], return_inverse=True)
    began, ended = np.full((2, session.max(initial=-1) + 1), np.nan)
    np.fmin.at(began, session, columns["arrival_s"])
    np.fmax.at(ended, session, np.where(finished(columns), columns["finish_s"], np.nan))
    lives: Floats = ended - began
    return lives
