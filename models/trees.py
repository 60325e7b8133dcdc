"""Draft trees: which guesses a step verifies, and how deep a right one is expected to be.

A tree is a tuple of paths; a path is a tuple of ranks, ``(0, 2)`` being the third-best guess for
the second token after the best guess for the first. The root, the current token, is left out.
"""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field

from models.schema import Fraction, Frozen, ModelError, NonNegative, PositiveInt

Path = tuple[int, ...]
Tree = tuple[Path, ...]

MAX_NODES = 4096

_NAMED: dict[str, str] = {
    # mc_sim_7b_63 of github.com/FasterDecoding/Medusa (medusa/model/medusa_choices.py).
    "medusa_63": (
        "0 00 1 01 2 000 10 02 3 03 4 04 20 05 001 5 06 6 07 010 11 7 08 002 30 09 8 9 100 020 12 "
        "003 40 21 004 005 0000 011 006 030 50 13 007 008 009 60 040 14 70 012 200 31 22 80 050 15 "
        "101 021 90 060 0001 16 070"
    ),
    # Static tree of EAGLE (1), 25 nodes, github.com/SafeAILab/EAGLE.
    "eagle_25": (
        "0 1 2 3 00 01 02 10 11 20 21 30 000 001 002 010 011 020 021 100 0000 0001 0002 00000 00001"
    ),
}


class GrownTree(Frozen):
    """A tree grown greedily from head accuracies: always the likeliest missing node."""

    nodes: PositiveInt = Field(le=MAX_NODES, description="Nodes, the root left out.")
    accuracies: tuple[tuple[NonNegative, ...], ...] = Field(
        min_length=1, description="Share of steps in which each rank of each head is right."
    )
    path_exponent: Fraction = Field(default=1.0, description="1: heads err independently.")


def _known(name: str) -> str:
    if name not in _NAMED:
        close = difflib.get_close_matches(name, _NAMED, n=1)
        hint = f"did you mean '{close[0]}'?" if close else f"known: {', '.join(_NAMED)}"
        raise ValueError(f"unknown tree '{name}'; {hint}")
    return name


def _checked_spec(spec: object) -> object:
    """Refuse what is no tree here, with one sentence, before the union below is tried."""
    if isinstance(spec, str):
        return _known(spec)
    if isinstance(spec, list | tuple):
        flat = [item for item in spec if type(item) is int]
        nested = [item for item in spec if isinstance(item, list | tuple)]
        if any(type(rank) is not int for path in nested for rank in path) or len(spec) not in (
            len(flat),
            len(nested),
        ):
            raise ValueError("a list is either top-k by head, or paths of ranks")
        make_tree(flat or nested)
    return spec


TreeSpec = Annotated[
    str | tuple[int, ...] | tuple[Path, ...] | GrownTree, BeforeValidator(_checked_spec)
]
"""A tree as users write it: a name, top-k by head, explicit paths, or how to grow one."""


def make_tree(spec: str | Sequence[int] | Sequence[Sequence[int]] | GrownTree) -> Tree:
    """Tree of a specification.

    Parameters
    ----------
    spec : str, sequence of int, sequence of sequences of int, or GrownTree
        ``"medusa_63"``; ``[3, 3]`` for all of the top 3 of two heads (12 nodes), ``[1] * k`` being
        a chain; explicit paths; or a `GrownTree`.

    Raises
    ------
    ModelError
        Unknown name, or paths that are no tree; key ``tree``.
    """
    if isinstance(spec, str):
        try:
            return tuple(tuple(map(int, path)) for path in _NAMED[_known(spec)].split())
        except ValueError as error:
            raise ModelError(str(error), "tree") from error
    if isinstance(spec, GrownTree):
        return grown_tree(spec.accuracies, spec.nodes, spec.path_exponent)
    if not spec:
        raise ModelError("a tree needs at least one node, got none", "tree")
    widths = [item for item in spec if isinstance(item, int)]
    if widths:
        return full_tree(widths)
    return checked_tree([tuple(item) for item in spec if not isinstance(item, int)])


def checked_tree(paths: Sequence[Path]) -> Tree:
    """Paths as a tree, in the order given.

    Raises
    ------
    ModelError
        A duplicate, a negative rank, an empty path, or a node without its parent; key ``tree``.
    """
    tree = tuple(paths)
    seen = set(tree)
    if len(seen) != len(tree):
        twice = next(path for path in tree if tree.count(path) > 1)
        raise ModelError(f"node {list(twice)} is given twice", "tree")
    for path in tree:
        if not path or min(path) < 0:
            raise ModelError(f"a node is a list of ranks from 0 on, got {list(path)}", "tree")
        if len(path) > 1 and path[:-1] not in seen:
            raise ModelError(f"node {list(path)} has no parent {list(path[:-1])}", "tree")
    return tree


def full_tree(widths: Sequence[int]) -> Tree:
    """All combinations of the top ``widths[d]`` guesses at depth d; ``[3, 3]`` has 12 nodes."""
    if min(widths) < 1:
        raise ModelError(f"top-k of a head must be at least 1, got {min(widths)}", "tree")
    level: list[Path] = [()]
    nodes: list[Path] = []
    for width in widths:
        level = [(*path, rank) for path in level for rank in range(width)]
        nodes += level
        if len(nodes) > MAX_NODES:
            raise ModelError(f"a tree of more than {MAX_NODES} nodes, got {list(widths)}", "tree")
    return tuple(nodes)


def chain(k: int) -> Tree:
    """The best guess at each of ``k`` depths: a tree without branches."""
    return full_tree([1] * k)


def grown_tree(heads: Sequence[Sequence[float]], nodes: int, exponent: float = 1.0) -> Tree:
    """The ``nodes`` likeliest nodes, which maximise the expected accepted tokens.

    A node is never likelier than its parent, so taking the best missing one keeps a tree; ties go
    to the shorter, then to the lower ranks.

    Raises
    ------
    ModelError
        Fewer nodes exist than asked for; key ``tree``.
    """
    queue: list[tuple[float, int, Path]] = []

    def push(parent: Path) -> None:
        for rank in range(len(heads[len(parent)]) if len(parent) < len(heads) else 0):
            path = (*parent, rank)
            heapq.heappush(queue, (-path_probability(path, heads, exponent), len(path), path))

    push(())
    tree: list[Path] = []
    while queue and len(tree) < nodes:
        path = heapq.heappop(queue)[2]
        tree.append(path)
        push(path)
    if len(tree) < nodes:
        raise ModelError(f"these heads have {len(tree)} nodes in all, got {nodes}", "tree")
    return tuple(tree)


def tree_depth(tree: Tree) -> int:
    """Most tokens a step can accept: the longest path."""
    return max(map(len, tree))


def tree_leaves(tree: Tree) -> int:
    """Branches: nodes without a child."""
    return len(tree) - len({path[:-1] for path in tree if len(path) > 1})


def tree_ranks(tree: Tree) -> tuple[int, ...]:
    """Guesses the tree asks of each depth: the largest rank there, plus one."""
    return tuple(
        1 + max(path[depth] for path in tree if len(path) > depth)
        for depth in range(tree_depth(tree))
    )


def path_probability(path: Path, heads: Sequence[Sequence[float]], exponent: float) -> float:
    """P(every guess on the path is right): ``product**e * min**(1-e)`` of its accuracies.

    ``exponent`` 1 is right for accuracies conditional on the path so far, and for heads that err
    independently; 0 for heads that are right together. Published head accuracies are marginal, and
    real trees lie between.
    """
    accuracies = [heads[depth][rank] for depth, rank in enumerate(path)]
    return float(np.prod(accuracies) ** exponent * min(accuracies) ** (1.0 - exponent))


def tree_survival(
    tree: Tree, heads: Sequence[Sequence[float]], exponent: float = 1.0
) -> NDArray[np.float64]:
    """P(accepted >= d) for d = 1..depth.

    At one depth at most one node is right, so node probabilities add up; a depth is never likelier
    than the one above it.

    Parameters
    ----------
    tree : Tree
        Verified nodes.
    heads : sequence of sequences
        P(rank is right) by depth and rank; must cover the tree (see `extended_heads`).
    exponent : float
        See `path_probability`.
    """
    survival = np.zeros(tree_depth(tree))
    for path in tree:
        survival[len(path) - 1] += path_probability(path, heads, exponent)
    clipped: NDArray[np.float64] = np.minimum.accumulate(np.minimum(survival, 1.0))
    return clipped


def extended_heads(
    heads: Sequence[Sequence[float]], ranks: Sequence[int]
) -> tuple[tuple[float, ...], ...]:
    """Head accuracies up to the ranks a tree uses, missing ones extrapolated geometrically.

    Publications stop at the top 5, trees use rank 10: further ranks fall by the ratio of the last
    two, or faster where the head's total would exceed 1.

    Raises
    ------
    ModelError
        Fewer heads than the tree is deep, or one rank only; key ``acceptance.heads``.
    """
    if len(heads) < len(ranks):
        raise ModelError(
            f"a tree of depth {len(ranks)} needs as many heads, got {len(heads)}",
            "acceptance.heads",
        )
    return tuple(_extended(head, count) for head, count in zip(heads, ranks, strict=False))


def _extended(head: Sequence[float], count: int) -> tuple[float, ...]:
    missing = count - len(head)
    if missing <= 0:
        return tuple(head[:count])
    if len(head) < 2:
        raise ModelError(
            f"the tree uses {count} ranks of a head: give two or more, got {len(head)}",
            "acceptance.heads",
        )
    last, rest = head[-1], max(0.0, 1.0 - sum(head))
    if last <= 0.0:
        return (*head, *([0.0] * missing))
    ratio = min(last / head[-2] if head[-2] > 0 else 1.0, rest / (rest + last))
    return (*head, *(last * ratio**i for i in range(1, missing + 1)))
