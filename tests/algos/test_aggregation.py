"""One number from many tokens: by hand, by plain loops, and as fixed shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.algos.aggregation import aggregate, token_weights
from recollect.registries import AGGREGATIONS


def loops(loss: Any, mask: Any, mode: str, trajectories: Any, scale: float) -> float:
    rows = [[x for x, m in zip(xs, ms, strict=True) if m] for xs, ms in zip(loss, mask, strict=True)]
    full = [row for row in rows if row]
    if not full:
        return 0.0
    if mode == "token-mean":
        return sum(map(sum, full)) / sum(map(len, full))
    if mode == "seq-mean-token-sum":
        return sum(map(sum, full)) / len(full)
    if mode == "seq-mean-token-mean":
        return sum(sum(row) / len(row) for row in full) / len(full)
    if mode == "seq-mean-token-sum-norm":
        return sum(map(sum, full)) / scale
    paths: dict[int, list[float]] = {}
    for name, row in zip(trajectories, rows, strict=True):
        if row:
            paths.setdefault(int(name), []).extend(row)
    return sum(sum(path) / len(path) for path in paths.values()) / len(paths)


@pytest.mark.parametrize("mode", AGGREGATIONS)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), scale=st.none() | st.floats(0.5, 100))
def test_rows_entries_and_shares_agree_with_plain_loops(mode: str, seed: int, scale: float | None) -> None:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 6)), int(rng.integers(1, 6)))
    mask, loss, trajectories = rng.random(shape) < 0.6, rng.normal(size=shape), rng.integers(0, 3, shape[0])
    divisor = shape[1] if scale is None else scale
    expected = pytest.approx(loops(loss, mask, mode, trajectories, divisor), rel=1e-9, abs=1e-12)
    junk = np.where(mask, loss, np.nan)
    chosen = torch.from_numpy(mask)
    assert aggregate(torch.from_numpy(junk), chosen, mode, trajectories=trajectories, scale=scale).item() == expected
    spread = lambda ids: np.broadcast_to(ids[:, None], shape)[mask]
    sequences_E, trajectories_E = spread(np.arange(shape[0])), spread(trajectories)
    order = rng.permutation(len(sequences_E))
    sequences_E, trajectories_E, loss_E = sequences_E[order], trajectories_E[order], loss[mask][order]
    ids = {"trajectories": torch.from_numpy(trajectories_E), "sequences": torch.from_numpy(sequences_E)}
    made = aggregate(torch.from_numpy(loss_E), torch.ones(len(order)), mode, scale=divisor, **ids)
    assert made.item() == expected
    weights = token_weights(mode, trajectories_E, sequences_E, divisor)
    assert weights.dtype == np.float64
    assert weights.shape == loss_E.shape
    assert (weights * loss_E).sum() == expected


def test_by_hand() -> None:
    """Three sequences of 3, 1 and 0 trained tokens; the first two are one trajectory of two rows."""
    loss = torch.tensor([[1.0, 2.0, 3.0, 9.0], [6.0, 9.0, 9.0, 9.0], [9.0] * 4, [8.0, 9.0, 9.0, 9.0]])
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [0] * 4, [1, 0, 0, 0]])
    made = {mode: aggregate(loss, mask, mode, trajectories=[7, 7, 1, 2]).item() for mode in AGGREGATIONS}
    assert made == pytest.approx(
        {
            "token-mean": 20 / 5,
            "seq-mean-token-sum": (6 + 6 + 8) / 3,
            "seq-mean-token-mean": (2 + 6 + 8) / 3,
            "seq-mean-token-sum-norm": 20 / 4,
            "trajectory-mean": (12 / 4 + 8) / 2,
        }
    )
    assert aggregate(loss, mask, "seq-mean-token-sum-norm", scale=10).item() == pytest.approx(2.0)
    weights = token_weights("trajectory-mean", np.array([0, 0, 0, 4]))
    assert weights.tolist() == pytest.approx([1 / 6] * 3 + [1 / 2])
    assert token_weights("token-mean", np.zeros(0)).tolist() == []


@settings(max_examples=40)
@given(rows=st.lists(st.integers(0, 6), min_size=1, max_size=40))
def test_the_shares_of_means_add_up_to_one(rows: list[int]) -> None:
    ids = np.array(rows)
    for mode in ("token-mean", "seq-mean-token-mean", "trajectory-mean"):
        weights = token_weights(mode, ids, ids)
        assert weights.sum() == pytest.approx(1)
        assert (weights > 0).all()
    totals = {t: weights[ids == t].sum() for t in set(rows)}
    assert all(total == pytest.approx(1 / len(totals)) for total in totals.values())


def test_gradient_and_type_are_the_loss_s() -> None:
    loss = torch.tensor([[1.0, 5.0], [2.0, 3.0]], requires_grad=True)
    made = aggregate(loss, torch.tensor([[1, 0], [1, 1]]), "seq-mean-token-mean")
    assert made.dtype == torch.float32
    made.backward()
    assert loss.grad is not None
    assert loss.grad.tolist() == [[0.5, 0.0], [0.25, 0.25]]


def test_what_is_missing_is_said() -> None:
    x = torch.zeros(3)
    with pytest.raises(ValueError, match="known are token-mean"):
        aggregate(x, torch.ones(3), "seq-mean")
    with pytest.raises(ValueError, match="needs trajectories"):
        aggregate(x, torch.ones(3), "trajectory-mean")
    with pytest.raises(ValueError, match="needs sequences"):
        aggregate(x, torch.ones(3), "seq-mean-token-sum")
    with pytest.raises(ValueError, match="needs a scale"):
        aggregate(x, torch.ones(3), "seq-mean-token-sum-norm")
