"""The engine: any number of tasks await completions, and every step advances all of them by one token.

The scheduler says which prompts share what and which of them join a step. A backend (`backend.py`) computes the step.
What prompts share is computed once, and rows join and leave at any step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from recollect.engine.backend import Backend
from recollect.engine.choose import choose_backend
from recollect.engine.loop import EngineLoop, EngineStats
from recollect.engine.prefix import PrefixCache, PrefixChunk
from recollect.engine.request import EngineRequest
from recollect.engine.schedule import Scheduler


class Engine(EngineLoop):
    """Continuous batching over one transformers model with recollect's attention."""

    def __init__(
        self,
        model: Any,
        decode: Callable[[Sequence[int]], str],
        max_rows: int = 256,
        max_batched_tokens: int = 8192,
        prefix_cache_tokens: int = 262144,
        version: int = 0,
        backend: Backend | None = None,
    ) -> None:
        self.backend = choose_backend(model, max_rows) if backend is None else backend
        super().__init__(model, decode, max_rows, version)
        self.max_rows = max_rows
        self.prompt_tail, self.handover = self.backend.prompt_tail, self.backend.handover
        prefixes = PrefixCache(prefix_cache_tokens)
        self.scheduler = Scheduler(self.backend.cache, self.backend.rules, prefixes, max_rows, max_batched_tokens)

    @property
    def waiting(self) -> list[EngineRequest]:
        """Requests that have no row yet."""
        return self.scheduler.waiting

    @torch.inference_mode()
    def step(self) -> None:
        """Advance everything by one token."""
        self._remove_abandoned()
        joining, chunks = self._admit()
        if not (joining or chunks or self.state.requests):
            return
        own = sum(len(r.prompt) - r.shared for r in joining)
        self.stats.computed_prompt_tokens += own + sum(chunk.size for chunk in chunks)
        self.backend.step(self.state, joining, chunks, self._deliver)
        self.stats.steps += 1
        self.stats.peak_rows = max(self.stats.peak_rows, len(self.state.requests))

    def _remove_abandoned(self) -> None:
        """Take out the rows that nobody waits for."""
        if not any(r.abandoned for r in self.state.requests):
            return
        self.backend.flush(self.state, self._deliver)
        for row in [i for i, r in enumerate(self.state.requests) if r.abandoned][::-1]:
            self._remove(row)

    def _admit(self) -> tuple[list[EngineRequest], list[PrefixChunk]]:
        """What comes into this step: requests that join, and chunks of prefixes."""
        if not (self.scheduler.waiting or self.scheduler.prefilling):
            return [], []
        asked = [*self.state.requests, *(r for r in self.scheduler.waiting if not r.abandoned)]
        self.scheduler.max_rows = min(self.max_rows, self.backend.rows_that_fit(asked))
        return self.scheduler.admit(self.state)

    def _remove(self, row: int) -> None:
        self.backend.remove(self.state, row)
        request = self.state.remove(row)
        self.scheduler.left(request)
        request.release()

    def _keep(self, request: EngineRequest, row: int, sampled: list[int]) -> None:
        self.scheduler.keep(request, int(self.state.slot[row]), sampled)

    def statistics(self) -> EngineStats:
        """What was done so far, and what is under way."""
        return replace(super().statistics(), gpu_seconds=self.backend.gpu_seconds())

    def _forget(self) -> None:
        super()._forget()
        self.scheduler.reset()
        self.backend.reset()

    def free(self) -> None:
        """Give the caches' memory back until the next request."""
        super().free()
        self.backend.free()
