from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from models.schema import ModelError
from models.trees import (
    GrownTree,
    TreeSpec,
    chain,
    checked_tree,
    extended_heads,
    grown_tree,
    make_tree,
    path_probability,
    tree_depth,
    tree_ranks,
    tree_survival,
)

HEADS = ((0.5, 0.2, 0.1), (0.4, 0.3, 0.05), (0.6, 0.1, 0.1))


def survival_by_enumeration(tree, heads):
    """Independent heads: each has one right rank (or none); follow it down the tree."""
    outcomes = [[*enumerate(head), (None, 1 - sum(head))] for head in heads]
    survival = np.zeros(len(heads))
    for draw in product(*outcomes):
        probability = np.prod([p for _, p in draw])
        accepted = 0
        while accepted < len(heads) and tuple(r for r, _ in draw[: accepted + 1]) in tree:
            accepted += 1
        survival[:accepted] += probability
    return survival


def test_named_trees_are_the_reference_ones():
    medusa, eagle = make_tree("medusa_63"), make_tree("eagle_25")
    assert (len(medusa), tree_depth(medusa)) == (63, 4)
    assert (len(eagle), tree_depth(eagle)) == (25, 5)
    assert tree_ranks(medusa) == (10, 10, 10, 2)
    assert medusa[:4] == ((0,), (0, 0), (1,), (0, 1)) and medusa[-1] == (0, 7, 0)
    assert eagle[-1] == (0, 0, 0, 0, 1)
    assert checked_tree(medusa) == medusa and checked_tree(eagle) == eagle


def test_full_tree_counts_every_combination():
    assert len(make_tree([3, 3, 3, 3])) == 3 + 9 + 27 + 81
    assert make_tree([1] * 3) == chain(3) == ((0,), (0, 0), (0, 0, 0))


@pytest.mark.parametrize("tree", [chain(3), make_tree([3, 2, 1]), ((0,), (1,), (1, 2), (1, 2, 0))])
def test_survival_equals_enumeration_of_independent_heads(tree):
    depth = tree_depth(tree)
    expected = survival_by_enumeration(set(tree), HEADS[:depth])
    assert tree_survival(tree, HEADS) == pytest.approx(expected, abs=1e-12)


def test_path_exponent_interpolates_between_independence_and_minimum():
    path = (0, 1, 0)
    assert path_probability(path, HEADS, 1.0) == pytest.approx(0.5 * 0.3 * 0.6)
    assert path_probability(path, HEADS, 0.0) == pytest.approx(0.3)
    middle = path_probability(path, HEADS, 0.5)
    assert middle == pytest.approx(np.sqrt(0.5 * 0.3 * 0.6 * 0.3))


def test_survival_never_rises_with_depth_nor_exceeds_one():
    always = ((0.9, 0.1), (0.9, 0.1))
    survival = tree_survival(make_tree([2, 2]), always, exponent=0.0)
    assert survival[0] == pytest.approx(1.0)
    assert survival[1] == pytest.approx(1.0)


def test_greedy_tree_beats_every_other_tree_of_its_size():
    heads = ((0.5, 0.3), (0.45, 0.25), (0.4, 0.1))
    every_node = make_tree([2, 2, 2])
    for nodes in (1, 2, 4, 5):
        grown = grown_tree(heads, nodes)
        best = 0.0
        for tree in combinations(every_node, nodes):
            if all(path[:-1] in tree or len(path) == 1 for path in tree):
                best = max(best, sum(path_probability(path, heads, 1.0) for path in tree))
        assert tree_survival(grown, heads).sum() == pytest.approx(best)
        assert checked_tree(grown) == grown and len(grown) == nodes


def test_greedy_tree_refuses_more_nodes_than_exist():
    with pytest.raises(ModelError, match="have 2 nodes in all, got 3"):
        make_tree(GrownTree(nodes=3, accuracies=((0.5, 0.2),)))


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ([[0], [0, 1, 0]], r"node \[0, 1, 0\] has no parent \[0, 1\]"),
        ([[0], [1], [0]], r"node \[0\] is given twice"),
        ([[0], [-1]], r"ranks from 0 on, got \[-1\]"),
        ([[]], r"ranks from 0 on, got \[\]"),
        ([], "at least one node"),
        ([2, 0], "at least 1, got 0"),
        ("medusa63", "did you mean 'medusa_63'"),
        ([99, 99], "more than 4096 nodes"),
    ],
)
def test_what_is_no_tree_is_refused(paths, message):
    with pytest.raises(ModelError, match=message) as error:
        make_tree(paths)
    assert error.value.key == "tree"


def test_specification_as_written_in_yaml():
    read = TypeAdapter(TreeSpec).validate_python
    assert read([3, 2]) == (3, 2)
    assert read([[0], [0, 1]]) == ((0,), (0, 1))
    assert read("eagle_25") == "eagle_25"
    assert read({"nodes": 2, "accuracies": [[0.5, 0.2]]}).nodes == 2
    for bad in ([[0], 1], [0.5], "meduza_63", [[0], [0, 1, 1]]):
        with pytest.raises(ValidationError) as error:
            read(bad)
        assert error.value.error_count() == 1


def test_missing_ranks_fall_geometrically_within_the_remaining_probability():
    (head,) = extended_heads([(0.5, 0.2, 0.1)], [5])
    assert head == pytest.approx((0.5, 0.2, 0.1, 0.05, 0.025))
    (full,) = extended_heads([(0.5, 0.24, 0.24)], [200])
    assert sum(full) <= 1.0 + 1e-12 and full[3] < 0.02
    assert extended_heads([(0.5, 0.2), (0.3,)], [1, 1]) == ((0.5,), (0.3,))


def test_a_tree_needs_its_heads_and_ranks():
    with pytest.raises(ModelError, match="depth 2 needs as many heads, got 1"):
        extended_heads([(0.5,)], [1, 1])
    with pytest.raises(ModelError, match="uses 2 ranks of a head"):
        extended_heads([(0.5,)], [2])
