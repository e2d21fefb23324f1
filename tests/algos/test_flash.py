"""Tree attention by levels covers exactly what the tree's mask allows, each pair once."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.algos.flash import MOST_LEVELS, levels
from recollect.algos.tree import Tree, build_tree


def allowed(trees: list[Tree]) -> np.ndarray:
    """[nodes, nodes] which node may attend to which, from the trees' own rule."""
    total = sum(t.size for t in trees)
    mask, start = np.zeros((total, total), int), 0
    for tree in trees:
        i, j = np.arange(tree.size)[:, None], np.arange(tree.size)[None]
        mask[start : start + tree.size, start : start + tree.size] = (j <= i) & (i < tree.end[j])
        start += tree.size
    return mask


def covered(trees: list[Tree]) -> np.ndarray:
    """[nodes, nodes] how often the levels let a node attend to another."""
    total = sum(t.size for t in trees)
    count = np.zeros((total, total), int)
    made = levels(trees)
    assert made is not None
    for level in made:
        q = np.arange(total) if level.q is None else level.q.numpy()
        k = np.arange(total) if level.k is None else level.k.numpy()
        ends = zip(level.q_ends[:-1], level.q_ends[1:], level.k_ends[:-1], level.k_ends[1:], strict=True)
        for q0, q1, k0, k1 in ends:
            block = np.tri(int(q1 - q0), int(k1 - k0), dtype=int) if level.causal else 1
            count[np.ix_(q[q0:q1], k[k0:k1])] += block
            assert q1 - q0 <= level.q_most
            assert k1 - k0 <= level.k_most
    return count


SEQUENCES = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=7), min_size=1, max_size=8)


@settings(max_examples=80, deadline=None)
@given(first=SEQUENCES, second=SEQUENCES)
def test_every_allowed_pair_is_covered_once(first: list[list[int]], second: list[list[int]]) -> None:
    trees = [build_tree(range(len(s)), [np.array(x) for x in s]) for s in (first, second)]
    np.testing.assert_array_equal(covered(trees), allowed(trees))


def test_a_tree_that_branches_too_often_is_left_to_segments() -> None:
    comb = [np.array([0] * i + [1]) for i in range(MOST_LEVELS + 3)]
    assert levels([build_tree(range(len(comb)), comb)]) is None
