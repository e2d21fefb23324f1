"""What a model says about conversations that it has not seen: loss and token accuracy of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from recollect.packing.batch import Batch
from recollect.packing.micro_batch import Packed
from recollect.training.learner.learner import Learner
from recollect.training.sft.imitation_loss import token_losses
from recollect.types import Sample


def token_scores(
    learner: Learner, samples: Sequence[Sample], budget: int, share: bool = True
) -> tuple[Batch, np.ndarray, np.ndarray]:
    """(the batch, loss of every trained token, whether it would have been the first choice)."""
    batch = Batch.of(samples)
    hits = torch.zeros(batch.entries, device=learner.device)

    def found(model: Any, part: Packed) -> torch.Tensor:
        losses, right = token_losses(model, part)
        hits[part.entry] = right[part.entry_target].float()
        return losses

    packs = batch.packs(range(len(batch.sequences)), budget, share=share)
    return batch, learner.measure(packs, batch.entries, found).cpu().numpy(), hits.cpu().numpy()


def conversation_scores(learner: Learner, samples: Sequence[Sample], budget: int) -> np.ndarray:
    """[sequences, 3] summed loss, tokens that were the first choice, and trained tokens of every sequence."""
    batch, losses, hits = token_scores(learner, samples, budget)
    ends = [*batch.offsets[1:].tolist(), batch.entries]
    spans = zip(batch.offsets.tolist(), ends, strict=True)
    return np.array([(losses[a:b].sum(), hits[a:b].sum(), b - a) for a, b in spans], np.float64)


def per_token(sums: np.ndarray, tokens: np.ndarray) -> tuple[float, float, float]:
    """A mean over all tokens, as training reports it, and its 95 % interval, by how much sequences differ from it."""
    mean, count = sums.sum() / tokens.sum(), len(sums)
    apart = ((sums - mean * tokens) ** 2).sum() * count / max(1, count - 1)
    half = 1.96 * apart**0.5 / tokens.sum() if count > 1 else 0.0
    return float(mean), float(mean - half), float(mean + half)
