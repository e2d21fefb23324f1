"""The policy loss of each trained token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from recollect.algos.per_token import ids_beside, rows_of, trained
from recollect.registries import LOSSES

if TYPE_CHECKING:
    from torch import Tensor

LIMIT = 20.0  # of the logarithm of a ratio


class LossFunction(Protocol):
    """All losses are called alike: (loss, 1 where a clip binds) of each token, 0 where the mask is 0."""

    def __call__(
        self,
        logp: Tensor,
        old: Tensor,
        advantages: Tensor,
        mask: Tensor,
        *,
        clip_ratio_low: float = 0.2,
        clip_ratio_high: float = 0.2,
        clip_ratio_c: float = 3.0,
        sequences: Any = None,
    ) -> tuple[Tensor, Tensor]: ...


def ppo(
    logp: Tensor,
    old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_ratio_low: float = 0.2,
    clip_ratio_high: float = 0.2,
    clip_ratio_c: float = 3.0,
    sequences: Any = None,
) -> tuple[Tensor, Tensor]:
    """Clipped surrogate with a dual clip: where the advantage is negative the loss is at most −A · clip_ratio_c."""
    chosen = trained(mask, logp)
    ratio = (logp - old).where(chosen, 0.0).clamp(-LIMIT, LIMIT).exp()
    gain = advantages.where(chosen, 0.0)
    loss, clipped = _clipped(ratio, gain, clip_ratio_low, clip_ratio_high)
    return loss.minimum(-gain * clip_ratio_c).where(gain < 0, loss), clipped


def gspo(
    logp: Tensor,
    old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_ratio_low: float = 0.2,
    clip_ratio_high: float = 0.2,
    clip_ratio_c: float = 3.0,
    sequences: Any = None,
) -> tuple[Tensor, Tensor]:
    """Clipped surrogate of the sequence's ratio, the geometric mean of its tokens'; no dual clip.

    The ratio's value is the sequence's, its gradient at each token the token's own.
    """
    chosen = trained(mask, logp)
    ids = rows_of(logp, "sequences") if sequences is None else ids_beside(sequences, logp)
    mean = _sequence_means((logp - old).where(chosen, 0.0).detach(), chosen, ids)
    own = logp.where(chosen, 0.0)
    ratio = (mean + own - own.detach()).clamp(-LIMIT, LIMIT).exp()
    return _clipped(ratio, advantages.where(chosen, 0.0), clip_ratio_low, clip_ratio_high)


def cispo(
    logp: Tensor,
    old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_ratio_low: float = 0.2,
    clip_ratio_high: float = 0.2,
    clip_ratio_c: float = 3.0,
    sequences: Any = None,
) -> tuple[Tensor, Tensor]:
    """Policy gradient weighed by the clipped ratio: every token keeps a gradient."""
    chosen = trained(mask, logp)
    ratio = (logp - old).where(chosen, 0.0).detach().clamp(-LIMIT, LIMIT).exp()
    weight = ratio.clamp(1 - clip_ratio_low, 1 + clip_ratio_high)
    loss = -weight * advantages.where(chosen, 0.0) * logp.where(chosen, 0.0)
    return loss, (ratio != weight).to(loss.dtype)


def reinforce(
    logp: Tensor,
    old: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_ratio_low: float = 0.2,
    clip_ratio_high: float = 0.2,
    clip_ratio_c: float = 3.0,
    sequences: Any = None,
) -> tuple[Tensor, Tensor]:
    """Plain policy gradient: −A · logp. The old policy plays no part."""
    chosen = trained(mask, logp)
    loss = -advantages.where(chosen, 0.0) * logp.where(chosen, 0.0)
    return loss, loss.new_zeros(loss.shape)


def _clipped(ratio: Tensor, gain: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    plain = -gain * ratio
    clipped = -gain * ratio.clamp(1 - low, 1 + high)
    return plain.maximum(clipped), (clipped > plain).to(plain.dtype)


def _sequence_means(x: Tensor, chosen: Tensor, ids: Tensor) -> Tensor:
    """The mean over its sequence's trained tokens, beside each token; ``x`` is 0 elsewhere."""
    index = ids.unique(return_inverse=True)[1].flatten()
    sums, counts = (
        t.new_zeros(index.numel()).index_add(0, index, t) for t in (x.double().flatten(), chosen.double().flatten())
    )
    return (sums / counts.clamp(min=1))[index].view(x.shape).to(x.dtype)


LOSSES.update({"ppo": ppo, "gspo": gspo, "cispo": cispo})
LOSSES["dr_grpo"] = ppo  # what is its own is around it: loss_agg_mode seq-mean-token-sum-norm, no division by deviation
LOSSES.update({"reinforce": reinforce, "vanilla": ppo})
