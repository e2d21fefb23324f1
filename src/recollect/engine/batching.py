"""The engine: any number of tasks await completions, every step advances all of them by one token (loop.py).

What prompts share is computed once, and rows join and leave at any step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.engine.cpu.attention_kernel import CompiledReads, CompiledRows, Queries, kernel
from recollect.engine.cpu.decode import Decoder
from recollect.engine.forward_step import Part, PrefixBatch, PrefixRead, StepPlan
from recollect.engine.loop import Loop
from recollect.engine.prefix import Prefix, PrefixCache
from recollect.engine.request import Request
from recollect.engine.rows import Cache, RowsAttention, SharedPart, Stack
from recollect.engine.schedule import LONG, SHORT, Scheduler
from recollect.engine.shape import attention_shape
from recollect.models.attention import focus, using
from recollect.models.native.modules import replace_modules

Reading = tuple[Part, list[np.ndarray], list[np.ndarray]]  # attention of some tokens, they, and their positions


class Engine(Loop):
    """Continuous batching over one transformers model with recollect's attention."""

    def __init__(
        self,
        model: Any,
        decode: Callable[[Sequence[int]], str],
        max_rows: int = 256,
        max_batched_tokens: int = 8192,
        prefix_cache_tokens: int = 262144,
        version: int = 0,
    ) -> None:
        shape = attention_shape(model)
        super().__init__(model, decode, max_rows, version)
        if self.device.type == "cpu":
            focus(model)
            replace_modules(model)
        self.cache = Cache(*shape.cached, model.dtype, self.device)
        self.kernel = kernel(model.dtype, self.device)
        self.decoder = Decoder.of(model)
        self.stack = Stack(self.cache)
        self.scheduler = Scheduler(
            self.cache,
            PrefixCache(prefix_cache_tokens),
            max_rows,
            max_batched_tokens,
            shape.queries,
            LONG if self.kernel is None else SHORT,
        )
        self._shared: SharedPart | None = None  # of the rows that decode
        self._queries: Queries | None = None  # the same for compiled attention
        self._rows_changed = False

    @property
    def waiting(self) -> list[Request]:
        """Requests that have no row yet."""
        return self.scheduler.waiting

    def free(self) -> None:
        """Give the caches' memory back until the next request."""
        super().free()
        self.cache.free()

    def _forget(self) -> None:
        super()._forget()
        self.scheduler.reset()
        self.stack = Stack(self.cache)
        if self.decoder is not None:
            self.decoder.stale = True

    def _keep(self, request: Request, row: int, sampled: list[int]) -> None:
        self.scheduler.keep(request, row, sampled)

    @property
    def stacked(self) -> bool:
        """True when prefixes are read from the stack."""
        return self.kernel is None

    @torch.inference_mode()
    def step(self) -> None:
        """Advance everything by one forward pass."""
        for row in [i for i, r in enumerate(self.state.requests) if r.abandoned][::-1]:
            self._remove(row)
        joining, reading = self.scheduler.admit(self.state.requests)
        if not (joining or reading or self.state.requests):
            return
        logits = self._forward(joining, reading, len(self.state.requests))
        if len(logits):
            self._sample(logits)
        self.stats.steps += 1
        self.stats.peak_rows = max(self.stats.peak_rows, len(self.state.requests))

    def _forward(self, joining: list[Request], reading: list[tuple[Prefix, int]], decoding: int) -> Tensor:
        """Logits of the next token of the rows that decode (all of them, or none), then of those that join now.

        Rows whose prompts are held have none yet.
        """
        state, there = self.state, len(self.state.requests)
        tokens: list[np.ndarray] = []
        positions: list[np.ndarray] = []
        parts: list[tuple[Part, int]] = []
        rows = there + len(joining)
        owned = np.concatenate([state.owned[:there] + 1, [len(r.suffix) for r in joining]])
        if rows:
            self.cache.ensure(rows, int(owned.max()), there)
        if rows and self.stacked:
            self.stack.hold(r.prefix for r in [*state.requests, *joining] if r.prefix is not None)
        if decoding:
            last = state.ids[np.arange(decoding), state.count[:decoding] - 1]
            tokens.append(last)
            positions.append(state.shared[:decoding] + state.owned[:decoding])
            parts.append((self._decoding(decoding), decoding))
            state.owned[:decoding] += 1
        for part, new_tokens, places in self._prompts(joining, reading):
            count = sum(map(len, new_tokens))
            parts.append((part, count))
            tokens += new_tokens
            positions += places
            self.stats.computed_prompt_tokens += count
        for request in joining:
            state.add(request)
            self._rows_changed = True
        sampled = [] if self.held else joining  # from the ends of their prompts
        ends = np.concatenate([np.arange(decoding), decoding + np.cumsum([len(r.suffix) for r in sampled]) - 1])
        logits = self._model(np.concatenate(tokens), np.concatenate(positions), ends, parts)
        for prefix, count in reading:
            prefix.done += count
        return logits

    def _decoding(self, rows: int) -> Part:
        """The attention of the rows that have joined before."""
        requests, owned, changed = self.state.requests, self.state.owned[:rows].copy(), self._rows_changed
        self._rows_changed = False
        each = np.arange(rows)
        if self.kernel is not None:
            if changed or self._queries is None:
                self._queries = Queries.of(requests, each, each)
            return CompiledRows(self.kernel, self.cache, self._queries, self._queries, 0, owned, each)
        if changed or (self._shared is not None and self._shared.stack_id != self.stack.made):
            self._shared = SharedPart.of(requests, self.stack)
        return self._attention(self._shared, 0, owned, np.ones(rows, int))

    def _prompts(self, joining: list[Request], reading: list[tuple[Prefix, int]]) -> list[Reading]:
        """What is read of prompts: first the ends of those that join, then beginnings of others."""
        found: list[Reading] = []
        if joining:
            found.append((self._joining(joining), [r.suffix for r in joining], [r.positions for r in joining]))
        for batch in self._reading(reading):
            found.append((batch, batch.tokens(), batch.positions()))
        return found

    def _joining(self, joining: list[Request]) -> Part:
        """The attention of rows that join: all their tokens are new."""
        lengths = np.array([len(r.suffix) for r in joining])
        first = len(self.state.requests)
        if self.kernel is not None:
            row, ends = np.repeat(np.arange(len(joining)), lengths), np.cumsum(lengths)
            place = np.arange(len(row))
            queries = Queries.of(joining, place, row)
            last = Queries.of(joining, ends - 1, np.arange(len(joining)))
            owned = place - np.repeat(ends - lengths, lengths)
            return CompiledRows(self.kernel, self.cache, queries, last, first, owned, row)
        return self._attention(SharedPart.of(joining, self.stack), first, np.zeros_like(lengths), lengths)

    def _reading(self, reading: list[tuple[Prefix, int]]) -> Sequence[CompiledReads | PrefixBatch | PrefixRead]:
        """The attention of prefixes that are being read."""
        if self.kernel is None:
            return [*PrefixBatch.of(reading), *PrefixRead.of(reading)]
        return [CompiledReads(self.kernel, self.cache, reading)] if reading else []

    def _attention(self, shared: SharedPart | None, first: int, owned: np.ndarray, fresh: np.ndarray) -> RowsAttention:
        return RowsAttention(self.cache, shared, first, self._tensor(owned), int(fresh.max()), self._tensor(fresh))

    def _model(
        self, tokens: np.ndarray, positions: np.ndarray, keep: np.ndarray, parts: list[tuple[Part, int]]
    ) -> Tensor:
        part = parts[0][0]
        if self.decoder is not None and len(parts) == 1 and isinstance(part, CompiledRows) and part.decoding:
            return self.decoder(self._tensor(tokens), self._tensor(positions), part)
        kept = self._tensor(keep.astype(np.int64))
        with using(StepPlan(parts, self.cache.layers, kept)):
            out = self.model(
                input_ids=self._tensor(tokens).unsqueeze(0),
                position_ids=self._tensor(positions).unsqueeze(0),
                use_cache=False,
                logits_to_keep=kept,
            )
        return out.logits[0]

    def _remove(self, row: int) -> None:
        last = len(self.state.requests) - 1
        if row != last:
            self.cache.move(last, row, int(self.state.owned[last]))
        request = self.state.remove(row)
        self.scheduler.left(request)
        request.release()
        self._rows_changed = True
