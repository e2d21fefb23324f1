"""Host memory that a GPU reads while the host goes on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

BUFFERS = 4  # copies that may be under way; the host is at most two steps ahead of the device


class PinnedRing:
    """Some pinned buffers of int64 that take turns, so that one is written while others are being copied."""

    def __init__(self, size: int) -> None:
        self._buffers = [torch.zeros(size, dtype=torch.int64, pin_memory=True) for _ in range(BUFFERS)]
        self._copied: list[torch.cuda.Event | None] = [None] * BUFFERS
        self._turn = 0

    def __len__(self) -> int:
        return len(self._buffers[0])

    @contextmanager
    def next(self) -> Iterator[np.ndarray]:
        """The buffer to write now; `copy_to` sends it."""
        self._turn = (self._turn + 1) % BUFFERS
        event = self._copied[self._turn]
        if event is not None:
            event.synchronize()
        yield self._buffers[self._turn].numpy()

    def copy_to(self, target: Tensor) -> None:
        """Copy what was written to the device, after all that it was told before."""
        target.copy_(self._buffers[self._turn], non_blocking=True)
        event = self._copied[self._turn] = torch.cuda.Event()
        event.record()
