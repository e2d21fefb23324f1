"""The model of a step on many GPUs (`benchmarks/cluster.py`) counts what it says."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

from scaling.h200 import DECODE, STEP, errors, fitted
from scaling.here import line
from scaling.model_shape import SHAPES
from scaling.sampling import Servers, Work, simulate
from scaling.step_model import Layout, Wires, best, layouts, learning, step_parts, sync, trained_tokens

PACE, SMALL = fitted(), SHAPES["1.5B"]
ALIKE = Work(tasks=4, samples=2, sections=2, section=100, mean=10, limit=10, spread=0.0)


def test_shapes_have_the_sizes_of_their_names() -> None:
    assert [round(SHAPES[name].parameters / 1e9, 1) for name in ("0.5B", "1.5B", "7B", "32B")] == [0.5, 1.5, 7.6, 32.8]


def test_the_fit_is_near_what_was_measured() -> None:
    assert all(0.8 < error < 1.2 for error in errors(PACE))
    assert len(errors(PACE)) == len(DECODE)


def test_a_step_that_nothing_was_fitted_to() -> None:
    work = Work(tasks=8, samples=16, sections=4, section=5000, mean=256, limit=256, spread=0.0)
    parts = step_parts(work, SMALL, PACE, Wires(), Layout(1, 1, 1, apart=False, shares=True))
    assert parts is not None
    assert parts.total == pytest.approx(sum(STEP), rel=0.25)


def test_attempts_that_are_alike_take_what_can_be_counted_by_hand() -> None:
    sampled = simulate(ALIKE, SMALL, PACE, Servers(1, 1))
    reads = 2 * 4 * SMALL.forward(100, 100**2 / 2)  # each section of each task once
    memories = 8 * (SMALL.forward(10, 10 * (100 + 5)) + SMALL.forward(10, 10 * 5))
    rows = 8  # all of them, in every step
    context = [8 * (100 + 5), 8 * (100 + 10 + 5), 8 * (10 + 5)]  # tokens that they read in each turn
    steps = sum(10 * PACE.decode(SMALL, rows, tokens) for tokens in context)
    assert sampled.seconds == pytest.approx(steps + (reads + memories) * PACE.operation, rel=1e-9)
    assert sampled.mean == sampled.seconds


def test_rows_beyond_what_a_server_holds_wait() -> None:
    free, bound = (simulate(ALIKE, SMALL, PACE, Servers(1, 1, rows=rows)) for rows in (8, 4))
    assert bound.seconds > free.seconds


def test_rows_that_share_a_prompt_may_read_it_once() -> None:
    apart, shared = (simulate(ALIKE, SMALL, PACE, Servers(1, 1, shares=shares)) for shares in (False, True))
    saved = (
        2 * 10 * 4 * 100 * SMALL.token_bytes * PACE.byte
    )  # one of two rows, in two turns of ten steps, of four tasks
    assert apart.seconds - shared.seconds == pytest.approx(saved, rel=1e-6)


@given(st.integers(1, 4), st.integers(0, 100))
def test_twice_the_servers_are_not_slower(count: int, seed: int) -> None:
    work = Work(tasks=8, samples=2, sections=1, section=50, mean=20, limit=60)
    one, two = (simulate(work, SMALL, PACE, Servers(n, 1), seed) for n in (count, 2 * count))
    assert two.seconds <= one.seconds * (1 + 1e-9)


def test_trained_tokens_are_those_of_the_trees() -> None:
    tokens, pairs, scored = trained_tokens(ALIKE)
    assert scored == 8 * 3 * 10
    assert tokens == 4 * 2 * 100 + scored + 8 * 2 * 10  # sections once a task, what is sampled, and it as memory
    assert pairs > 4 * 2 * 100**2 / 2


def test_ranks_divide_the_work_and_talk_more_across_nodes() -> None:
    big = SHAPES["7B"]
    one, eight, many = (learning(Work(), big, PACE, Wires(), Layout(1, 1, ranks, True)) for ranks in (1, 8, 64))
    assert (one[0] / eight[0], one[0] / many[0]) == pytest.approx((8, 64))
    assert one[1] == 0.0 < eight[1]
    slow = replace(Wires(), outside=1e9)
    assert learning(Work(), big, PACE, slow, Layout(1, 1, 64, True))[1] > many[1]


def test_weights_are_handed_over_once_and_taken_by_all_at_once() -> None:
    wires = Wires(write=1e9, read=2e9, handed=4e9, packed=5e9, outside=10e9)
    for broadcast, each in ((False, 1.5e-9), (True, 0.3e-9)):
        few, many = (sync(SMALL, wires, Layout(servers, 1, 8, True, broadcast=broadcast)) for servers in (1, 56))
        assert few == many == pytest.approx(SMALL.weight_bytes * (each + 0.25e-9))
        alone = sync(SMALL, wires, Layout(1, 1, 1, True, broadcast=broadcast))
        assert alone == pytest.approx(SMALL.weight_bytes * each)


def test_layouts_use_every_gpu() -> None:
    for gpus in (8, 64):
        for staleness in (0, 1):
            found = layouts(gpus, SHAPES["32B"], staleness)
            assert found
            assert all(layout.gpus == gpus for layout in found)
            assert not staleness or all(layout.apart for layout in found)


def test_what_does_not_fit_is_not_predicted() -> None:
    assert step_parts(Work(), SHAPES["32B"], PACE, Wires(), Layout(1, 1, 1, False)) is None
    assert best(Work(), SHAPES["32B"], PACE, Wires(), 2, 0, {}) is None


def test_the_bottleneck_is_named() -> None:
    work = Work(tasks=16, samples=4, sections=1, section=500, mean=50, limit=100)
    slow = Wires(write=1e6)
    found = best(work, SMALL, PACE, slow, 8, 0, {"broadcast": False})
    assert found is not None
    assert found[1].bottleneck == "weights to servers"
    found = best(work, SMALL, PACE, Wires(), 8, 1, {"slower": 100.0, "broadcast": True})
    assert found is not None
    assert found[1].bottleneck in ("sampling", "the last server")
    assert found[1].total == pytest.approx(found[1].sampling + found[1].sync)


def test_a_line_through_steps() -> None:
    tokens = np.array([100.0, 200.0, 400.0])
    exact = line(tokens, 0.5 + 0.01 * tokens)
    assert (exact.fixed, exact.token) == pytest.approx((0.5, 0.01))
    assert line(tokens, 0.02 * tokens - 1).fixed == 0.0
