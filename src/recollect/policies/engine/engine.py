"""The engine: any number of tasks await completions, every step advances all of them by one token.

It runs inside the event loop, between the agents: after each step the agents whose completions are done (on a GPU at
most some of them) go on and may ask again, then the next step starts. So batching depends on what the agents do and not
on timing, and a run without outside input is repeatable to the bit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from recollect.models.attention import focus, using
from recollect.models.native.modules import replace_modules
from recollect.policies.engine.decode import Decoder
from recollect.policies.engine.kernel import CompiledReads, CompiledRows, Queries, kernel
from recollect.policies.engine.noise import uniform
from recollect.policies.engine.prefix import Prefix, PrefixCache
from recollect.policies.engine.request import Request
from recollect.policies.engine.rows import Cache, RowsAttention, SharedPart, Stack, token_shape
from recollect.policies.engine.sampler import sample
from recollect.policies.engine.schedule import LONG, SHORT, Scheduler
from recollect.policies.engine.state import RowState
from recollect.policies.engine.step import Part, PrefixBatch, PrefixRead, StepPlan
from recollect.session import noise_seed
from recollect.types import Completion, Sampling

Reading = tuple[Part, list[np.ndarray], list[np.ndarray]]  # attention of some tokens, they, and their positions


@dataclass
class EngineStats:
    """What the engine has done since it was made."""

    steps: int = 0
    prompt_tokens: int = 0  # prompt tokens asked for
    computed_prompt_tokens: int = 0  # prompt tokens that went through the model
    sampled_tokens: int = 0
    peak_rows: int = 0


class Engine:
    """Continuous batching over one transformers model with recollect's attention."""

    held = 0  # tokens at the end of a prompt that a row's first step takes
    told_at_once = 1 << 30  # callers that are told of their completions between two steps, or a fourth of the rows

    def __init__(
        self,
        model: Any,
        decode: Callable[[Sequence[int]], str],
        max_rows: int = 256,
        max_batched_tokens: int = 8192,
        prefix_cache_tokens: int = 262144,
        version: int = 0,
    ) -> None:
        config = model.config
        self.model, self.decode, self.version = model.eval(), decode, version
        self.window = int(getattr(config, "max_position_embeddings", 0) or 1 << 20)
        self.device = next(model.parameters()).device
        if self.device.type == "cpu":
            focus(model)
            replace_modules(model)
        self.cache = Cache(*token_shape(config), model.dtype, self.device)
        self.kernel = kernel(model.dtype, self.device)
        self.decoder = Decoder.of(model)
        self.stack = Stack(self.cache)
        self.state = RowState(max_rows)
        self.threads = 0  # CPU threads to generate with; 0: leave them as they are
        self.stats = EngineStats()
        self.scheduler = Scheduler(
            self.cache,
            PrefixCache(prefix_cache_tokens),
            max_rows,
            max_batched_tokens,
            config.num_attention_heads,
            LONG if self.kernel is None else SHORT,
        )
        self._shared: SharedPart | None = None  # of the rows that decode
        self._queries: Queries | None = None  # the same for compiled attention
        self._rows_changed = False
        self._open: dict[Request, None] = {}  # that somebody waits for, also while they are between two lists
        self._done: list[tuple[Request, Completion]] = []  # whose callers have not been told
        self._loop: asyncio.Task[None] | None = None

    # ---- what callers use ----

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, watch: Callable[[list[int]], None] | None = None
    ) -> Completion:
        """Sample one completion. Cancelling the caller drops the request at the next step.

        ``watch`` is called with the ids sampled so far after every step.
        """
        prompt = np.asarray(prompt_ids, np.int64)
        if len(prompt) == 0:
            raise ValueError("an empty prompt cannot be completed")
        if len(prompt) + sampling.max_tokens > self.window:
            raise ValueError(
                f"a prompt of {len(prompt)} tokens and {sampling.max_tokens} new ones "
                f"do not fit the model's window of {self.window}"
            )
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        noise = noise_seed(sampling.seed, sampling.key)
        request = Request(prompt, sampling, noise, future, watch=watch, held=self.held)
        self.scheduler.waiting.append(request)
        self._open[request] = None
        self.stats.prompt_tokens += len(prompt)
        if self._loop is None or self._loop.done() or self._loop.get_loop().is_closed():
            self._loop = asyncio.ensure_future(self._run())
        try:
            return await future
        finally:
            del self._open[request]

    def new_weights(self, version: int) -> None:
        """The model's weights have changed: forget every key and value computed with the old ones."""
        assert not self.busy, "weights may only change while nothing is being generated"
        self.version = version
        self._forget()

    def free(self) -> None:
        """Give the caches' memory back until the next request."""
        assert not self.busy, "caches can only be freed while nothing is being generated"
        self._forget()
        self.cache.free()

    def _forget(self) -> None:
        """Forget what was computed, and requests that nobody awaits any more."""
        self.scheduler.reset()
        self.state.requests.clear()
        self._done.clear()
        self.stack = Stack(self.cache)
        if self.decoder is not None:
            self.decoder.stale = True

    @property
    def busy(self) -> bool:
        """True while somebody waits for a completion."""
        return any(not r.abandoned for r in self._open)

    @property
    def stacked(self) -> bool:
        """True when prefixes are read from the stack."""
        return self.kernel is None

    # ---- the loop ----

    async def _run(self) -> None:
        if self.threads and torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        try:
            while True:
                self._tell(max(self.told_at_once, len(self.state.requests) // 4))
                await asyncio.sleep(0)  # agents whose completions are done go on and ask again
                if self.scheduler.waiting or self.state.requests:
                    self.step()
                elif not self._done:
                    return
        except Exception as error:
            self._tell(len(self._done))
            for request in self._open:
                if not request.abandoned:
                    request.future.set_exception(error)
            self._forget()

    def _tell(self, most: int) -> None:
        """Give the oldest completions to those who wait for them."""
        self._done = [(request, completion) for request, completion in self._done if not request.abandoned]
        for request, completion in self._done[:most]:
            request.future.set_result(completion)
        del self._done[:most]

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

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, non_blocking=True)

    def _sample(self, logits: Tensor) -> None:
        """Sample one token for every row."""
        state = self.state
        some = slice(len(state.requests))
        noise = uniform(self._tensor(state.noise[some]), self._tensor(state.count[some]))
        plain = bool((state.top_p[some] >= 1).all() and (state.top_k[some] <= 0).all())
        ids, logprobs = sample(
            logits,
            self._tensor(state.temperature[some]),
            self._tensor(state.top_p[some]),
            self._tensor(state.top_k[some]),
            noise,
            plain,
            bool((state.temperature[some] <= 0).any()),
        )
        chosen = ids.cpu().numpy()
        state.append(chosen, logprobs.float().cpu().numpy())
        self._end_rows(*state.ended(chosen))

    def _end_rows(self, stopped: np.ndarray, full: np.ndarray) -> None:
        """Finish the rows that a stop token ends, or their limit, or their text."""
        self.stats.sampled_tokens += len(stopped)
        for row, request in enumerate(self.state.requests):
            if request.watch is not None:
                request.watch(self.state.ids[row, : self.state.count[row]].tolist())
        stopped = stopped | self.state.worded(self.decode)
        for row in np.flatnonzero(stopped | full)[::-1].tolist():
            self._finish(row, bool(stopped[row]))

    def _finish(self, row: int, stopped: bool) -> None:
        state = self.state
        count = int(state.count[row])
        ids = state.ids[row, :count].tolist()
        logprobs = state.logprobs[row, :count].tolist()
        request = state.requests[row]
        if request.sampling.keep:
            self.scheduler.keep(request, row, ids)
        self._remove(row)
        if not request.abandoned:
            stop: Literal["stop", "length"] = "stop" if stopped else "length"
            done = Completion(tuple(ids), tuple(logprobs), stop, self.version, self.decode(ids))
            self._done.append((request, done))

    def _remove(self, row: int) -> None:
        last = len(self.state.requests) - 1
        if row != last:
            self.cache.move(last, row, int(self.state.owned[last]))
        request = self.state.remove(row)
        self.scheduler.left(request)
        request.release()
        self._rows_changed = True
