"""Estimators of the divergence from a reference policy, per token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recollect.registries import KL

if TYPE_CHECKING:
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
    return (d.expm1() - d).clamp(-10, 10)


def full(logits: Tensor, ref: Tensor) -> Tensor:
    """Exact, from the whole distributions: [..., vocabulary] of logits or log-probabilities to [...]."""
    import torch

    wide = torch.promote_types(logits.dtype, torch.float32)
    p, q = logits.log_softmax(-1, dtype=wide), ref.log_softmax(-1, dtype=wide)
    weight = p.exp()
    return (weight * (p - q).where(weight != 0, 0.0)).sum(-1)


KL.update({"low_var_kl": low_var_kl, "kl": kl, "mse": mse, "abs": abs_kl, "full": full})
