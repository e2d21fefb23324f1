"""From losses per token to one number, and the share of each token in it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.algos.per_token import ids_beside, trained

AGGREGATIONS = (
    "token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
    "trajectory-mean",
)


def aggregate(
    loss: Tensor,
    mask: Tensor,
    mode: str,
    *,
    trajectories: Any = None,
    sequences: Any = None,
    scale: float | None = None,
) -> Tensor:
    """One number from the loss of each token. Padded rows are sequences, and their width the scale, unless given.

    Sequences and trajectories without a trained token do not count. Without any trained token the result is 0.
    """
    chosen = trained(mask, loss)
    if trajectories is None:
        if mode == "trajectory-mean":
            raise ValueError("trajectory-mean needs trajectories: the trajectory of each row or token")
        trajectories = torch.zeros(loss.shape, dtype=torch.int64)  # only their number is read
    if loss.dim() == 2:
        sequences = range(len(loss)) if sequences is None else sequences
        scale = loss.shape[1] if scale is None else scale
    entries = lambda ids: ids_beside(ids, loss)[chosen].cpu().numpy()
    sequences_E = None if sequences is None else entries(sequences)
    weights = token_weights(mode, entries(trajectories), sequences_E, scale)
    return (loss[chosen].double() * torch.from_numpy(weights).to(loss.device)).sum().to(loss.dtype)


def token_weights(
    mode: str, trajectories_E: np.ndarray, sequences_E: np.ndarray | None = None, scale: float | None = None
) -> np.ndarray:
    """[E] the share of each trained token in the loss: the loss is Σ share · loss over the whole mini-batch.

    They are fixed before the batch is cut into micro-batches, so the loss cannot depend on the cut.
    """
    count = len(trajectories_E)
    if mode == "token-mean":
        return np.full(count, 1.0 / max(1, count))
    if mode == "trajectory-mean":
        return _equal_shares(trajectories_E)
    if mode == "seq-mean-token-sum-norm":
        if scale is None:
            raise ValueError("seq-mean-token-sum-norm needs a scale: the number that the sum is divided by")
        return np.full(count, 1.0 / scale)
    if mode not in AGGREGATIONS:
        raise ValueError(f"loss_agg_mode={mode}: known are {', '.join(AGGREGATIONS)}")
    if sequences_E is None:
        raise ValueError(f"{mode} needs sequences: the sequence of each token")
    if mode == "seq-mean-token-mean":
        return _equal_shares(sequences_E)
    return np.full(count, 1.0 / max(1, len(np.unique(sequences_E))))


def _equal_shares(ids_E: np.ndarray) -> np.ndarray:
    """Shares that add up to the same for each id, and to 1 over all."""
    found, index, counts = np.unique(ids_E, return_inverse=True, return_counts=True)
    return 1.0 / (len(found) * counts[index])
