"""Tree attention by levels covers exactly what the tree's mask allows, each pair once."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.packing import tree_attention as flash
from recollect.packing.tree import Tree, build_tree
from recollect.packing.tree_attention import LONG, MOST_LEVELS, Block, levels


def allowed(trees: list[Tree]) -> np.ndarray:
    """[nodes, nodes] which node may attend to which, from the trees' own rule."""
    total = sum(t.size for t in trees)
    mask, start = np.zeros((total, total), int), 0
    for tree in trees:
        i, j = np.arange(tree.size)[:, None], np.arange(tree.size)[None]
        mask[start : start + tree.size, start : start + tree.size] = (j <= i) & (i < tree.end[j])
        start += tree.size
    return mask


def covered(trees: list[Tree], blocks: bool) -> np.ndarray:
    """[nodes, nodes] how often the parts let a node attend to another."""
    total = sum(t.size for t in trees)
    count, own = np.zeros((total, total), int), np.zeros(total, int)
    made = levels(trees, lambda: blocks)
    assert made is not None
    assert [p.causal for p in made] == sorted((p.causal for p in made), reverse=True), "what reads itself comes first"
    for level in made:
        q, k = np.arange(total)[level.q], np.arange(total)[level.k]
        own[q] += level.causal
        if isinstance(level, Block):
            count[np.ix_(q, k)] += np.tri(len(q), dtype=int) if level.causal else 1
            continue
        ends = zip(level.q_ends[:-1], level.q_ends[1:], level.k_ends[:-1], level.k_ends[1:], strict=True)
        for q0, q1, k0, k1 in ends:
            block = np.tri(int(q1 - q0), int(k1 - k0), dtype=int) if level.causal else 1
            count[np.ix_(q[q0:q1], k[k0:k1])] += block
            assert q1 - q0 <= level.q_most
            assert k1 - k0 <= level.k_most
    assert (own == 1).all()
    return count


SEQUENCES = st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=7), min_size=1, max_size=8)


@settings(max_examples=80, deadline=None)
@given(first=SEQUENCES, second=SEQUENCES, blocks=st.booleans())
def test_every_allowed_pair_is_covered_once(first: list[list[int]], second: list[list[int]], blocks: bool) -> None:
    trees = [build_tree(range(len(s)), [np.array(x) for x in s]) for s in (first, second)]
    with patch.object(flash, "LONG", 3), patch.object(flash, "KEYS_STEP", 2):
        np.testing.assert_array_equal(covered(trees, blocks), allowed(trees))


def test_a_long_prefix_with_long_branches_gets_calls_of_its_own() -> None:
    prefix = np.arange(LONG + 7)
    rows = [np.concatenate([prefix, [5000 + i], np.zeros(LONG // 2, int)]) for i in range(3)]
    made = levels([build_tree(range(3), rows)], lambda: True)
    assert made is not None
    blocks = [part for part in made if isinstance(part, Block)]
    assert [(b.causal, b.q.stop - b.q.start, b.k.stop - b.k.start) for b in blocks] == [
        (True, LONG + 7, LONG + 7),
        (False, 3 * (LONG // 2 + 1), LONG),
    ]


def test_a_tree_that_branches_too_often_is_left_to_segments() -> None:
    comb = [np.array([0] * i + [1]) for i in range(MOST_LEVELS + 3)]
    assert levels([build_tree(range(len(comb)), comb)]) is None
