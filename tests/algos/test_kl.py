"""Estimators of the divergence, and the divergence itself."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributions import Categorical, kl_divergence

from recollect.algos.kl import KL

ESTIMATORS = [name for name in KL if name != "full"]


def test_estimators_by_hand() -> None:
    logp, ref = torch.tensor([-1.0, -2.0, -0.5]), torch.tensor([-1.5, -1.0, -0.5])
    d = [-0.5, 1.0, 0.0]
    expected = {
        "kl": [0.5, -1.0, 0.0],
        "abs": [0.5, 1.0, 0.0],
        "mse": [0.125, 0.5, 0.0],
        "low_var_kl": [math.exp(x) - x - 1 for x in d],
    }
    assert sorted(expected) == sorted(ESTIMATORS)
    for name, values in expected.items():
        assert KL[name](logp, ref).tolist() == pytest.approx(values, abs=1e-6)


@settings(max_examples=60)
@given(a=st.floats(-200, 0), b=st.floats(-200, 0))
def test_estimators_are_finite_and_all_but_k1_are_never_negative(a: float, b: float) -> None:
    logp, ref = torch.tensor([a]), torch.tensor([b])
    for name in ESTIMATORS:
        value = KL[name](logp, ref).item()
        assert math.isfinite(value)
        assert name == "kl" or value >= 0
        assert KL[name](logp, logp).item() == 0


def test_k1_and_k3_are_unbiased_and_k3_varies_less() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(12, generator=generator, dtype=torch.float64).mul(0.4).log_softmax(0)
    q = (p + 0.3 * torch.randn(12, generator=generator, dtype=torch.float64)).log_softmax(0)
    true = KL["full"](p, q).item()
    for name in ("kl", "low_var_kl"):  # exactly, as a sum over all outcomes
        assert (p.exp() * KL[name](p, q)).sum().item() == pytest.approx(true, rel=1e-9)
    drawn = torch.multinomial(p.exp(), 200_000, replacement=True, generator=generator)
    values = {name: KL[name](p[drawn], q[drawn]) for name in ("kl", "low_var_kl")}
    for sampled in values.values():
        error = sampled.std().item() / math.sqrt(len(sampled))
        assert sampled.mean().item() == pytest.approx(true, abs=4 * error)
    assert values["low_var_kl"].var() < 0.5 * values["kl"].var()
    assert (p.exp() * KL["mse"](p, q)).sum().item() != pytest.approx(true, rel=1e-3)  # k2 is known to be biased


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.floats(0.01, 30))
def test_full_is_the_divergence(seed: int, size: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    a, b = (size * torch.randn(2, 3, 17, dtype=torch.float64, generator=generator) for _ in range(2))
    expected = kl_divergence(Categorical(logits=a), Categorical(logits=b))
    torch.testing.assert_close(KL["full"](a, b), expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(KL["full"](a.log_softmax(-1), b.log_softmax(-1)), expected, rtol=1e-9, atol=1e-12)
    assert (KL["full"](a, a) == 0).all()


def test_full_has_the_divergence_s_gradient_also_where_tokens_are_impossible() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(4, 9, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(2))
    assert torch.autograd.gradcheck(KL["full"], (a, b))
    never = torch.zeros(9, dtype=torch.bool)
    never[2:4] = True
    masked = [x.masked_fill(never, -math.inf) for x in (a, b)]
    expected = KL["full"](a[:, ~never], b[:, ~never])
    torch.testing.assert_close(KL["full"](*masked), expected)
    (gradient,) = torch.autograd.grad(KL["full"](*masked).sum(), a)
    (same,) = torch.autograd.grad(expected.sum(), a)
    torch.testing.assert_close(gradient, same)


def test_full_is_computed_in_single_precision_at_least() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(5, 300, generator=generator).bfloat16() for _ in range(2))
    made = KL["full"](a, b)
    assert made.dtype == torch.float32
    torch.testing.assert_close(made, KL["full"](a.double(), b.double()).float(), rtol=1e-5, atol=1e-6)
