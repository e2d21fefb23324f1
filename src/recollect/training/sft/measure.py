"""What a model says about conversations that it has not seen: loss and token accuracy of each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recollect.packing.batch import Batch
from recollect.training.learner.learner import Learner
from recollect.types import Sample


def conversation_scores(learner: Learner, samples: Sequence[Sample]) -> np.ndarray:
    """[sequences, 3] summed loss, tokens that were the first choice, and trained tokens of every sequence."""
    batch = Batch.of(samples)
    losses, hits = learner.imitation_scores(batch)
    ends = [*batch.offsets[1:].tolist(), batch.entries]
    spans = zip(batch.offsets.tolist(), ends, strict=True)
    return np.array([(losses[a:b].sum(), hits[a:b].sum(), b - a) for a, b in spans], np.float64)


def per_token(sums: np.ndarray, tokens: np.ndarray) -> tuple[float, float, float]:
    """A mean over all tokens, as training reports it, and its 95 % interval, by how much sequences differ from it."""
    mean, count = sums.sum() / tokens.sum(), len(sums)
    apart = ((sums - mean * tokens) ** 2).sum() * count / max(1, count - 1)
    half = 1.96 * apart**0.5 / tokens.sum() if count > 1 else 0.0
    return float(mean), float(mean - half), float(mean + half)
