"""What the clock is asked: the sequences of a step by mode, and its prefill chunks."""

from __future__ import annotations

import numpy as np

from models.mixed_modes import Chunks, Group
from sim.engine.modes import Modes
from sim.engine.path import Counts
from sim.engine.scheduler import Prefill


def groups_of(
    modes: Modes, mode: Counts, context: Counts, attended: Counts, width: Counts, missed: Counts
) -> list[Group]:
    """Sequences by mode.

    Parameters
    ----------
    modes : Modes
    mode, context, attended, width : int64, shape (n,)
        Mode of each sequence, its context and how much of it attention reads, its query tokens.
    missed : int64, shape (n, networks)
        Tokens that the cache of each draft network lacks.
    """
    groups: list[Group] = []
    for index in np.unique(mode).tolist():
        own = mode == index
        ctx, query = attended[own], width[own]
        group = Group(index, len(ctx), int(ctx.sum()), int(query.sum()), int((ctx * query).sum()))
        network = modes.modes[index].network
        if network is not None:
            lacks, whole = missed[own, network], context[own]
            pairs = float((lacks * (whole - lacks) + lacks**2 / 2).sum())
            group = group._replace(missed=int(lacks.sum()), missed_pairs=pairs)
        groups.append(group)
    return groups


def chunks_of(prefill: Prefill | None) -> Chunks:
    """Prefill chunks of a step; none of them in a step without."""
    if prefill is None:
        return Chunks()
    return Chunks(prefill.tokens, prefill.ctx, prefill.pairs, len(prefill.finishing))
