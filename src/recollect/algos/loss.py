"""The policy loss per trained token, and how tokens are weighed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Clip(NamedTuple):
    """PPO's clip range below and above 1, and the dual clip's bound."""

    low: float = 0.2
    high: float = 0.2
    dual: float = 3.0


def ppo(logp: Tensor, old: Tensor, advantage: Tensor, clip: Clip) -> tuple[Tensor, Tensor]:
    """Clipped surrogate loss with dual clip, and a 0/1 tensor of where the clip binds."""
    ratio = torch.exp((logp - old).clamp(-20, 20))
    plain = -advantage * ratio
    clipped = -advantage * ratio.clamp(1 - clip.low, 1 + clip.high)
    loss = torch.maximum(plain, clipped)
    bounded = torch.minimum(loss, -advantage * clip.dual)
    return torch.where(advantage < 0, bounded, loss), (clipped > plain).float()


def token_weights(mode: str, trajectories_E: np.ndarray) -> np.ndarray:
    """[E] the share of each trained token in the loss; shares add up to 1 over the whole mini-batch.

    They are fixed before the batch is cut into micro-batches, so the loss cannot depend on the cut.
    """
    if mode == "token-mean":
        return np.full(len(trajectories_E), 1.0 / max(1, len(trajectories_E)))
    if mode == "trajectory-mean":
        found, index, counts = np.unique(trajectories_E, return_inverse=True, return_counts=True)
        return 1.0 / (len(found) * counts[index])
    raise ValueError(f"loss_agg_mode={mode}: known are {', '.join(AGGREGATIONS)}")


AGGREGATIONS = ("token-mean", "trajectory-mean")
