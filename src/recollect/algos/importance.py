"""The sampler is not quite the learner: weights that correct for it, and how far apart they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recollect.algos.kl import low_var_kl
from recollect.algos.loss import LIMIT
from recollect.algos.per_token import ids_beside, rows_of, trained

if TYPE_CHECKING:
    from torch import Tensor

LEVELS = ("token", "sequence")


def importance_weights(
    learner_logp: Tensor,
    sampler_logp: Tensor,
    mask: Tensor,
    level: str = "token",
    cap: float = 2.0,
    sequences: Any = None,
) -> tuple[Tensor, dict[str, float]]:
    """(min(probability under the learner / under the sampler, cap) of each token, drift statistics); no gradient.

    ``level="sequence"`` weighs all tokens of a sequence by the ratio of their product. Weights are 0 where the mask is.
    """
    if level not in LEVELS:
        raise ValueError(f"rollout_is={level}: known are {', '.join(LEVELS)}")
    chosen = trained(mask, learner_logp)
    change = (learner_logp.detach() - sampler_logp.detach()).where(chosen, 0.0)
    total = change
    if level == "sequence":
        ids = rows_of(change, "sequences") if sequences is None else ids_beside(sequences, change)
        index = ids.unique(return_inverse=True)[1].flatten()
        wide = change.double().flatten()
        sums = wide.new_zeros(index.numel()).index_add(0, index, wide)
        total = sums[index].view(change.shape).to(change.dtype)
    ratio = total.clamp(-LIMIT, LIMIT).exp()
    weights = ratio.clamp(max=cap).where(chosen, 0.0)
    return weights, _drift(change[chosen], ratio[chosen], cap)


def _drift(change: Tensor, ratio: Tensor, cap: float) -> dict[str, float]:
    if not len(change):
        return {"mean_abs": 0.0, "max_ratio": 1.0, "capped": 0.0, "kl": 0.0}
    zero = change.new_zeros(change.shape)
    return {
        "mean_abs": float(change.abs().mean()),
        "max_ratio": float(ratio.max()),
        "capped": float((ratio > cap).double().mean()),
        "kl": float(low_var_kl(zero, change).mean()),  # KL(sampler ‖ learner): the tokens are the sampler's
    }
