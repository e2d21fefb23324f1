"""Advantages, the clipped loss, token weights and KL estimators, against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.algos.advantage import ADVANTAGES, grpo
from recollect.algos.batch import build_batch
from recollect.algos.kl import KL
from recollect.algos.loss import AGGREGATIONS, Clip, ppo, token_weights
from recollect.types import Completion, Failure, Group, Score, Task, Trajectory, Turn

# ---- advantages ----


def test_grpo_by_hand() -> None:
    rewards, groups = np.array([1.0, 0.0, 0.0, 0.0, 2.0, 4.0]), np.array([0, 0, 0, 0, 5, 5])
    # group 0: mean 1/4, unbiased variance ((3/4)² + 3·(1/4)²) / 3 = 1/4; group 5: mean 3, variance 2
    expected = [0.75 / (0.5 + 1e-6), *[-0.25 / (0.5 + 1e-6)] * 3, *[s / (math.sqrt(2) + 1e-6) for s in (-1, 1)]]
    np.testing.assert_allclose(grpo(rewards, groups), expected, rtol=1e-12)
    np.testing.assert_allclose(grpo(rewards, groups, use_std=False), [0.75, -0.25, -0.25, -0.25, -1, 1])
    assert ADVANTAGES["grpo"] is grpo


def test_grpo_without_signal_is_zero() -> None:
    assert grpo(np.array([3.0, 1.0, 1.0]), np.array([7, 2, 2])).tolist() == [0, 0, 0]  # a group of one, and a flat one
    assert grpo(np.zeros(0), np.zeros(0, np.int64)).tolist() == []


REWARDS = st.lists(st.tuples(st.integers(0, 3), st.floats(-5, 5)), min_size=1, max_size=16)


@settings(max_examples=60)
@given(rows=REWARDS, use_std=st.booleans(), seed=st.integers(0, 99))
def test_grpo_is_per_group_and_does_not_care_about_order(
    rows: list[tuple[int, float]], use_std: bool, seed: int
) -> None:
    groups, rewards = np.array([g for g, _ in rows]), np.array([r for _, r in rows])
    whole = grpo(rewards, groups, use_std)
    order = np.random.default_rng(seed).permutation(len(rows))
    np.testing.assert_allclose(grpo(rewards[order], groups[order], use_std), whole[order], atol=1e-9)
    for group in set(groups.tolist()):
        members = groups == group
        assert whole[members].sum() == pytest.approx(0, abs=1e-6)
        np.testing.assert_allclose(grpo(rewards[members], groups[members], use_std), whole[members], atol=1e-9)


def trajectory(reward: float, turns: int) -> Trajectory:
    made = [Turn("agent", (1, 2, t), Completion((5, 6), (-1.0, -1.0), "stop", 0, "")) for t in range(turns)]
    return Trajectory("t", 0, made, score=Score(reward))


def test_a_long_trajectory_counts_once() -> None:
    """Nine turns with reward 1 and one turn with reward 0: the mean is 1/2, not 9/10."""
    failed = Trajectory("t", 2, [], failure=Failure("timeout", "late"))
    batch, rewards_N, groups_N = build_batch([Group(Task("t", "q"), [trajectory(1.0, 9), failed, trajectory(0.0, 1)])])
    assert rewards_N.tolist() == [1.0, 0.0]  # one entry for each trajectory, a failed one is not a reward of zero
    advantages = grpo(rewards_N, groups_N, use_std=False)
    assert advantages.tolist() == [0.5, -0.5]
    assert len(batch.sequences) == 10
    assert advantages[batch.trajectories_E].tolist() == [0.5] * 18 + [-0.5] * 2


# ---- the loss ----

CLIP = Clip(0.2, 0.3, 3.0)
LOSSES = [  # ratio, advantage, loss, does the clip bind, is there a gradient
    (1.0, 2.0, -2.0, False, True),
    (1.25, 2.0, -2.5, False, True),
    (1.5, 2.0, -2.6, True, False),  # too far up already: −2 × 1.3
    (0.5, 2.0, -1.0, False, True),  # a good token that became rarer is always pulled back
    (1.0, -2.0, 2.0, False, True),
    (0.9, -2.0, 1.8, False, True),
    (0.5, -2.0, 1.6, True, False),  # too far down already: 2 × 0.8
    (1.5, -2.0, 3.0, False, True),  # a bad token that became likelier is always pushed down …
    (2.9, -2.0, 5.8, False, True),
    (4.0, -2.0, 6.0, False, False),  # … up to the dual clip: 2 × 3
    (1.7, 0.0, 0.0, False, False),
]


@pytest.mark.parametrize(("ratio", "advantage", "loss", "binds", "moves"), LOSSES)
def test_ppo_by_hand(ratio: float, advantage: float, loss: float, binds: bool, moves: bool) -> None:
    old = torch.tensor([-1.3], dtype=torch.float64)
    logp = (old + math.log(ratio)).requires_grad_()
    value, clipped = ppo(logp, old, torch.tensor([advantage], dtype=torch.float64), CLIP)
    assert value.item() == pytest.approx(loss, abs=1e-12)
    assert bool(clipped.item()) is binds
    value.sum().backward()
    assert logp.grad is not None
    assert logp.grad.item() == pytest.approx(-advantage * ratio if moves else 0.0, abs=1e-9)


def test_on_policy_the_gradient_is_the_policy_gradient() -> None:
    logp = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    advantage = torch.linspace(-2, 2, 50, dtype=torch.float64)
    ppo(logp, logp.detach(), advantage, Clip())[0].sum().backward()
    torch.testing.assert_close(logp.grad, -advantage)


@settings(max_examples=60)
@given(
    change=st.floats(-60, 60),
    advantage=st.floats(-3, 3),
    low=st.floats(0, 0.9),
    high=st.floats(0, 2),
    dual=st.floats(1, 9),
)
def test_ppo_is_finite_and_bounded(change: float, advantage: float, low: float, high: float, dual: float) -> None:
    old = torch.zeros(1, dtype=torch.float64)
    advantages = torch.tensor([advantage], dtype=torch.float64)
    loss = ppo(old + change, old, advantages, Clip(low, high, dual))[0].item()
    assert math.isfinite(loss)
    assert loss >= -abs(advantage) * (1 + high) - 1e-9
    if advantage < 0:
        assert loss <= -advantage * dual + 1e-9


@settings(max_examples=60)
@given(rows=st.lists(st.integers(0, 6), min_size=1, max_size=40))
def test_weights_add_up_to_one(rows: list[int]) -> None:
    trajectories = np.array(rows)
    for mode in AGGREGATIONS:
        weights = token_weights(mode, trajectories)
        assert weights.shape == trajectories.shape
        assert weights.sum() == pytest.approx(1)
        assert (weights > 0).all()
    assert len(set(token_weights("token-mean", trajectories).tolist())) == 1
    weights = token_weights("trajectory-mean", trajectories)
    totals = {t: weights[trajectories == t].sum() for t in set(rows)}
    assert all(total == pytest.approx(1 / len(totals)) for total in totals.values())
    for t in totals:
        assert len(set(weights[trajectories == t].tolist())) == 1


def test_weights_by_hand() -> None:
    trajectories = np.array([0, 0, 0, 4])
    assert token_weights("token-mean", trajectories).tolist() == [0.25] * 4
    assert token_weights("trajectory-mean", trajectories).tolist() == pytest.approx([1 / 6] * 3 + [1 / 2])
    assert token_weights("token-mean", trajectories[:0]).tolist() == []
    with pytest.raises(ValueError, match="trajectory-mean"):
        token_weights("seq-mean", trajectories)


# ---- KL ----


def test_estimators_by_hand() -> None:
    logp, ref = torch.tensor([-1.0, -2.0, -0.5]), torch.tensor([-1.5, -1.0, -0.5])
    d = [-0.5, 1.0, 0.0]
    expected = {
        "kl": [0.5, -1.0, 0.0],
        "abs": [0.5, 1.0, 0.0],
        "mse": [0.125, 0.5, 0.0],
        "low_var_kl": [math.exp(x) - x - 1 for x in d],
    }
    assert set(KL) == set(expected)
    for name, values in expected.items():
        assert KL[name](logp, ref).tolist() == pytest.approx(values, abs=1e-6)


@settings(max_examples=60)
@given(a=st.floats(-200, 0), b=st.floats(-200, 0))
def test_estimators_are_finite_and_all_but_k1_are_never_negative(a: float, b: float) -> None:
    logp, ref = torch.tensor([a]), torch.tensor([b])
    for name, estimate in KL.items():
        value = estimate(logp, ref).item()
        assert math.isfinite(value)
        assert name == "kl" or value >= 0
        assert estimate(logp, logp).item() == 0


def test_k1_and_k3_are_unbiased_and_k3_varies_less() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(12, generator=generator, dtype=torch.float64).mul(0.4).log_softmax(0)
    q = (p + 0.3 * torch.randn(12, generator=generator, dtype=torch.float64)).log_softmax(0)
    true = (p.exp() * (p - q)).sum().item()
    for name in ("kl", "low_var_kl"):  # exactly, as a sum over all outcomes
        assert (p.exp() * KL[name](p, q)).sum().item() == pytest.approx(true, rel=1e-9)
    drawn = torch.multinomial(p.exp(), 200_000, replacement=True, generator=generator)
    values = {name: KL[name](p[drawn], q[drawn]) for name in ("kl", "low_var_kl")}
    for sampled in values.values():
        error = sampled.std().item() / math.sqrt(len(sampled))
        assert sampled.mean().item() == pytest.approx(true, abs=4 * error)
    assert values["low_var_kl"].var() < 0.5 * values["kl"].var()
    assert (p.exp() * KL["mse"](p, q)).sum().item() != pytest.approx(true, rel=1e-3)  # k2 is known to be biased
