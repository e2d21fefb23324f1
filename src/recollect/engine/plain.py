"""The plain backend: one forward pass of the model for each step, with the operations of torch alone.

A step is one flat batch. It holds one token for every row that decodes, the prompts of the rows that join, and chunks
of prefixes that are prefilled. Linear layers see the flat batch; attention (`plain_attention.py`, `plain_prefill.py`)
takes each part by itself. The logits of the last token of every row are sampled at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.engine.backend import AdmissionRules, Deliver
from recollect.engine.flat_batch import FlatBatch, FlatPart, PartAttention, StepPlan
from recollect.engine.kv_cache import KVCache
from recollect.engine.plain_attention import PrefixStack, RowsAttention, SharedPart
from recollect.engine.plain_prefill import BatchPrefill, ChunkPrefill
from recollect.engine.prefix import PrefixChunk
from recollect.engine.request import EngineRequest
from recollect.engine.row_state import RowState
from recollect.engine.sampling import TokenSampler, sample, sample_rows
from recollect.engine.shape import AttentionShape, attention_shape
from recollect.models.attention import using

LONG = 256  # tokens of its own from which a prompt is prefilled as a prefix, with blockwise attention
SCORES = 1 << 27  # attention scores that joining rows may need at once


class PlainBackend:
    """Computes the engine's steps on any device (see `Backend`)."""

    prompt_tail = 0
    handover = 1 << 30
    sampler: TokenSampler = staticmethod(sample)

    def __init__(self, model: Any, max_rows: int = 256) -> None:
        shape = attention_shape(model)
        self.model, self.max_rows = model.eval(), max_rows
        self.device = next(model.parameters()).device
        self.cache = self._new_cache(shape)
        self.rules = AdmissionRules(LONG, SCORES // shape.queries)
        self.stack = PrefixStack(self.cache)
        self._shared: SharedPart | None = None  # of the rows that decode
        self._rows_changed = False

    def _new_cache(self, shape: AttentionShape) -> KVCache:
        return KVCache(*shape.cached, self.model.dtype, self.device, token_major=self.device.type != "cpu")

    # ---- the interface ----

    def rows_that_fit(self, requests: Sequence[EngineRequest]) -> int:
        """As many as the engine may have."""
        return self.max_rows

    def step(self, state: RowState, joining: list[EngineRequest], chunks: list[PrefixChunk], deliver: Deliver) -> None:
        """One forward pass, then one sampled token for every row."""
        logits = self.forward(state, joining, chunks)
        if len(logits):
            deliver(sample_rows(logits, state, self.sampler))

    def flush(self, state: RowState, deliver: Deliver) -> None:
        """Nothing to do: every step delivers its own tokens."""

    def remove(self, state: RowState, row: int) -> None:
        """Free a row's slot: the last row, which takes its place, moves into it."""
        last = len(state.requests) - 1
        if row != last:
            self.cache.move(last, row, int(state.owned[last]))
            state.slot[last] = row
        self._rows_changed = True

    def gpu_seconds(self) -> float | None:
        """Not known here."""
        return None

    def reset(self) -> None:
        """Forget the rows."""
        self.stack = PrefixStack(self.cache)

    def free(self) -> None:
        """Give the memory of keys and values back until the next step."""
        self.cache.free()

    # ---- a step ----

    def forward(self, state: RowState, joining: list[EngineRequest], chunks: list[PrefixChunk]) -> Tensor:
        """[rows, vocabulary] logits of the next token of every row, of those that join now last."""
        rows = len(state.requests)
        self.prepare(state, joining)
        batch = FlatBatch()
        if rows:
            batch.add(FlatPart(self.decode_attention(state), [state.last_ids()], [state.next_positions()]))
            state.owned[:rows] += 1
        for part in self.prompt_parts(rows, joining, chunks):
            batch.add(part)
        for request in joining:
            state.add(request)
            self._rows_changed = True
        ends = rows + np.cumsum([len(r.suffix) for r in joining], dtype=np.int64) - 1
        logits = self.run_model(batch, np.concatenate([np.arange(rows), ends]))
        for prefix, count in chunks:
            prefix.done += count
        return logits

    def prepare(self, state: RowState, joining: list[EngineRequest]) -> None:
        """Make room for one more token of every row and for the prompts that join."""
        rows = len(state.requests)
        lengths = np.concatenate([state.owned[:rows] + 1, [len(r.suffix) for r in joining]])
        if len(lengths):
            self.cache.ensure(len(lengths), int(lengths.max()), rows)
            self.stack.update(r.prefix for r in [*state.requests, *joining] if r.prefix is not None)

    def decode_attention(self, state: RowState) -> PartAttention:
        """The attention of one new token of every row."""
        rows, changed = len(state.requests), self._rows_changed
        self._rows_changed = False
        if changed or (self._shared is not None and self._shared.generation != self.stack.generation):
            self._shared = SharedPart.of(state.requests, self.stack)
        return self._rows_attention(self._shared, 0, state.owned[:rows].copy(), np.ones(rows, int))

    def prompt_parts(self, first: int, joining: list[EngineRequest], chunks: list[PrefixChunk]) -> list[FlatPart]:
        """What is prefilled: the prompts that join, in slots from ``first`` on, then chunks of prefixes."""
        parts = []
        if joining:
            attention = self.join_attention(first, joining)
            parts.append(FlatPart(attention, [r.suffix for r in joining], [r.positions for r in joining]))
        return parts + self.prefill_parts(chunks)

    def join_attention(self, first: int, joining: list[EngineRequest]) -> PartAttention:
        """The attention of the prompts of rows that join."""
        lengths = np.array([len(r.suffix) for r in joining])
        shared = SharedPart.of(joining, self.stack)
        return self._rows_attention(shared, first, np.zeros_like(lengths), lengths)

    def prefill_parts(self, chunks: list[PrefixChunk]) -> list[FlatPart]:
        """Chunks of prefixes: those that are whole prefixes together, the others one by one."""
        found: list[BatchPrefill | ChunkPrefill] = [*BatchPrefill.of(chunks), *ChunkPrefill.of(chunks)]
        return [FlatPart(p, [c.tokens for c in p.chunks], [c.rotary for c in p.chunks]) for p in found]

    def run_model(self, batch: FlatBatch, keep: np.ndarray) -> Tensor:
        """[kept tokens, vocabulary] logits of a flat batch."""
        kept = self.tensor(keep)
        with using(StepPlan(batch.parts, self.cache.layers, kept)):
            out = self.model(
                input_ids=self.tensor(batch.all_tokens()).unsqueeze(0),
                position_ids=self.tensor(batch.all_positions()).unsqueeze(0),
                use_cache=False,
                logits_to_keep=kept,
            )
        return out.logits[0]

    def _rows_attention(
        self, shared: SharedPart | None, first: int, owned: np.ndarray, new: np.ndarray
    ) -> RowsAttention:
        return RowsAttention(self.cache, shared, first, self.tensor(owned), int(new.max()), self.tensor(new))

    def tensor(self, array: np.ndarray) -> Tensor:
        """An array on the backend's device."""
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, non_blocking=True)
