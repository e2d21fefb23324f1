"""The processes that train one model together, as each of them sees them; in the simplest case it is alone."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from recollect.packing.division import BatchPart
from recollect.packing.micro_batch import Packed


class World:
    """A process that trains by itself."""

    rank, size = 0, 1
    part: BatchPart | None = None  # which part of a batch it computes; None: all of it
    device: torch.device | None = None  # where it computes; None: where the model is

    def sum(self, numbers: Tensor) -> Tensor:
        """Numbers added up over all processes, in each of them."""
        return numbers

    def total(self, number: float) -> float:
        """One number added up over all processes."""
        return number

    def even(self, packs: Sequence[Packed]) -> Sequence[Packed]:
        """As many micro-batches in every process; those that are filled up with train nothing."""
        return packs

    def shard(self, model: nn.Module) -> nn.Module | None:
        """Spread a model's weights; returns what every pass has to go through, if there is such a thing."""
        return None

    def settle(self, root: nn.Module | None) -> None:
        """Have every process hold its own part alone, also where a pass has left weights put together."""


ALONE = World()
