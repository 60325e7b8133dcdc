"""What the prompts of a trace share: blocks with equal hash ids, sessions, named prefixes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.scenario.distributions import Ints
from sim.scenario.requests import Prefixes
from sim.scenario.trace.columns import Block, spread
from sim.scenario.trace.lines import HASHED_TOKENS

POPULAR_SHARE = 0.01
POPULAR_REQUESTS = 10
"""A block that more than this share of the requests hold, and more than so many, is popular."""


class Chains(NamedTuple):
    """Prefixes by hash id.

    Attributes
    ----------
    prefixes : Prefixes
        A node a block that at least two requests share.
    popular : int64, shape (n,)
        Leading nodes of each request that are popular: system prompts and tools, not a
        conversation.
    family : int64, shape (n,)
        Equal for requests that share a block beyond those.
    """

    prefixes: Prefixes
    popular: Ints
    family: Ints


def hashed_chains(block: Block) -> Chains:
    """Nodes from hash ids, one a block; where a prompt shares no more, its chain ends."""
    n, counts = len(block.hash_counts), block.hash_counts.astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(counts)])
    depth = spread(np.zeros(n, dtype=np.int64), counts)
    prompt = np.repeat(block.prompt_tokens.astype(np.int64), counts)
    ends = np.minimum(HASHED_TOKENS * (depth + 1), prompt)
    keys = _keys(offsets, block.hash_ids, ends)
    holders = np.bincount(keys)[keys]
    shared = holders > 1
    popular = _leading(holders > max(n * POPULAR_SHARE, POPULAR_REQUESTS), offsets)
    family = len(keys) + 1 + np.arange(n)
    beyond = popular < _leading(shared, offsets)
    family[beyond] = keys[(offsets[:-1] + popular)[beyond]]
    kept = np.concatenate([[0], np.cumsum(shared)])[offsets]
    return Chains(Prefixes(kept, keys[shared], ends[shared]), popular, family)


def _keys(offsets: Ints, ids: NDArray[np.uint64], ends: Ints) -> Ints:
    """Equal keys for blocks of equal id and end after equal blocks, counted from 1."""
    keys, counts = np.zeros(len(ids), dtype=np.int64), np.diff(offsets)
    _, code = np.unique(ids, return_inverse=True)
    _, code = np.unique(code * HASHED_TOKENS + ends % HASHED_TOKENS, return_inverse=True)
    codes = int(code.max(initial=0)) + 1
    before = np.zeros(len(counts), dtype=np.int64)
    made, depth = 0, 0
    (rows,) = np.nonzero(counts)
    while len(rows):
        at = offsets[rows] + depth
        distinct, place = np.unique(before[rows] * codes + code[at], return_inverse=True)
        keys[at] = before[rows] = made + 1 + place
        made, depth = made + len(distinct), depth + 1
        rows = rows[counts[rows] > depth]
    return keys


def _leading(flags: NDArray[np.bool_], offsets: Ints) -> Ints:
    """How many nodes of each request have the flag; they are its first ones."""
    leading: Ints = np.diff(np.concatenate([[0], np.cumsum(flags)])[offsets])
    return leading


def drawn_chains(chains: Chains, rows: Ints, copy: Ints) -> Prefixes:
    """Prefixes of chosen rows: a copy shares popular blocks, and has its own of all others."""
    nodes = chains.prefixes
    counts = np.diff(nodes.offsets)[rows]
    at = spread(nodes.offsets[rows], counts)
    depth = spread(np.zeros(len(rows), dtype=np.int64), counts)
    own = depth >= np.repeat(chains.popular[rows], counts)
    distinct = int(nodes.keys.max(initial=0))
    keys = nodes.keys[at] + np.repeat(copy, counts) * own * distinct
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return Prefixes(offsets, keys, nodes.ends[at])


class Turns(NamedTuple):
    """Requests in order of time; every array of shape (n,).

    Attributes
    ----------
    session, prefix : int64
        Above zero where a request is of one.
    prefix_tokens, prompt_tokens, output_tokens : int64
    """

    session: Ints
    prefix: Ints
    prefix_tokens: Ints
    prompt_tokens: Ints
    output_tokens: Ints


def session_chains(turns: Turns) -> tuple[Prefixes, Ints]:
    """Prefixes by name and session, and the key under which each request is found afterwards.

    A turn shares all that was computed for the turns before it where its prompt has grown by the
    last answer at least, and both begin with the same named prefix; else a new chain begins.
    """
    order = np.argsort(turns.session, kind="stable")
    follows = _follows(Turns(*(column[order] for column in turns)))
    place = np.arange(len(order))
    past = place - np.maximum.accumulate(np.where(follows, 0, place))
    at = np.empty_like(place)
    at[order] = place
    key = int(turns.prefix.max(initial=0)) + 1 + place
    computed = (turns.prompt_tokens + turns.output_tokens - 1)[order]
    named, begin = turns.prefix > 0, at - past[at]
    offsets = np.concatenate([[0], np.cumsum(named + past[at])])
    keys, ends = np.zeros((2, int(offsets[-1])), dtype=np.int64)
    keys[offsets[:-1][named]] = turns.prefix[named]
    ends[offsets[:-1][named]] = turns.prefix_tokens[named]
    to, turn = spread(offsets[:-1] + named, past[at]), spread(begin, past[at])
    keys[to], ends[to] = key[turn], computed[turn]
    answered = np.append(follows[1:], False)
    return Prefixes(offsets, keys, ends), np.where(answered, key, 0)[at]


def _follows(turns: Turns) -> NDArray[np.bool_]:
    """Whether each of the turns, sorted by session, contains the one before it."""
    same = (turns.session[1:] == turns.session[:-1]) & (turns.session[1:] > 0)
    same &= turns.prefix[1:] == turns.prefix[:-1]
    grown = turns.prompt_tokens[1:] >= turns.prompt_tokens[:-1] + turns.output_tokens[:-1]
    return np.concatenate([[False], same & grown])
