"""The backend of CPUs: the plain one with compiled attention, and a compiled forward pass where a model allows it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from recollect.engine.cpu.attention_kernel import KernelPrefill, KernelRows, Queries, attention_function
from recollect.engine.cpu.decode import Decoder
from recollect.engine.cpu.native_sampling import native_sample
from recollect.engine.flat_batch import FlatBatch, FlatPart, PartAttention
from recollect.engine.plain import PlainBackend
from recollect.engine.prefix import PrefixChunk
from recollect.engine.request import EngineRequest
from recollect.engine.row_state import RowState

LONG = 32  # tokens of its own from which a prompt is prefilled as a prefix: the kernel is best at short ends


class CpuBackend(PlainBackend):
    """Computes the engine's steps by compiled functions (see `Backend`); `attention_function` must not be None."""

    sampler = staticmethod(native_sample)

    def __init__(self, model: Any, max_rows: int = 256) -> None:
        super().__init__(model, max_rows)
        self.rules = replace(self.rules, long=LONG)
        self.attention = attention_function(model.dtype)
        self.decoder = Decoder.of(model)  # None: the library's layers decode
        self._queries: Queries | None = None  # of the rows that decode

    def reset(self) -> None:
        """Forget the rows and the weights."""
        if self.decoder is not None:
            self.decoder.stale = True

    def prepare(self, state: RowState, joining: list[EngineRequest]) -> None:
        """Make room; the kernel reads prefixes where they are."""
        rows = len(state.requests)
        lengths = np.concatenate([state.owned[:rows] + 1, [len(r.suffix) for r in joining]])
        if len(lengths):
            self.cache.ensure(len(lengths), int(lengths.max()), rows)

    def decode_attention(self, state: RowState) -> PartAttention:
        """The attention of one new token of every row."""
        each = np.arange(len(state.requests))
        if self._rows_changed or self._queries is None:
            self._queries, self._rows_changed = Queries.of(state.requests, each, each), False
        owned = state.owned[: len(each)].copy()
        return KernelRows(self.attention, self.cache, self._queries, self._queries, 0, owned, each)

    def join_attention(self, first: int, joining: list[EngineRequest]) -> PartAttention:
        """The attention of the prompts of rows that join."""
        lengths = np.array([len(r.suffix) for r in joining])
        row, ends = np.repeat(np.arange(len(joining)), lengths), np.cumsum(lengths)
        place = np.arange(len(row))
        queries = Queries.of(joining, place, row)
        last = Queries.of(joining, ends - 1, np.arange(len(joining)))
        owned = place - np.repeat(ends - lengths, lengths)
        return KernelRows(self.attention, self.cache, queries, last, first, owned, row)

    def prefill_parts(self, chunks: list[PrefixChunk]) -> list[FlatPart]:
        """All chunks of prefixes in one call."""
        if not chunks:
            return []
        attention = KernelPrefill(self.attention, self.cache, chunks)
        return [FlatPart(attention, [c.tokens for c in chunks], [c.rotary for c in chunks])]

    def run_model(self, batch: FlatBatch, keep: np.ndarray) -> Tensor:
        """[kept tokens, vocabulary] logits; where all rows decode, by one compiled call."""
        (attention, _), *more = batch.parts
        ours = self.decoder is not None and len(keep) >= self.decoder.least
        if not ours or more or not isinstance(attention, KernelRows) or not attention.decoding:
            return super().run_model(batch, keep)
        assert self.decoder is not None
        return self.decoder(self.tensor(batch.all_tokens()), self.tensor(batch.all_positions()), attention)
