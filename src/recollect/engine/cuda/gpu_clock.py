"""How long a GPU works on what the engine launches: spans between events of its stream, read when they are over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class GpuClock:
    """Adds up spans of work. A span that is under way is not counted yet."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._open: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def working(self) -> Iterator[None]:
        """What is launched inside is a span: it begins when the stream gets to it."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        yield
        end.record()
        self._open.append((start, end))

    def read(self) -> float:
        """Seconds of the spans that are over."""
        while self._open and self._open[0][1].query():
            start, end = self._open.pop(0)
            self.seconds += start.elapsed_time(end) / 1e3
        return self.seconds
