"""Batches of sequences that exist before training starts."""

from __future__ import annotations

import random
from collections.abc import Sequence

from recollect.types import Sample


class StoredBatches:
    """Sequences in an order that the seed shuffles anew each epoch; all of one group, so that they share prefixes."""

    def __init__(self, samples: Sequence[Sample], batch_size: int, seed: int) -> None:
        assert samples, "there is something to train on"
        self.samples, self.seed = list(samples), seed
        self.size = min(batch_size, len(self.samples))
        for sample in self.samples:
            sample.group = 0

    @property
    def per_epoch(self) -> int:
        """Updates of one pass over everything."""
        return -(-len(self.samples) // self.size)

    def __getitem__(self, index: int) -> list[Sample]:
        epoch, place = divmod(index, self.per_epoch)
        order = list(range(len(self.samples)))
        random.Random(f"sft:{self.seed}:{epoch}").shuffle(order)
        return [self.samples[i] for i in order[place * self.size : (place + 1) * self.size]]
