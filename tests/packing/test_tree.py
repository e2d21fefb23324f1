"""Prefix trees: nothing is lost, the mask is exactly "my ancestors and I", budgets are kept."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.packing.batch import Batch
from recollect.packing.tree import build_tree, forest, split_to_budget
from recollect.types import Sample

sequences_strategy = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=9)


def arrays(rows: list[list[int]]) -> list[np.ndarray]:
    return [np.array(r, np.int64) for r in rows]


@settings(max_examples=200, deadline=None)
@given(sequences_strategy)
def test_a_tree_holds_every_sequence_and_masks_by_ancestry(rows: list[list[int]]) -> None:
    tree = build_tree(list(range(len(rows))), arrays(rows))
    distinct_prefixes = {tuple(r[: i + 1]) for r in rows for i in range(len(r))}
    assert tree.size == len(distinct_prefixes)
    for row, path in zip(tree.rows, tree.paths, strict=True):
        assert tree.tokens[path].tolist() == rows[row]
        assert tree.positions[path].tolist() == list(range(len(rows[row])))
    nodes = np.arange(tree.size)
    visible = (nodes[None] <= nodes[:, None]) & (nodes[:, None] < tree.end[None])
    for path in tree.paths:
        for depth, node in enumerate(path):
            assert np.flatnonzero(visible[node]).tolist() == sorted(path[: depth + 1].tolist())


@settings(max_examples=100, deadline=None)
@given(sequences_strategy, st.integers(1, 30), st.integers(1, 4), st.sampled_from([None, 1, 2, 5]), st.data())
def test_budgets_are_kept_and_nothing_is_lost(
    rows: list[list[int]], budget: int, min_share: int, most: int | None, data: st.DataObject
) -> None:
    groups = data.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows)))
    trees = forest(arrays(rows), groups, min_share)
    packs = split_to_budget(trees, arrays(rows), budget, most)
    placed = sorted(r for pack in packs for tree in pack for r in tree.rows)
    assert placed == list(range(len(rows)))
    for pack in packs:
        size = sum(t.size for t in pack)
        assert size <= budget or (len(pack) == 1 and len(set(map(tuple, (rows[r] for r in pack[0].rows)))) == 1)
        assert most is None or sum(len(t.rows) for t in pack) <= most
        for tree in pack:
            assert len({groups[r] for r in tree.rows}) == 1
            for row, path in zip(tree.rows, tree.paths, strict=True):
                assert tree.tokens[path].tolist() == rows[row]


def test_equal_sequences_cost_once() -> None:
    one = np.arange(50)
    assert build_tree([0, 1, 2], [one, one, one]).size == 50


def test_short_common_beginnings_do_not_make_one_tree() -> None:
    rows = [np.array([1, 2, *range(10 + 100 * i, 60 + 100 * i)]) for i in range(3)]
    assert len(forest(rows, [0, 0, 0])) == 3
    assert len(forest(rows, [0, 0, 0], min_share=2)) == 1


def test_packs_without_sharing_are_one_sequence_each() -> None:
    last, none = np.arange(42) == 41, np.zeros(42, np.float32)
    rows = [Sample(np.array([5, *range(10, 50), 60 + i]), last, none, i, 0) for i in range(3)]
    batch = Batch.of(rows)
    assert [len(p.tokens) for p in batch.packs(range(3), 1000)] == [44]
    alone = batch.packs(range(3), 1000, share=False)
    assert [p.tokens.tolist() for p in alone] == [r.ids.tolist() for r in rows]
    assert [p.entry.tolist() for p in alone] == [[0], [1], [2]]
    assert [len(p.entry) for p in batch.packs(range(3), 1000, max_sequences=2)] == [2, 1]
