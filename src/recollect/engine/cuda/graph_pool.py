"""CUDA graphs that share one pool of memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class GraphPool:
    """Captures graphs; the memory that they share is free once all of them are gone and `clear` was called."""

    def __init__(self) -> None:
        self._pool: Any = None
        self._side: Any = None  # the stream of first runs; every stream has buffers of its own

    def capture(self, work: Callable[[], object]) -> torch.cuda.CUDAGraph:
        """A graph of some work. It is run once outside, which compiles what has to be compiled."""
        stream = self._side = self._side or torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            work()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            work()
        self._pool = self._pool or graph.pool()
        return graph

    def clear(self) -> None:
        """Let go of the memory."""
        self._pool = None
