"""Weights between sampler and learner."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.algos.importance import LEVELS, importance_weights


def test_by_hand() -> None:
    """Ratios 3, 1/2 and (not trained) anything in one row, 3/2 in the other."""
    sampler = torch.tensor([[-2.0, -1.0, math.nan], [-1.0, 5.0, 5.0]], dtype=torch.float64)
    learner = sampler + torch.tensor([[3.0, 0.5, 1.0], [1.5, 9.0, 9.0]], dtype=torch.float64).log()
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    weights, drift = importance_weights(learner.requires_grad_(), sampler, mask)
    assert weights.tolist() == [pytest.approx([2.0, 0.5, 0.0]), pytest.approx([1.5, 0.0, 0.0])]
    assert not weights.requires_grad
    changes = [math.log(3), -math.log(2), math.log(1.5)]
    assert drift == pytest.approx(
        {
            "mean_abs": sum(map(abs, changes)) / 3,
            "max_ratio": 3.0,
            "capped": 1 / 3,
            "kl": sum(math.exp(d) - 1 - d for d in changes) / 3,
        }
    )
    weights, drift = importance_weights(learner, sampler, mask, "sequence", cap=1.5)
    assert weights.tolist() == [pytest.approx([1.5, 1.5, 0.0]), pytest.approx([1.5, 0.0, 0.0])]
    assert drift["max_ratio"] == pytest.approx(1.5)
    assert importance_weights(learner, sampler, mask, "sequence", cap=1.2)[1]["capped"] == 1.0


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), level=st.sampled_from(LEVELS), spread=st.sampled_from([0.05, 1.0, 40.0]))
def test_rows_and_entries_agree(seed: int, level: str, spread: float) -> None:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 5)), int(rng.integers(1, 7)))
    sampler = torch.from_numpy(rng.normal(size=shape))
    learner = sampler + spread * torch.from_numpy(rng.normal(size=shape))
    mask = torch.from_numpy(rng.random(shape) < 0.7)
    weights, drift = importance_weights(learner, sampler, mask, level)
    assert weights.isfinite().all()
    assert ((weights >= 0) & (weights <= 2)).all()
    rows = torch.arange(shape[0])[:, None].expand(shape)[mask]
    flat, same = importance_weights(learner[mask], sampler[mask], torch.ones(len(rows)), level, sequences=rows)
    torch.testing.assert_close(flat, weights[mask])
    assert same == pytest.approx(drift)
    assert importance_weights(sampler, sampler, mask, level)[0].tolist() == mask.double().tolist()


def test_bad_input_is_refused() -> None:
    x = torch.zeros(2)
    with pytest.raises(ValueError, match="token, sequence"):
        importance_weights(x, x, torch.ones(2), "turn")
    with pytest.raises(ValueError, match="sequences"):
        importance_weights(x, x, torch.ones(2), "sequence")
    weights, drift = importance_weights(x, x, torch.zeros(2))
    assert weights.tolist() == [0, 0]
    assert drift == {"mean_abs": 0.0, "max_ratio": 1.0, "capped": 0.0, "kl": 0.0}
