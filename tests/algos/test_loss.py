"""Policy losses by hand, by plain loops, and their gradients."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.algos.aggregation import aggregate
from recollect.algos.loss import LOSSES

CLIP = {"clip_ratio_low": 0.2, "clip_ratio_high": 0.3, "clip_ratio_c": 3.0}
PPO = [  # ratio, advantage, loss, does the clip bind, is there a gradient
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


def numbers(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("name", ["ppo", "vanilla", "dr_grpo"])
@pytest.mark.parametrize(("ratio", "advantage", "loss", "binds", "moves"), PPO)
def test_ppo_by_hand(name: str, ratio: float, advantage: float, loss: float, binds: bool, moves: bool) -> None:
    old = numbers(-1.3)
    logp = (old + math.log(ratio)).requires_grad_()
    value, clipped = LOSSES[name](logp, old, numbers(advantage), torch.ones(1), **CLIP)
    assert value.item() == pytest.approx(loss, abs=1e-12)
    assert bool(clipped.item()) is binds
    value.sum().backward()
    assert logp.grad is not None
    assert logp.grad.item() == pytest.approx(-advantage * ratio if moves else 0.0, abs=1e-9)


def test_the_others_by_hand() -> None:
    """Two tokens of a sequence with ratios 4 and 1, and one of another with ratio 1/4; clip 0.8 … 1.3."""
    old, advantages = numbers(-1.5, -0.5, -2.0), numbers(1.0, -1.0, 2.0)
    logp = (old + numbers(4.0, 1.0, 0.25).log()).requires_grad_()
    assert logp.tolist() == pytest.approx([-1.5 + math.log(4), -0.5, -2 - math.log(4)])
    call = lambda name: LOSSES[name](logp, old, advantages, torch.ones(3), sequences=torch.tensor([5, 5, 1]), **CLIP)
    loss, clipped = call("gspo")  # the sequences' ratios: √(4 · 1) = 2 and 1/4; no dual clip
    assert loss.tolist() == pytest.approx([-1.3, 2.0, -0.5])
    assert clipped.tolist() == [1, 0, 0]
    assert torch.autograd.grad(loss.sum(), logp)[0].tolist() == pytest.approx([0, 2.0, -0.5])
    loss, clipped = call("cispo")  # weights 1.3, 1 and 0.8, and every token has a gradient
    weighed = [-1.3 * 1, 1 * 1, -0.8 * 2]
    assert loss.tolist() == pytest.approx([w * x for w, x in zip(weighed, logp.tolist(), strict=True)])
    assert clipped.tolist() == [1, 0, 1]
    assert torch.autograd.grad(loss.sum(), logp)[0].tolist() == pytest.approx(weighed)
    loss, clipped = call("reinforce")
    assert loss.tolist() == pytest.approx([-a * x for a, x in zip(advantages.tolist(), logp.tolist(), strict=True)])
    assert clipped.tolist() == [0, 0, 0]
    assert torch.autograd.grad(loss.sum(), logp)[0].tolist() == [-1, 1, -2]


def loops(name: str, logp: Any, old: Any, advantages: Any, mask: Any) -> tuple[list[list[float]], list[list[float]]]:
    """Losses and clips of padded rows."""
    losses, clips = np.zeros(mask.shape), np.zeros(mask.shape)
    for r in range(len(mask)):
        steps = [t for t in range(mask.shape[1]) if mask[r, t]]
        for t in steps:
            a, change = advantages[r, t], logp[r, t] - old[r, t]
            if name == "gspo":
                change = sum(logp[r, k] - old[r, k] for k in steps) / len(steps)
            ratio = math.exp(min(max(change, -20), 20))
            bounded = min(max(ratio, 0.8), 1.3)
            if name == "reinforce":
                losses[r, t] = -a * logp[r, t]
            elif name == "cispo":
                losses[r, t], clips[r, t] = -bounded * a * logp[r, t], ratio != bounded
            else:
                losses[r, t], clips[r, t] = max(-a * ratio, -a * bounded), -a * bounded > -a * ratio
                if name != "gspo" and a < 0:
                    losses[r, t] = min(losses[r, t], -a * 3)
    return losses.tolist(), clips.tolist()


@pytest.mark.parametrize("name", LOSSES)
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), spread=st.sampled_from([0.2, 2.0, 30.0]))
def test_it_equals_plain_loops_in_both_shapes(name: str, seed: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 5)), int(rng.integers(1, 7)))
    mask = rng.random(shape) < 0.7
    logp, advantages = -np.abs(rng.normal(size=shape)), rng.normal(size=shape)
    old = logp + spread * rng.normal(size=shape)
    for a in (logp, old, advantages):
        a[~mask] = np.nan  # what is not trained on must not be read
    as_tensors = [torch.from_numpy(a) for a in (logp, old, advantages, mask)]
    as_tensors[0].requires_grad_()
    found = LOSSES[name](*as_tensors, **CLIP)
    for ours, theirs in zip(found, loops(name, logp, old, advantages, mask), strict=True):
        torch.testing.assert_close(ours, torch.tensor(theirs, dtype=torch.float64), rtol=1e-9, atol=1e-12)
    (gradient,) = torch.autograd.grad(found[0].sum(), as_tensors[0])
    assert gradient.isfinite().all()
    assert (gradient[~as_tensors[3]] == 0).all()
    chosen = as_tensors[3]
    rows = torch.arange(shape[0])[:, None].expand(shape)[chosen]
    shuffled = torch.from_numpy(rng.permutation(int(chosen.sum())))
    entries = [t[chosen][shuffled] for t in as_tensors]
    for ours, theirs in zip(LOSSES[name](*entries, sequences=rows[shuffled], **CLIP), found, strict=True):
        torch.testing.assert_close(ours, theirs[chosen][shuffled])


def test_gspo_needs_sequences_when_flat() -> None:
    x = torch.zeros(3)
    with pytest.raises(ValueError, match="sequences"):
        LOSSES["gspo"](x, x, x, torch.ones(3))
    torch.testing.assert_close(LOSSES["ppo"](x, x, x + 1, torch.ones(3))[0], -torch.ones(3))


@pytest.mark.parametrize("name", ["ppo", "vanilla", "dr_grpo", "reinforce", "gspo"])
def test_gradients_are_those_of_the_value(name: str) -> None:
    """Away from the kinks. What gspo gives each token adds up to the derivative of its sequence's ratio."""
    generator = torch.Generator().manual_seed(1)
    draw = lambda: torch.randn(12, 6, dtype=torch.float64, generator=generator)
    old, mask = draw(), torch.rand(12, 6, generator=generator) < 0.7
    mask[:, 0] = True
    logp = (old + 0.5 * draw()).requires_grad_()
    advantages = draw()[:, :1].expand(12, 6)
    value = lambda x: aggregate(LOSSES[name](x, old, advantages, mask, **CLIP)[0], mask, "seq-mean-token-mean")
    assert torch.autograd.gradcheck(value, (logp,))
    clipped = LOSSES[name](logp, old, advantages, mask, **CLIP)[1]
    assert clipped.sum() > 0 or name == "reinforce"


def test_the_weight_of_cispo_has_no_gradient() -> None:
    """Where the weight is cut it is constant, so the derivative is that of the value; elsewhere it is the weight's."""
    old, advantages, mask = numbers(-1.0, -1.0, -1.0), numbers(1.0, -2.0, 0.5), torch.ones(3)
    far = (old + numbers(2.0, -1.0, 1.5)).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: LOSSES["cispo"](x, old, advantages, mask, **CLIP)[0], (far,))
    near = (old + numbers(0.1, -0.1, 0.2)).requires_grad_()
    (gradient,) = torch.autograd.grad(LOSSES["cispo"](near, old, advantages, mask, **CLIP)[0].sum(), near)
    torch.testing.assert_close(gradient, -advantages * numbers(0.1, -0.1, 0.2).exp())


@pytest.mark.parametrize("name", LOSSES)
def test_on_policy_the_gradient_is_the_policy_gradient(name: str) -> None:
    logp = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    advantages = torch.linspace(-2, 2, 50, dtype=torch.float64)
    loss, _ = LOSSES[name](logp, logp.detach(), advantages, torch.ones(50), sequences=torch.arange(50) // 7)
    loss.sum().backward()
    torch.testing.assert_close(logp.grad, -advantages)


@settings(max_examples=60)
@given(
    change=st.floats(-60, 60),
    advantage=st.floats(-3, 3),
    low=st.floats(0, 0.9),
    high=st.floats(0, 2),
    dual=st.floats(1, 9),
)
def test_ppo_is_finite_and_bounded(change: float, advantage: float, low: float, high: float, dual: float) -> None:
    old = numbers(0.0)
    clip = {"clip_ratio_low": low, "clip_ratio_high": high, "clip_ratio_c": dual}
    loss = LOSSES["ppo"](old + change, old, numbers(advantage), torch.ones(1), **clip)[0].item()
    assert math.isfinite(loss)
    assert loss >= -abs(advantage) * (1 + high) - 1e-9
    if advantage < 0:
        assert loss <= -advantage * dual + 1e-9
