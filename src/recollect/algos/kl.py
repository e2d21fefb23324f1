"""Estimators of the divergence from a reference policy, per token."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def kl(logp: Tensor, ref: Tensor) -> Tensor:
    """k1: log-ratio; unbiased, of either sign."""
    return logp - ref


def abs_kl(logp: Tensor, ref: Tensor) -> Tensor:
    """The log-ratio's size."""
    return (logp - ref).abs()


def mse(logp: Tensor, ref: Tensor) -> Tensor:
    """k2: half the squared log-ratio."""
    return 0.5 * (logp - ref).square()


def low_var_kl(logp: Tensor, ref: Tensor) -> Tensor:
    """k3: e^d − d − 1 with d = ref − logp; unbiased and never negative."""
    d = (ref - logp).clamp(-20, 20)
    return (torch.expm1(d) - d).clamp(-10, 10)


def full(logits: Tensor, ref: Tensor) -> Tensor:
    """Exact, from the whole distributions: [..., vocabulary] of logits or log-probabilities to [...]."""
    wide = torch.promote_types(logits.dtype, torch.float32)
    p, q = logits.log_softmax(-1, dtype=wide), ref.log_softmax(-1, dtype=wide)
    weight = p.exp()
    return (weight * torch.where(weight == 0, 0.0, p - q)).sum(-1)


KL: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "kl": kl,
    "abs": abs_kl,
    "mse": mse,
    "low_var_kl": low_var_kl,
    "full": full,
}
