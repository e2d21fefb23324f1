"""The engine on a GPU.

Prompts are read as on any device, but for their last tokens: with those a row takes its first step. Rows that decode
run under a CUDA graph that also samples and hands each row's token to the next step, so the host only launches: while a
step runs, it deals with the tokens of the step before. Agents whose completions end together go on a few at a time, so
that the first of them are read while the others make their prompts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.engine.batching import Engine, Reading
from recollect.engine.cuda.device_rows import DeviceRows
from recollect.engine.cuda.layers import Layers
from recollect.engine.cuda.matmuls import MOST_ROWS
from recollect.engine.cuda.prefill import Prompts, Standing, able, in_groups
from recollect.engine.cuda.sampling_kernels import SHIFT
from recollect.engine.forward_step import Part, StepPlan
from recollect.engine.noise import uniform
from recollect.engine.prefix import Prefix
from recollect.engine.request import Request
from recollect.engine.rows import Fitting
from recollect.engine.sampling import sample
from recollect.engine.shape import attention_shape
from recollect.models.attention import using

LONG = 1024  # a prompt with more tokens of its own than this is read as a prefix, in steps
WORTH = 1 / 16  # of a prefix; with less of it known, two parts take longer to read than one
GRAPH_FROM = 3  # steps of one kind from which they are captured
READ_GRAPH_FROM = 8  # the same for steps that read the beginnings of prompts, of which there are more kinds
GraphKey = tuple[int, int, int, bool, bool]


@dataclass
class Flight:
    """A step whose tokens the host has not seen yet."""

    requests: list[Request]
    told: Tensor  # tokens, and whether rows have ended (draw.py)
    logprobs: Tensor
    landed: torch.cuda.Event


class CudaEngine(Engine):
    """Continuous batching under CUDA graphs."""

    held, told_at_once = 1, 16

    def __init__(
        self,
        model: Any,
        decode: Callable[..., str],
        max_rows: int = 256,
        max_batched_tokens: int = 8192,
        prefix_cache_tokens: int = 262144,
        compiled: bool = False,
        row_bytes: int | None = None,
    ) -> None:
        super().__init__(model, decode, max_rows, max_batched_tokens, prefix_cache_tokens)
        self.rows = DeviceRows(max_rows, self.cache, attention_shape(model).queries)
        self.fitting = Fitting(max_rows, self.cache.token_bytes, row_bytes)
        self.plain = able(model, self.cache.dim)  # attention
        if self.plain:
            self.scheduler.long, self.scheduler.scores, self.scheduler.together = LONG, None, True
            self.scheduler.worth = WORTH
        self.layers = Layers.of(model)
        self.graphs: dict[GraphKey, torch.cuda.CUDAGraph] = {}
        self.reads: dict[tuple[int, int], tuple[Standing, torch.cuda.CUDAGraph]] = {}
        self._sampler = torch.compile(sample, dynamic=True) if compiled else sample
        self._seen: Counter[GraphKey] = Counter()
        self._seen_reads: Counter[tuple[int, int]] = Counter()
        self._graph_of = (-1, -1)  # the making of the cache, and of the rows, that the graphs were captured with
        self._pool: Any = None
        self._side: Any = None  # the stream of first runs; every stream has buffers of its own
        self._flight: Flight | None = None
        self._stale = True  # the device does not know the rows as they are
        self._key: GraphKey = (0, 0, 0, True, False)
        self._pinned = [
            (torch.zeros(self.rows.size, dtype=torch.int64).pin_memory(), torch.zeros(self.rows.size).pin_memory())
            for _ in range(2)
        ]

    def free(self) -> None:
        """Give the caches' memory back until the next request."""
        super().free()
        self._drop_graphs()

    def _forget(self) -> None:
        super()._forget()
        self._flight, self._stale = None, True

    def _drop_graphs(self) -> None:
        """Forget the graphs, and with the last of them the memory that they share."""
        if self.graphs or self.reads:
            torch.cuda.synchronize()
        self.graphs.clear()
        self.reads.clear()
        self._seen_reads.clear()
        self._pool = None

    @property
    def stacked(self) -> bool:
        return not self.plain

    @torch.inference_mode()
    def step(self) -> None:
        """Launch the next step of all rows, then deal with the tokens of the step before."""
        state = self.state
        gone = [i for i, r in enumerate(state.requests) if r.abandoned]
        if gone:
            self._land()
            for row in [i for i, r in enumerate(state.requests) if r.abandoned][::-1]:
                self._remove(row)
        if self.scheduler.waiting or self.scheduler.reading:
            self._land()
            longest = max(self._longest(), self.cache.capacity)
            self.scheduler.max_rows = self.fitting.rows(longest)
            joining, reading = self.scheduler.admit(state.requests)
            if joining or reading:
                self._join(joining, reading, longest)
                self._stale = True
        if self._stale or self._ends_all():
            self._land()
        if state.requests:
            flight = self._launch()
            self._land()
            self._flight = flight
        self.stats.steps += 1
        self.stats.peak_rows = max(self.stats.peak_rows, len(state.requests))

    def _join(self, joining: list[Request], reading: list[tuple[Prefix, int]], longest: int) -> None:
        """Read what is read of prompts in this step, but for their last tokens."""
        before = len(self.state.requests)
        self.cache.expected = min(self.scheduler.max_rows, before + len(joining) + len(self.scheduler.waiting))
        self.cache.ensure(before + len(joining), longest, before)
        others = [r for r in joining if len(r.suffix)]
        if others or reading:
            self._forward(in_groups(others), reading, 0)
        for request in joining:
            if not len(request.suffix):  # all of it is known
                self.state.add(request)
        self._absorb(before)
        self.stats.computed_prompt_tokens += len(joining)

    def _ends_all(self) -> bool:
        """Whether all rows are at their limits with the step under way."""
        n = len(self.state.requests)
        return self._flight is not None and bool((self.state.count[:n] + 1 >= self.state.limit[:n]).all())

    def _prompts(self, joining: list[Request], reading: list[tuple[Prefix, int]]) -> list[Reading]:
        if self.stacked:
            return super()._prompts(joining, reading)
        part = Prompts(self.cache, len(self.state.requests), joining, reading)
        tokens = [*(r.suffix for r in joining), *part.tokens()]
        return [(part, tokens, [*(r.positions for r in joining), *part.positions()])]

    def _model(
        self, tokens: np.ndarray, positions: np.ndarray, keep: np.ndarray, parts: list[tuple[Part, int]]
    ) -> Tensor:
        if self.layers is None:
            return super()._model(tokens, positions, keep, parts)
        part = parts[0][0]
        if isinstance(part, Prompts) and not (part.joined or part.known):
            size = Standing.size_of(part)
            self._seen_reads[size] += 1
            if self._seen_reads[size] >= READ_GRAPH_FROM:
                return self._read(size, part, tokens, positions)
        plan = StepPlan(parts, self.cache.layers, self._tensor(keep.astype(np.int64)))
        return self.layers.read(self._tensor(tokens), self._tensor(positions), plan)

    def _read(self, size: tuple[int, int], part: Prompts, tokens: np.ndarray, positions: np.ndarray) -> Tensor:
        """Read beginnings of prompts under a graph: a small model reads them faster than a host can launch."""
        assert self.layers is not None
        standing, graph = self.reads.get(size) or (Standing(self.cache, *size), None)
        standing.fill(part, tokens, positions)
        if graph is None:
            plan = StepPlan([(standing, size[0])], self.cache.layers, standing.keep)
            read, (ids, places) = self.layers.read, standing.numbers[:2]
            graph = self._graph(lambda: read(ids, places, plan))
            self.reads[size] = standing, graph
        graph.replay()
        return torch.empty(0, self.layers.head.out_features, device=self.device)

    def _longest(self) -> int:
        """Tokens that a row may come to own: all of a prompt that is not long, where memory allows that for all rows.

        How much of it is shared changes from step to step; slots that are made for the most need not grow.
        """
        asked, long = [*self.state.requests, *self.scheduler.waiting], self.scheduler.long
        most = max((min(len(r.prompt), long + r.held) + r.sampling.max_tokens for r in asked), default=1)
        if self.fitting.rows(most) == self.fitting.most:
            return most
        return max((min(len(r.suffix), long) + r.held + r.sampling.max_tokens for r in asked), default=1)

    def _absorb(self, first: int) -> None:
        """Rows from ``first`` on that alone read a prefix take its keys and values in: one part is read faster."""
        state = self.state
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

    def _launch(self) -> Flight:
        state, n = self.state, len(self.state.requests)
        room = int(state.owned[:n].max()) + 1
        self.cache.ensure(n, room, n)
        if self._stale:
            self._key = self.rows.upload(state)
            self._stale = False
        made = self.cache.made, self.rows.made
        if self._graph_of != made:
            self._drop_graphs()
            self._graph_of = made
        self._decode()
        state.owned[:n] += 1
        told, logprobs = self._pinned[0]
        self._pinned.reverse()
        told.copy_(self.rows.told, non_blocking=True)
        logprobs.copy_(self.rows.logprobs, non_blocking=True)
        landed = torch.cuda.Event()
        landed.record()
        return Flight(list(state.requests), told, logprobs, landed)

    def _land(self) -> None:
        """Take in the tokens of the step that is under way, if there is one."""
        flight, self._flight = self._flight, None
        if flight is None:
            return
        flight.landed.synchronize()
        state, place = self.state, {id(r): i for i, r in enumerate(flight.requests)}
        rows = [place[id(r)] for r in state.requests]  # rows that ended in the step before are gone
        if not rows:
            return
        told = flight.told.numpy()[rows]
        state.append(told & ((1 << SHIFT) - 1), flight.logprobs.numpy()[rows])
        end = told >> SHIFT
        self._end_rows(end & 1 > 0, end & 2 > 0)

    def _remove(self, row: int) -> None:
        super()._remove(row)
        self._stale = True

    # ---- the graph ----

    def _body(self) -> None:
        rows, (_, _, _, plain, greedy) = self.rows, self._key
        if self.layers is not None and rows.rows <= MOST_ROWS:
            logits = self.layers.decode(rows.token, rows.position, rows)
        else:
            with using(rows):
                logits = self.model(
                    input_ids=rows.token.unsqueeze(0), position_ids=rows.position.unsqueeze(0), use_cache=False
                ).logits[0]
        if plain:
            rows.draw(logits)
            return
        real = rows.reals[:, : rows.rows]
        noise = uniform(rows.noise, rows.count)
        ids, logprobs = self._sampler(logits, real[0].float(), real[1], rows.top_k, noise, plain, greedy)
        rows.advance(ids, logprobs)

    def _decode(self) -> None:
        """One step of the rows; what comes up once or twice, as while prompts are read, is not worth a graph."""
        self._seen[self._key] += 1
        if self._key not in self.graphs:
            if self._seen[self._key] < GRAPH_FROM:
                self._body()
                return
            self._capture()
        self.graphs[self._key].replay()

    def _capture(self) -> None:
        saved = self.rows.numbers.clone()
        self.graphs[self._key] = self._graph(self._body)
        self.rows.numbers.copy_(saved)

    def _graph(self, work: Callable[[], object]) -> torch.cuda.CUDAGraph:
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
