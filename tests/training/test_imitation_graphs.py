"""Imitation under a CUDA graph gives the numbers of the same update without one."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.packing import micro_batch
from recollect.packing.batch import Batch
from recollect.packing.micro_batch import GPU_STEP, Packed, pack
from recollect.packing.tree import build_tree, nobodys_tree
from recollect.packing.tree_attention import Level
from recollect.training.learner.imitation_graphs import SPARE, TOKENS, GraphSize, ImitationGraphs, side_by_side
from recollect.types import Sample

LENGTHS = [[7, 300, 41], [130, 2, 64, 64, 90], [513]]


def samples(lengths: list[int], seed: int = 0) -> list[Sample]:
    draw = np.random.default_rng(seed)
    rows = [draw.integers(3, 60, n) for n in lengths]
    masks = [np.arange(n) >= max(1, n // 2) for n in lengths]
    return [Sample(r, m, np.zeros(len(r), np.float32), i, i) for i, (r, m) in enumerate(zip(rows, masks, strict=True))]


def test_a_tree_of_nobody_changes_no_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(micro_batch, "GPU_STEP", 1)
    rows = [np.arange(3, 12), np.arange(5, 25)]
    masks = [np.arange(len(r)) > 2 for r in rows]
    trees = [build_tree([i], [r]) for i, r in enumerate(rows)]
    plain, filled = (pack(t, masks, [0, 6]) for t in (trees, [*trees, nobodys_tree(11)]))
    assert len(filled.tokens) == len(plain.tokens) + 11
    for name in ("parents", "targets", "entry_target", "entry"):
        assert torch.equal(getattr(plain, name), getattr(filled, name))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_loss_and_gradients_are_those_without_a_graph(lengths: list[int]) -> None:
    from recollect.config import Optim
    from recollect.training.learner.imitation_loss import token_losses
    from recollect.training.learner.trained_model import TrainedModel
    from tests.engine.test_layers import make

    model: Any = make("Llama").cuda()
    plain, captured = (TrainedModel(copy.deepcopy(model), Optim(), 10, torch.bfloat16, half=True) for _ in range(2))
    graphs = ImitationGraphs.of(captured)
    assert graphs is not None
    assert plain.masters is not None
    assert captured.masters is not None
    for seed in range(3):  # the second and third pass are replayed
        batch = Batch.of(samples(lengths, seed))
        (packed,) = batch.packs(range(len(lengths)), 4096)
        assert len(packed.tokens) % GPU_STEP == 0
        count = len(packed.entry)
        expected = plain.accumulate(
            [packed],
            lambda m, p: token_losses(m, p)[0][p.entry_target].sum() / count,  # noqa: B023
        )
        found = graphs.accumulate([packed], count)
        assert found is not None
        loss, right = found.tolist()
        assert loss == pytest.approx(expected, rel=2e-3)
        assert 0 <= right <= 1
        wanted, made = plain.masters.take(), captured.masters.take()
        assert wanted.keys() == made.keys()
        for name, gradient in wanted.items():
            difference = (gradient - made[name]).norm() / gradient.norm().clamp_min(1e-6)
            assert float(difference) < 0.02, name
    assert len(graphs.graphs) == 1


def sized(lengths: list[int]) -> tuple[Packed, Level]:
    """A micro-batch on a CPU, and how a GPU would attend in it."""
    (packed,) = Batch.of(samples(lengths)).packs(range(len(lengths)), 1 << 20)
    ends = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32)
    everything = slice(0, len(packed.tokens))
    return packed, Level(everything, everything, ends, ends, max(lengths), max(lengths), True)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(2, 1500), min_size=1, max_size=12), st.lists(st.integers(2, 1500), min_size=1, max_size=12))
def test_a_size_holds_what_it_was_made_for_and_what_leaves_little_free(first: list[int], second: list[int]) -> None:
    packed, level = sized(first)
    size = GraphSize.of(packed, level)
    assert size.holds(packed, level)
    other, ends = sized(second)
    if not size.holds(other, ends):
        return
    used = len(other.tokens)
    rest = len(range(used, size.tokens, size.longest)[1:])
    assert used <= size.tokens <= SPARE * (used + TOKENS)
    assert len(other.targets) <= size.targets
    assert len(ends.q_ends) + rest <= size.sequences + 1
    assert all(size.longest >= n for n in [*second, min(size.longest, size.tokens - used)])


def test_much_shorter_batches_get_a_graph_of_their_own() -> None:
    size = GraphSize.of(*sized([900] * 8))
    assert not size.holds(*sized([700] * 8))
    assert size.holds(*sized([870] * 8))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_sequences_that_share_take_another_way() -> None:
    row = np.arange(3, 103)
    same = [Sample(row, np.arange(100) > 50, np.zeros(100, np.float32), i, 0) for i in range(2)]
    ends = [np.concatenate([row[:60], np.full(9, 5 + i)]) for i in range(2)]
    apart = [Sample(r, np.arange(69) > 60, np.zeros(69, np.float32), i, 0) for i, r in enumerate(ends)]
    (packed,) = Batch.of(apart).packs(range(2), 4096)
    assert side_by_side(packed) is None
    (packed,) = Batch.of(same).packs(range(2), 4096)
    level = side_by_side(packed)
    assert level is not None
    assert GraphSize.of(packed, level).tokens == TOKENS
