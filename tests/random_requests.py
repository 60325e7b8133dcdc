"""Random small workloads: lengths, arrivals, chains of shared prefixes, sessions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from sim.scenario.requests import Prefixes

SLOT_S = 2.0**-10
SHAPES = ("nothing", "groups", "tree", "pages", "sessions")
SHAPE_SHARES = (0.2, 0.2, 0.15, 0.15, 0.3)

Chain = list[tuple[int, int]]  # (key, end) of each node


class Prompts(NamedTuple):
    """Rows in order: lengths, prefixes, and their places in sessions."""

    tokens: np.ndarray
    chains: list[Chain]
    keeps: np.ndarray
    turn: np.ndarray


def draw_requests(
    rng: np.random.Generator, n: int, block_tokens: int, replicas: int
) -> SimpleNamespace:
    """Draw `n` requests; some sessions begin together, some long after the rest."""
    output = rng.integers(1, int(rng.choice([4, 30, 90])), size=n)
    prompts = draw_prompts(rng, output, block_tokens)
    heads = np.flatnonzero(prompts.turn == 0)
    gap_slots = rng.integers(0, int(rng.choice([1, 2, 6, 25])), size=len(heads))
    gap_slots[rng.random(len(heads)) < 0.03] += 3000
    arrival_s = np.full(n, np.nan)
    arrival_s[heads] = np.cumsum(gap_slots) * SLOT_S
    users = None
    if rng.random() < 0.3:
        users = int(rng.integers(1, min(len(heads), 8 * replicas) + 1))
        stagger = int(rng.integers(0, 4))
        arrival_s[heads] = np.arange(len(heads)) * stagger * SLOT_S
        arrival_s[heads[users:]] = np.nan
    pause_slots = rng.choice([0, 3, 40]) if rng.random() < 0.5 else rng.integers(0, 60, size=n)
    return SimpleNamespace(
        arrival_s=arrival_s,
        stream=np.zeros(n, dtype=np.int32),
        prompt_tokens=prompts.tokens,
        output_tokens=output,
        prefixes=as_prefixes(prompts.chains),
        keeps=prompts.keeps,
        turn=prompts.turn,
        domain=np.zeros(n, dtype=np.int64),
        users=users,
        think_s=np.broadcast_to(pause_slots * SLOT_S, n).copy(),
        stream_names=("all",),
        domain_names=("general",),
    )


def as_prefixes(chains: list[Chain]) -> Prefixes:
    nodes = [node for chain in chains for node in chain]
    keys, ends = np.array(nodes, dtype=np.int64).reshape(-1, 2).T
    offsets = np.cumsum([0, *(len(chain) for chain in chains)])
    return Prefixes(offsets, keys, ends)


def draw_prompts(rng: np.random.Generator, output: np.ndarray, block_tokens: int) -> Prompts:
    n = len(output)
    # Skewed: a few long prompts, prefilled in many chunks, among many short ones.
    longest, skew = int(rng.choice([20, 80, 250, 700])), int(rng.choice([1, 4]))
    text = 1 + (longest * rng.random(n) ** skew).astype(np.int64)
    shape = rng.choice(SHAPES, p=SHAPE_SHARES)
    if shape == "sessions":
        return draw_sessions(rng, np.minimum(text, 40), output, block_tokens)
    if shape == "groups":
        tokens, chains = draw_groups(rng, text, block_tokens)
    elif shape == "tree":
        tokens, chains = draw_tree(rng, text, block_tokens)
    elif shape == "pages":
        tokens, chains = draw_pages(rng, n, block_tokens)
    else:
        tokens, chains = text, [[] for _ in range(n)]
    nobody = np.zeros(n, dtype=np.int64)
    return Prompts(tokens, chains, nobody, nobody.copy())


def draw_groups(
    rng: np.random.Generator, text: np.ndarray, block_tokens: int
) -> tuple[np.ndarray, list[Chain]]:
    """Most requests share a prefix with their group; a few, or all, are nothing but the prefix."""
    n, groups = len(text), int(rng.integers(1, 7))
    size = rng.integers(1, int(rng.choice([6, 40])) * block_tokens, size=groups)
    member, group = rng.random(n) < 0.8, rng.integers(0, groups, size=n)
    if rng.random() < 0.3:
        member[:], text = True, np.zeros(n, dtype=np.int64)
    text = np.where(member & (rng.random(n) < 0.1), 0, text)
    tokens = np.where(member, size[group] + text, text)
    chains = [[(g + 1, int(size[g]))] if m else [] for g, m in zip(group, member, strict=True)]
    return tokens, chains


def draw_tree(
    rng: np.random.Generator, text: np.ndarray, block_tokens: int
) -> tuple[np.ndarray, list[Chain]]:
    """Prefixes that branch, up to four nodes deep; some nodes are shorter than a block."""
    longest = int(rng.choice([1, 2, 6])) * block_tokens
    nodes: list[Chain] = []  # each as the chain that leads to it
    for key in range(1, int(rng.integers(3, 14))):
        before: Chain = []
        if nodes and rng.random() < 0.8:
            before = nodes[int(rng.integers(len(nodes)))][:3]
        start = before[-1][1] if before else 0
        nodes.append([*before, (key, start + int(rng.integers(1, longest + 1)))])
    chains = [nodes[int(i)] for i in rng.integers(len(nodes), size=len(text))]
    chains = [chain if rng.random() < 0.85 else [] for chain in chains]
    whole = rng.random(len(text)) < 0.25
    ends = np.array([chain[-1][1] if chain else 0 for chain in chains])
    return np.where(whole & (ends > 0), ends, ends + text), chains


def draw_pages(
    rng: np.random.Generator, n: int, block_tokens: int
) -> tuple[np.ndarray, list[Chain]]:
    """Whole prompts as pages of one size, the last one often shorter, as recorded traffic has."""
    size = int(rng.choice([block_tokens, 2 * block_tokens, block_tokens + 3, 5]))
    chains: list[Chain] = []
    key = 0
    for _ in range(n):
        pages: Chain = []
        if chains and rng.random() < 0.7:
            pages = list(chains[int(rng.integers(len(chains)))])
            if rng.random() < 0.8:
                shared = int(rng.integers(0, len(pages) + 1))
                pages = [(k, end) for k, end in pages[:shared] if end % size == 0]
        fresh = int(rng.integers(0, 9)) if pages and pages[-1][1] % size == 0 else 0
        for _ in range(fresh if pages else int(rng.integers(1, 12))):
            key += 1
            pages.append((key, size * (len(pages) + 1)))
        if fresh and rng.random() < 0.5:
            pages[-1] = (key, pages[-1][1] - int(rng.integers(0, size)))
        chains.append(pages)
    return np.array([pages[-1][1] for pages in chains]), chains


def draw_sessions(
    rng: np.random.Generator, text: np.ndarray, output: np.ndarray, block_tokens: int
) -> Prompts:
    """Conversations: each turn repeats what was said before and adds some text."""
    n, most = len(text), int(rng.integers(1, 6))
    keeping, keeps_last = rng.random() < 0.8, rng.random() < 0.3
    systems = int(rng.integers(0, 3))
    system_tokens = rng.integers(1, 5 * block_tokens, size=systems)
    fresh = rng.random(n) < 0.95  # else nothing is added to what was said
    tokens, keeps, turn = np.zeros((3, n), dtype=np.int64)
    chains: list[Chain] = []
    left = 0
    for row in range(n):
        if left == 0:
            left, said, chain = int(rng.integers(1, most + 1)), 0, []
            if systems and rng.random() < 0.8:
                system = int(rng.integers(systems))
                said, chain = int(system_tokens[system]), [(system + 1, int(system_tokens[system]))]
        else:
            turn[row] = turn[row - 1] + 1
        tokens[row] = said + (int(text[row]) if fresh[row] or not said else 0)
        chains.append(chain)
        left -= 1
        said = int(tokens[row] + output[row])
        if keeping and (left or keeps_last):
            keeps[row] = systems + 1 + row
            # The last token of an answer was never fed back.
            chain = [*chain, (systems + 1 + row, said - 1)]
    return Prompts(tokens, chains, keeps, turn)
