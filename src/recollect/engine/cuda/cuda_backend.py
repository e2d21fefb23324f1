"""The backend of a GPU: prefill in flat calls, decode under CUDA graphs.

A step is two passes. The first prefills what comes in, but for the last token of each prompt: with that a row takes its
first decode step, so prefill needs no logits. The second decodes one token for every row under a graph that also
samples and hands each row's token to the next step. The host only launches: while a step runs, it takes in the tokens
of the step before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.engine.backend import AdmissionRules, Deliver
from recollect.engine.cuda.device_cache import DeviceCache, MemoryLimit
from recollect.engine.cuda.device_rows import DeviceRows
from recollect.engine.cuda.flash_prefill import FlashPrefill, GraphPrefill, in_groups, supports
from recollect.engine.cuda.graph_pool import GraphPool
from recollect.engine.cuda.layers import Layers
from recollect.engine.cuda.matmuls import MOST_ROWS
from recollect.engine.cuda.sampling_kernels import SHIFT
from recollect.engine.flat_batch import FlatBatch, FlatPart, StepPlan
from recollect.engine.noise import uniform
from recollect.engine.plain import PlainBackend
from recollect.engine.prefix import PrefixChunk
from recollect.engine.request import EngineRequest
from recollect.engine.row_state import RowState
from recollect.engine.sampling import Sampled, sample
from recollect.engine.shape import AttentionShape, attention_shape
from recollect.models.attention import using

LONG = 1024  # tokens of its own from which a prompt is prefilled as a prefix
MIN_REUSE = 1 / 16  # of a prefix; with less of it known, two parts take longer than one
GRAPH_FROM = 3  # steps of one kind from which they are captured
PREFILL_GRAPH_FROM = 8  # the same for prefills of prefixes alone, of which there are more kinds
GraphKey = tuple[int, int, int, bool, bool]


@dataclass
class PendingStep:
    """A step whose tokens the host has not seen yet."""

    requests: list[EngineRequest]
    results: Tensor  # tokens, and whether rows have ended (sampling_kernels.py)
    logprobs: Tensor
    done: torch.cuda.Event


class CudaBackend(PlainBackend):
    """Computes the engine's steps under CUDA graphs (see `Backend`).

    Models whose attention the flash kernels do not take are prefilled as by the plain backend.
    """

    prompt_tail, handover = 1, 16
    cache: DeviceCache

    def __init__(self, model: Any, max_rows: int = 256, compiled: bool = False, row_bytes: int | None = None) -> None:
        super().__init__(model, max_rows)
        self.rows = DeviceRows(max_rows, self.cache, attention_shape(model).queries)
        self.limit = MemoryLimit(max_rows, self.cache.token_bytes, row_bytes)
        self.flash = supports(model, self.cache.dim)
        if self.flash:
            self.rules = AdmissionRules(LONG, None, join_early=True, min_reuse=MIN_REUSE)
        self.layers = Layers.of(model)
        self.graphs: dict[GraphKey, torch.cuda.CUDAGraph] = {}
        self.prefill_graphs: dict[tuple[int, int], tuple[GraphPrefill, torch.cuda.CUDAGraph]] = {}
        self._sampler = torch.compile(sample, dynamic=True) if compiled else sample
        self._seen: Counter[GraphKey] = Counter()
        self._seen_prefills: Counter[tuple[int, int]] = Counter()
        self._graph_of = (-1, -1)  # the generations of the cache and of the rows that the graphs were captured with
        self._pool = GraphPool()
        self._pending: PendingStep | None = None
        self._stale = True  # the device does not know the rows as they are
        self._key: GraphKey = (0, 0, 0, True, False)
        self._longest = 1  # tokens that a slot is made for
        self._pinned = [
            (torch.zeros(self.rows.size, dtype=torch.int64).pin_memory(), torch.zeros(self.rows.size).pin_memory())
            for _ in range(2)
        ]

    def _new_cache(self, shape: AttentionShape) -> DeviceCache:
        return DeviceCache(*shape.cached, self.model.dtype, self.device)

    # ---- the interface ----

    def rows_that_fit(self, requests: Sequence[EngineRequest]) -> int:
        """As many as there is memory for, if slots hold the longest row."""
        self._longest = max(self._longest_row(requests), self.cache.capacity)
        rows = self.limit.rows(self._longest)
        self.cache.expected = min(rows, len(requests))
        return rows

    def step(self, state: RowState, joining: list[EngineRequest], chunks: list[PrefixChunk], deliver: Deliver) -> None:
        """Prefill, launch the next decode step of all rows, then take in the tokens of the step before."""
        if joining or chunks:
            self._prefill(state, joining, chunks)
            self._stale = True
        if self._stale or self._ends_all(state):
            self.flush(state, deliver)
        if state.requests:
            pending = self._launch(state)
            self.flush(state, deliver)
            self._pending = pending

    def flush(self, state: RowState, deliver: Deliver) -> None:
        """Wait for the step that is under way, if there is one, and deliver its tokens."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        pending.done.synchronize()
        place = {id(r): i for i, r in enumerate(pending.requests)}
        rows = [place[id(r)] for r in state.requests]  # rows that ended in the step before are gone
        if not rows:
            return
        results = pending.results.numpy()[rows]
        end = results >> SHIFT
        ids = results & ((1 << SHIFT) - 1)
        deliver(Sampled(ids, pending.logprobs.numpy()[rows], end & 1 > 0, end & 2 > 0))

    def remove(self, row: int, last: int, length: int) -> None:
        """Free a row's slot; row ``last``, which owns ``length`` tokens, moves into it."""
        super().remove(row, last, length)
        self._stale = True

    def reset(self) -> None:
        """Forget the rows."""
        super().reset()
        self._pending, self._stale = None, True

    def free(self) -> None:
        """Give the memory of keys and values, and of graphs, back until the next step."""
        super().free()
        self._drop_graphs()

    # ---- prefill ----

    def _prefill(self, state: RowState, joining: list[EngineRequest], chunks: list[PrefixChunk]) -> None:
        """Prefill prompts but for their last tokens, and chunks of prefixes."""
        before = len(state.requests)
        self.cache.ensure(before + len(joining), self._longest, before)
        with_suffix = [r for r in joining if len(r.suffix)]
        without = [r for r in joining if not len(r.suffix)]  # all but the last token is known
        if with_suffix or chunks:
            self._prefill_batch(state, in_groups(with_suffix), chunks)
        for request in without:
            state.add(request)
        self._absorb_prefixes(state, before)

    def _prefill_batch(self, state: RowState, joining: list[EngineRequest], chunks: list[PrefixChunk]) -> None:
        """One forward pass without logits."""
        batch, first = FlatBatch(), len(state.requests)
        if not self.flash:
            self.prepare(state, joining)
        for part in self.prompt_parts(first, joining, chunks):
            batch.add(part)
        for request in joining:
            state.add(request)
            self._rows_changed = True
        self.run_model(batch, np.empty(0, np.int64))
        for prefix, count in chunks:
            prefix.done += count

    def prompt_parts(self, first: int, joining: list[EngineRequest], chunks: list[PrefixChunk]) -> list[FlatPart]:
        """The prompts that join and the chunks of prefixes, in one part where the flash kernels take them."""
        if not self.flash:
            return super().prompt_parts(first, joining, chunks)
        return [FlashPrefill(self.cache, first, joining, chunks).part()]

    def run_model(self, batch: FlatBatch, keep: np.ndarray) -> Tensor:
        """[kept tokens, vocabulary] logits of a flat batch, by layers of our own where the model allows it."""
        if self.layers is None:
            return super().run_model(batch, keep)
        part, tokens, positions = batch.parts[0][0], batch.all_tokens(), batch.all_positions()
        if isinstance(part, FlashPrefill) and not (part.joined or part.known):
            size = GraphPrefill.size_of(part)
            self._seen_prefills[size] += 1
            if self._seen_prefills[size] >= PREFILL_GRAPH_FROM:
                return self._prefill_by_graph(size, part, tokens, positions)
        plan = StepPlan(batch.parts, self.cache.layers, self.tensor(keep))
        return self.layers.prefill(self.tensor(tokens), self.tensor(positions), plan)

    def _prefill_by_graph(
        self, size: tuple[int, int], part: FlashPrefill, tokens: np.ndarray, positions: np.ndarray
    ) -> Tensor:
        """Prefill prefixes under a graph: a small model computes them faster than a host can launch."""
        assert self.layers is not None
        static, graph = self.prefill_graphs.get(size) or (GraphPrefill(self.cache, *size), None)
        static.fill(part, tokens, positions)
        if graph is None:
            plan = StepPlan([(static, size[0])], self.cache.layers, static.keep)
            prefill, (ids, places) = self.layers.prefill, static.numbers[:2]
            graph = self._pool.capture(lambda: prefill(ids, places, plan))
            self.prefill_graphs[size] = static, graph
        graph.replay()
        return torch.empty(0, self.layers.head.out_features, device=self.device)

    def _longest_row(self, requests: Sequence[EngineRequest]) -> int:
        """Tokens that a row may come to own: all of a prompt that is not long, where memory allows that for all rows.

        How much of it is shared changes from step to step; slots that are made for the most need not grow.
        """
        long = self.rules.long
        most = max((min(len(r.prompt), long + r.prompt_tail) + r.sampling.max_tokens for r in requests), default=1)
        if self.limit.rows(most) == self.limit.most:
            return most
        return max((min(len(r.suffix), long) + r.prompt_tail + r.sampling.max_tokens for r in requests), default=1)

    def _absorb_prefixes(self, state: RowState, first: int) -> None:
        """Rows from ``first`` on that alone attend to a prefix copy it into their slots: one part is faster."""
        for row in range(first, len(state.requests)):
            request, own = state.requests[row], int(state.owned[row])
            prefix, n = request.prefix, request.shared
            room = n + own + 1 + request.sampling.max_tokens
            if prefix is None or prefix.users > 1 or room > self.cache.capacity:
                continue
            mine = self.cache.tokens[:, :, row]
            mine[:, :, :, n : n + own] = mine[:, :, :, :own].clone()
            mine[:, :, :, :n] = prefix.memory.view(*mine.shape[:3], prefix.room, mine.shape[4])[:, :, :, :n]
            request.release()
            request.shared = 0
            state.shared[row], state.owned[row] = 0, n + own

    # ---- decode ----

    def _ends_all(self, state: RowState) -> bool:
        """Whether all rows are at their limits with the step under way."""
        n = len(state.requests)
        return self._pending is not None and bool((state.count[:n] + 1 >= state.limit[:n]).all())

    def _launch(self, state: RowState) -> PendingStep:
        n = len(state.requests)
        self.cache.ensure(n, int(state.owned[:n].max()) + 1, n)
        if self._stale:
            self._key = self.rows.upload(state)
            self._stale = False
        generations = self.cache.generation, self.rows.generation
        if self._graph_of != generations:
            self._drop_graphs()
            self._graph_of = generations
        self._decode()
        state.owned[:n] += 1
        results, logprobs = self._pinned[0]
        self._pinned.reverse()
        results.copy_(self.rows.results, non_blocking=True)
        logprobs.copy_(self.rows.logprobs, non_blocking=True)
        done = torch.cuda.Event()
        done.record()
        return PendingStep(list(state.requests), results, logprobs, done)

    def _decode(self) -> None:
        """One step of the rows; what comes up once or twice, as while prompts join, is not worth a graph."""
        self._seen[self._key] += 1
        if self._key not in self.graphs:
            if self._seen[self._key] < GRAPH_FROM:
                self._decode_body()
                return
            saved = self.rows.numbers.clone()
            self.graphs[self._key] = self._pool.capture(self._decode_body)
            self.rows.numbers.copy_(saved)
        self.graphs[self._key].replay()

    def _decode_body(self) -> None:
        """What a graph captures: logits of every row's token, and the next token sampled from them."""
        rows, (_, _, _, plain, greedy) = self.rows, self._key
        if self.layers is not None and rows.rows <= MOST_ROWS:
            logits = self.layers.decode(rows.token, rows.position, rows)
        else:
            with using(rows):
                logits = self.model(
                    input_ids=rows.token.unsqueeze(0), position_ids=rows.position.unsqueeze(0), use_cache=False
                ).logits[0]
        if plain:
            rows.sample(logits)
            return
        real = rows.reals[:, : rows.rows]
        noise = uniform(rows.noise, rows.count)
        ids, logprobs = self._sampler(logits, real[0].float(), real[1], rows.top_k, noise, plain, greedy)
        rows.advance(ids, logprobs)

    def _drop_graphs(self) -> None:
        """Forget the graphs, and with the last of them the memory that they share."""
        if self.graphs or self.prefill_graphs:
            torch.cuda.synchronize()
        self.graphs.clear()
        self.prefill_graphs.clear()
        self._seen_prefills.clear()
        self._pool.clear()
