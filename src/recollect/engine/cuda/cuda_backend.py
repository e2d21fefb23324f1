"""The backend of a GPU: prefill in flat passes, decode under CUDA graphs, the host a step behind.

A step is two passes. The first prefills what comes in, but for the last token of each prompt: with that a row takes its
first decode step, so prefill needs no logits. The second decodes one token for every row under a graph that also
samples and moves each row on. The host only launches: while a step runs, it takes in the tokens of the step before, and
agents go on. Rows that have ended stand still until the host says so; what it says is taken in by the next step, so
nothing ever waits for the device to be idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.engine.backend import AdmissionRules, Deliver
from recollect.engine.cuda.device_cache import DeviceCache, MemoryLimit
from recollect.engine.cuda.device_rows import DeviceRows, StepKind
from recollect.engine.cuda.flash_prefill import FlashPrefill, in_groups, supports
from recollect.engine.cuda.gpu_clock import GpuClock
from recollect.engine.cuda.graph_pool import GraphPool
from recollect.engine.cuda.layers import Layers
from recollect.engine.cuda.matmuls import MOST_ROWS
from recollect.engine.cuda.prefill_batch import NewTokens, PrefillBatch, of_chunk, of_row, size_for
from recollect.engine.cuda.sampling_kernels import SHIFT
from recollect.engine.flat_batch import StepPlan
from recollect.engine.noise import uniform
from recollect.engine.plain import PlainBackend
from recollect.engine.prefix import PrefixChunk
from recollect.engine.request import EngineRequest
from recollect.engine.row_state import RowState
from recollect.engine.sampling import Sampled, sample, sample_allowed
from recollect.engine.shape import AttentionShape, attention_shape
from recollect.models.attention import AttentionPlan, using

LONG = 1024  # tokens of its own from which a prompt is prefilled as a prefix
MIN_REUSE = 1 / 16  # of a prefix; with less of it known, two parts take longer than one
GRAPH_WORK = 6e12  # tokens × parameters of a prefill up to which launching it takes longer than computing it


@dataclass
class PendingStep:
    """A step whose tokens the host has not seen yet."""

    number: int
    results: Tensor  # by slot: tokens, and whether rows have ended (sampling_kernels.py); log-probabilities
    done: torch.cuda.Event


class CudaBackend(PlainBackend):
    """Computes the engine's steps under CUDA graphs (see `Backend`).

    Prompts are prefilled by a kernel of our own (prefill_batch.py), many tokens by the flash kernels where these can.
    """

    prompt_tail, handover = 1, 16
    cache: DeviceCache

    def __init__(self, model: Any, max_rows: int = 256, compiled: bool = False, row_bytes: int | None = None) -> None:
        super().__init__(model, max_rows)
        self.rows = DeviceRows(max_rows, self.cache, attention_shape(model).queries)
        self.limit = MemoryLimit(max_rows, self.cache.token_bytes, row_bytes)
        self.layers = Layers.of(model)
        self.flash = supports(model, self.cache.dim)
        self.rules = AdmissionRules(LONG, None, join_early=True, min_reuse=MIN_REUSE)
        self.graphs: dict[StepKind, torch.cuda.CUDAGraph] = {}
        self.prefills: dict[int, PrefillBatch] = {}  # by size
        self.prefill_graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._vocabulary = model.get_output_embeddings().weight.shape[0]
        self._parameters = sum(p.numel() for p in model.parameters())
        self._sampler = torch.compile(sample, dynamic=True) if compiled else sample
        self._graph_of = (-1, -1)  # the generations of the cache and of the rows that the graphs were captured with
        self._pool, self._clock = GraphPool(), GpuClock()
        self._pending: PendingStep | None = None
        self._stale = True  # the device does not know the rows as they are
        self._steps = 0  # launched
        self._free: list[int] = []  # slots that no row has, those that were given back last at the end
        self._longest = 1  # tokens that a slot is made for
        self._none = torch.zeros(0, dtype=torch.int64, device=self.device)  # tokens whose logits prefill makes
        self._pinned = [torch.zeros(2, self.rows.size, dtype=torch.int64).pin_memory() for _ in range(2)]

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
        """Prefill, launch the next decode step of all rows, then take in the tokens of the step before.

        Where the next ids of a row depend on its form, the tokens of the step before come first.
        """
        if joining or chunks:
            self._prefill(state, joining, chunks)
        if self._ends_all(state) or state.has_grammar[: len(state.requests)].any():
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
        self._clock.read()
        rows = np.flatnonzero(state.since[: len(state.requests)] <= pending.number)  # later ones took no part in it
        if not len(rows):
            return
        results, logprobs = pending.results.numpy()[:, state.slot[rows]]
        end = results >> SHIFT
        sampled = results & ((1 << SHIFT) - 1), logprobs.view(np.float64).astype(np.float32)
        deliver(Sampled(*sampled, end & 1 > 0, end & 2 > 0, rows))

    def remove(self, state: RowState, row: int) -> None:
        """Free a row's slot."""
        self._free.append(int(state.slot[row]))
        self._stale = self._rows_changed = True

    def gpu_seconds(self) -> float:
        """How long the GPU has worked on steps."""
        return self._clock.read()

    def reset(self) -> None:
        """Forget the rows."""
        super().reset()
        self._pending, self._stale = None, True
        self._free = [*range(self.cache.slots)][::-1]

    def free(self) -> None:
        """Give the memory of keys and values, and of graphs, back until the next step."""
        super().free()
        self._free = []
        self._drop_graphs()

    # ---- slots ----

    def _add(self, state: RowState, request: EngineRequest, slot: int) -> None:
        """A row that takes part from the next step on."""
        state.since[len(state.requests)] = self._steps
        state.add(request, slot)
        self._stale = self._rows_changed = True

    def _slots(self, count: int, state: RowState) -> list[int]:
        """Slots for rows that join."""
        before, rows = self.cache.slots, len(state.requests)
        self.cache.ensure(rows + count, self._longest, rows)
        self._free = [*range(before, self.cache.slots)][::-1] + self._free
        return [self._free.pop() for _ in range(count)]

    # ---- prefill ----

    def _prefill(self, state: RowState, joining: list[EngineRequest], chunks: list[PrefixChunk]) -> None:
        """Prefill prompts but for their last tokens, and chunks of prefixes."""
        before, slots = len(state.requests), self._slots(len(joining), state)
        self._drop_old_graphs()
        places = dict(zip(joining, slots, strict=True))
        with_suffix = in_groups([r for r in joining if len(r.suffix)])
        if with_suffix or chunks:
            self._prefill_pass(with_suffix, [places[r] for r in with_suffix], chunks)
        for request in joining:
            self._add(state, request, places[request])
        for prefix, count in chunks:
            prefix.done += count
        self._absorb_prefixes(state, before)

    def _prefill_pass(self, joining: list[EngineRequest], slots: list[int], chunks: list[PrefixChunk]) -> None:
        """One forward pass without logits: under a graph where launching it would take longer than computing it."""
        tokens = sum(len(r.suffix) for r in joining) + sum(chunk.size for chunk in chunks)
        if self.flash and (self.layers is None or tokens * self._parameters > GRAPH_WORK):
            part = FlashPrefill(self.cache, slots, joining, chunks).part()
            ids, positions = (self.tensor(np.concatenate(x)) for x in (part.tokens, part.positions))
            with self._clock.working():
                self._run(ids, positions, StepPlan([(part.attention, tokens)], self.cache.layers, self._none))
            return
        rows = [of_row(r, slot, self.cache) for r, slot in zip(joining, slots, strict=True)]
        self._fill_and_run(tokens, [*rows, *map(of_chunk, chunks)])

    def _fill_and_run(self, tokens: int, new: list[NewTokens]) -> None:
        """Prefill by `PrefillBatch`, under a graph if the layers are ours."""
        size = size_for(tokens)
        if size not in self.prefills:
            self.prefills[size] = PrefillBatch(self.cache, size, self.max_rows)
        batch = self.prefills[size]
        batch.fill(new)
        if self.layers is None:
            batch.total = tokens
            with self._clock.working():
                self._run(batch.tokens[:tokens], batch.positions[:tokens], batch)
            return
        if size not in self.prefill_graphs:
            self.prefill_graphs[size] = self._pool.capture(lambda: self._run(batch.tokens, batch.positions, batch))
        with self._clock.working():
            self.prefill_graphs[size].replay()

    def _run(self, tokens: Tensor, positions: Tensor, plan: AttentionPlan) -> None:
        """A forward pass for the keys and values that it stores."""
        if self.layers is not None:
            self.layers.prefill(tokens, positions, plan)
            return
        with using(plan):
            self.model(input_ids=tokens[None], position_ids=positions[None], use_cache=False, logits_to_keep=self._none)

    def _longest_row(self, requests: Sequence[EngineRequest]) -> int:
        """Tokens that a row may come to own, of any prompt that is not long, where memory allows that for all rows.

        How much of a prompt is shared changes from step to step, and longer prompts may come; slots that are made for
        the most need not grow, which would capture all graphs anew.
        """
        long = self.rules.long
        for request in requests:
            if not request.room:
                tail = request.prompt_tail
                request.room = min(len(request.prompt), long + tail) + request.sampling.max_tokens
        most = max((r.room for r in requests), default=1)
        any_prompt = long + self.prompt_tail + max((r.sampling.max_tokens for r in requests), default=0)
        if self.limit.room is not None and self.limit.rows(any_prompt) == self.limit.most:
            return any_prompt
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
            self.cache.take_prefix(int(state.slot[row]), prefix, n, own)
            request.release()
            request.shared = 0
            state.shared[row], state.owned[row], state.prefix[row] = 0, n + own, -1

    # ---- decode ----

    def _ends_all(self, state: RowState) -> bool:
        """Whether all rows are at their limits with the step under way."""
        if self._pending is None:
            return False
        n = len(state.requests)
        under_way = state.since[:n] <= self._pending.number
        return bool((state.count[:n] + under_way >= state.limit[:n]).all())

    def _launch(self, state: RowState) -> PendingStep:
        n = len(state.requests)
        self.cache.ensure(n, int(state.owned[:n].max()) + 1, n)
        if self._stale:
            fresh = np.flatnonzero(state.since[:n] == self._steps)
            self.rows.kind = self._serving(self.rows.upload(state, fresh))
            self._stale = False
        if self.rows.kind.limited:
            self.rows.limit_ids(state, self._vocabulary)
        self._drop_old_graphs()
        self._decode()
        state.owned[:n] += 1
        results = self._pinned[0]
        self._pinned.reverse()
        results.copy_(self.rows.results, non_blocking=True)
        done = torch.cuda.Event()
        done.record()
        self._steps += 1
        return PendingStep(self._steps - 1, results, done)

    def _serving(self, kind: StepKind) -> StepKind:
        """The kind of a captured graph that serves a step: one for more pieces than there are does so too."""
        if kind in self.graphs:
            return kind
        wider = [k for k in self.graphs if k.pieces > kind.pieces and k._replace(pieces=kind.pieces) == kind]
        return min(wider, default=kind)

    def _decode(self) -> None:
        """One step of the rows."""
        kind = self.rows.kind
        if kind not in self.graphs:
            saved = [x.clone() for x in self.rows.moved]
            self.graphs[kind] = self._pool.capture(self._decode_body)
            for array, before in zip(self.rows.moved, saved, strict=True):
                array.copy_(before)
        with self._clock.working():
            self.graphs[kind].replay()

    def _decode_body(self) -> None:
        """What a graph captures: logits of every row's token, and the next token sampled from them."""
        rows, kind = self.rows, self.rows.kind
        rows.begin()
        if self.layers is not None:
            forward = self.layers.decode if kind.rows <= MOST_ROWS else self.layers.prefill
            logits = forward(rows.token, rows.position, rows)
        else:
            with using(rows):
                logits = self.model(
                    input_ids=rows.token.unsqueeze(0), position_ids=rows.position.unsqueeze(0), use_cache=False
                ).logits[0]
        if kind.plain:
            rows.sample(logits)
            return
        real = rows.reals[:, : rows.rows]
        noise = uniform(rows.noise, rows.count)
        settings = real[0].float(), real[1], rows.top_k, noise, kind.plain, kind.greedy
        if kind.limited:
            ids, logprobs = sample_allowed(self._sampler, logits, rows.allowed, *settings)
        else:
            ids, logprobs = self._sampler(logits, *settings)
        rows.advance(ids, logprobs)

    def _drop_old_graphs(self) -> None:
        """Forget graphs that read memory which was allocated anew since."""
        generations = self.cache.generation, self.rows.generation
        if self._graph_of != generations:
            self._drop_graphs()
            self._graph_of = generations

    def _drop_graphs(self) -> None:
        """Forget the graphs, and with the last of them the memory that they share."""
        if self.graphs or self.prefill_graphs:
            torch.cuda.synchronize()
        self.graphs.clear()
        self.prefill_graphs.clear()
        self.prefills.clear()
        self._pool.clear()
