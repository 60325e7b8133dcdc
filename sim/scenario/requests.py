"""The requests of one replication, as arrays: what the engine is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.scenario.distributions import Floats, Ints


class Prefixes(NamedTuple):
    """Prompt tokens that requests share, as a chain of nodes a request.

    Request r owns nodes ``[offsets[r]:offsets[r + 1]]``; the first starts with its prompt, each
    other where the one before ends. Equal keys mean equal tokens, equal start and end, and equal
    nodes before.

    Attributes
    ----------
    offsets : int64, shape (n + 1,)
    keys : int64, shape (nodes,)
        Above zero.
    ends : int64, shape (nodes,)
        Prompt tokens up to the end of the node, ascending within a request [tokens].
    """

    offsets: Ints
    keys: Ints
    ends: Ints

    @classmethod
    def of_groups(cls, group: Ints, tokens: Ints) -> Prefixes:
        """At most one node a request: its group (0: none), shared up to ``tokens``."""
        member = group > 0
        offsets = np.concatenate([[0], np.cumsum(member)]).astype(np.int64)
        return cls(offsets, group[member], tokens[member])

    @classmethod
    def of_sessions(cls, group: Ints, tokens: Ints, turn: Ints, ends: Ints, key: int) -> Prefixes:
        """The node of its group, if any, then one for each turn before it in its session.

        Parameters
        ----------
        group, tokens : int64, shape (n,)
            As in ``of_groups``; equal within a session.
        turn : int64, shape (n,)
            Place in its session, whose rows follow one another.
        ends : int64, shape (n,)
            Tokens computed when a request is finished, as the next turn finds them.
        key : int
            Key of the first row; each row has its own, above those of the groups.
        """
        member = (group > 0).astype(np.int64)
        nodes = member + turn
        offsets = np.concatenate([[0], np.cumsum(nodes)]).astype(np.int64)
        row = np.repeat(np.arange(len(turn)), nodes)
        place = np.arange(len(row)) - offsets[row] - member[row]
        shared, before = place < 0, row - turn[row] + place
        keys = np.where(shared, group[row], key + before)
        return cls(offsets, keys, np.where(shared, tokens[row], ends[before]))


@dataclass(frozen=True, eq=False)
class Requests:
    """All requests of one replication; every array has shape (n,).

    A request is its row, which is its id. Sessions are rows one after another; their first rows
    are in order of arrival.

    Attributes
    ----------
    arrival_s : float64
        Arrival [s]; NaN where it follows from an answer: later turns of a session, and in a closed
        loop all sessions but the first ``users``.
    stream, domain : int
        Index into ``stream_names`` and ``domain_names``.
    prompt_tokens, output_tokens : int64
        Lengths, at least 1 [tokens].
    prefixes : Prefixes
        Leading prompt tokens shared with other requests.
    keeps : int64
        Key under which all a request computed past its own prefix, ``prompt + output - 1`` tokens,
        is found once it has finished; 0 when nobody will look.
    turn : int64
        Place in its session; above 0 it is sent ``think_s`` after the row before was answered.
    think_s : float64
        Pause between the answer a request waits for and its being sent [s].
    users : int or None
        Concurrent users of a closed loop; None when first turns arrive at times of their own.
    """

    arrival_s: Floats
    stream: NDArray[np.int32]
    prompt_tokens: Ints
    output_tokens: Ints
    domain: Ints
    prefixes: Prefixes
    keeps: Ints
    turn: Ints
    think_s: Floats
    users: int | None
    stream_names: tuple[str, ...]
    domain_names: tuple[str, ...]

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.prompt_tokens)
