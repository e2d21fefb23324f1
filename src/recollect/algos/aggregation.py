"""From losses per token to one number, and the share of each token in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from recollect.algos.per_token import ids_beside, trained
from recollect.registries import AGGREGATIONS

if TYPE_CHECKING:
    from torch import Tensor


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
    import torch

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
    if mode not in AGGREGATIONS:
        raise ValueError(f"loss_agg_mode={mode}: known are {', '.join(AGGREGATIONS)}")
    if sequences_E is None and mode in ("seq-mean-token-sum", "seq-mean-token-mean"):
        raise ValueError(f"{mode} needs sequences: the sequence of each token")
    weights: np.ndarray = AGGREGATIONS[mode](trajectories_E, sequences_E, scale)
    return weights


def _token_mean(trajectories_E: np.ndarray, sequences_E: np.ndarray | None, scale: float | None) -> np.ndarray:
    count = len(trajectories_E)
    return np.full(count, 1.0 / max(1, count))


def _sequence_sum(trajectories_E: np.ndarray, sequences_E: np.ndarray, scale: float | None) -> np.ndarray:
    return np.full(len(trajectories_E), 1.0 / max(1, len(np.unique(sequences_E))))


def _sequence_mean(trajectories_E: np.ndarray, sequences_E: np.ndarray, scale: float | None) -> np.ndarray:
    return _equal_shares(sequences_E)


def _sequence_sum_norm(trajectories_E: np.ndarray, sequences_E: np.ndarray | None, scale: float | None) -> np.ndarray:
    if scale is None:
        raise ValueError("seq-mean-token-sum-norm needs a scale: the number that the sum is divided by")
    return np.full(len(trajectories_E), 1.0 / scale)


def _trajectory_mean(trajectories_E: np.ndarray, sequences_E: np.ndarray | None, scale: float | None) -> np.ndarray:
    return _equal_shares(trajectories_E)


def _equal_shares(ids_E: np.ndarray) -> np.ndarray:
    """Shares that add up to the same for each id, and to 1 over all."""
    found, index, counts = np.unique(ids_E, return_inverse=True, return_counts=True)
    return 1.0 / (len(found) * counts[index])


AGGREGATIONS.update(
    {
        "token-mean": _token_mean,
        "seq-mean-token-sum": _sequence_sum,
        "seq-mean-token-mean": _sequence_mean,
        "seq-mean-token-sum-norm": _sequence_sum_norm,
        "trajectory-mean": _trajectory_mean,
    }
)
