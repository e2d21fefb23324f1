"""What every engine does: requests come in, each step samples a token for every row, completions go out.

It runs inside the event loop, between the agents: after each step the agents whose completions are done (on a GPU at
most some of them) go on and may ask again, then the next step starts. So batching depends on what the agents do and not
on timing, and a run without outside input is repeatable to the bit.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from recollect.chat.encode_queue import HOPS
from recollect.engine.masks import follow
from recollect.engine.request import EngineRequest
from recollect.engine.row_state import RowState
from recollect.engine.sampling import Sampled
from recollect.models.lora import fill_weights
from recollect.models.text_config import text_config
from recollect.models.vision import sight_of
from recollect.models.weights_digest import weights_digest
from recollect.types import Completion, Sampling


@dataclass
class EngineStats:
    """What the engine has done since it was made."""

    steps: int = 0
    prompt_tokens: int = 0  # prompt tokens asked for
    computed_prompt_tokens: int = 0  # prompt tokens that went through the model
    sampled_tokens: int = 0
    prefill_seconds: float = 0.0  # of steps that prefill something, on the host
    decode_seconds: float = 0.0  # of those that do not
    peak_rows: int = 0
    decoding: int = 0  # rows under way; counted when somebody asks
    waiting: int = 0  # requests that have no row yet; likewise
    outside: bool = False  # it samples in this process
    gpu_seconds: float | None = None  # in which a GPU worked on steps, where that is known; likewise


class EngineLoop(ABC):
    """Requests, rows and what is sampled for them; how tokens are computed is an engine's own."""

    keeps_form = True  # it honours a grammar
    prompt_tail = 0  # tokens at the end of a prompt that are not prefilled: a row's first decode step takes them
    handover = 1 << 30  # completions that are handed to their callers between two steps (or a fourth of the rows)

    def __init__(self, model: Any, decode: Callable[[Sequence[int]], str], max_rows: int, version: int) -> None:
        self.model, self.decode, self.version = model.eval(), decode, version
        self.window = int(getattr(text_config(model), "max_position_embeddings", 0) or 1 << 20)
        self.device = next(model.parameters()).device
        self.state = RowState(max_rows)
        self.threads = 0  # CPU threads to generate with; 0: leave them as they are
        self.stats = EngineStats()
        self._open: dict[EngineRequest, None] = {}  # that somebody waits for, also while they are in no other list
        self._done: list[tuple[EngineRequest, Completion]] = []  # whose callers do not have them yet
        self._loop: asyncio.Task[None] | None = None

    @property
    @abstractmethod
    def waiting(self) -> list[EngineRequest]:
        """Requests that have no row yet."""

    @abstractmethod
    def step(self) -> None:
        """Advance everything by one token."""

    @abstractmethod
    def _remove(self, row: int) -> None:
        """Take a row out."""

    def _keep(self, request: EngineRequest, row: int, sampled: list[int]) -> None:  # noqa: B027
        """Keep what was computed of a finished row, if the engine can."""

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
        matcher = None if sampling.grammar is None else sampling.grammar.start()
        request = EngineRequest(prompt, sampling, sampling.noise_seed, future, watch=watch, matcher=matcher)
        request.prompt_tail = self.prompt_tail
        self.waiting.append(request)
        self._open[request] = None
        self.stats.prompt_tokens += len(prompt)
        if self._loop is None or self._loop.done() or self._loop.get_loop().is_closed():
            self._loop = asyncio.ensure_future(self._run())
        try:
            return await future
        finally:
            del self._open[request]

    @property
    def vocabulary(self) -> int:
        """Ids that the model knows."""
        return len(self.model.get_input_embeddings().weight)

    def take_weights(self, version: int, weights: Iterable[tuple[str, Tensor]] | None) -> None:
        """Sample with these weights from now on; None: those in the model's memory have changed."""
        assert not self.busy, "weights may only change while nothing is being generated"
        if weights is not None:
            fill_weights(self.model, weights)
        self.model.eval()
        self.new_weights(version)

    def new_weights(self, version: int) -> None:
        """The model's weights have changed: forget every key and value computed with the old ones."""
        assert not self.busy, "weights may only change while nothing is being generated"
        self.version = version
        sight = sight_of(self.model)
        if sight is not None and not sight.frozen:
            sight.forget()
        self._forget()

    def free(self) -> None:
        """Give the caches' memory back until the next request."""
        assert not self.busy, "caches can only be freed while nothing is being generated"
        self._forget()

    def restore(self) -> None:  # noqa: B027
        """Nothing to take back: caches grow with the next requests."""

    def close(self) -> None:  # noqa: B027
        """Nothing runs beside this process."""

    def statistics(self) -> EngineStats:
        """What was done so far, and what is under way."""
        return replace(self.stats, decoding=len(self.state.requests), waiting=len(self.waiting))

    def weights_digest(self) -> str:
        """A digest of the model's weights."""
        return weights_digest(self.model)

    def _forget(self) -> None:
        """Forget what was computed, and requests that nobody awaits any more."""
        self.waiting.clear()
        self.state.requests.clear()
        self._done.clear()

    @property
    def busy(self) -> bool:
        """True while somebody waits for a completion."""
        return any(not r.abandoned for r in self._open)

    # ---- the loop ----

    async def _run(self) -> None:
        if self.threads and torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        try:
            while True:
                handed = self._hand_over(max(self.handover, len(self.state.requests) // 4))
                for _ in range(HOPS if handed else 1):  # agents whose completions are done go on and ask again
                    await asyncio.sleep(0)
                if self.waiting or self.state.requests:
                    self._timed_step()
                elif not self._done:
                    return
        except Exception as error:
            self._hand_over(len(self._done))
            for request in self._open:
                if not request.abandoned:
                    request.future.set_exception(error)
            self._forget()

    def _timed_step(self) -> None:
        """A step, counted as prefill if prompts were computed in it."""
        start, before = time.perf_counter(), self.stats.computed_prompt_tokens
        self.step()
        seconds = time.perf_counter() - start
        if self.stats.computed_prompt_tokens > before:
            self.stats.prefill_seconds += seconds
        else:
            self.stats.decode_seconds += seconds

    def _hand_over(self, most: int) -> int:
        """Give the oldest completions to those who wait for them; returns how many."""
        self._done = [(request, completion) for request, completion in self._done if not request.abandoned]
        for request, completion in self._done[:most]:
            request.future.set_result(completion)
        handed = len(self._done[:most])
        del self._done[:most]
        return handed

    def _deliver(self, sampled: Sampled) -> None:
        """Take in one new token for every row, and finish the rows that end with it."""
        rows = np.arange(len(self.state.requests)) if sampled.rows is None else sampled.rows
        self.state.append(sampled.ids, sampled.logprobs, rows)
        self._end_rows(rows, sampled.stopped, sampled.full)

    def _end_rows(self, rows: np.ndarray, stopped: np.ndarray, full: np.ndarray) -> None:
        """Finish those of some rows that a stop token ends, or their limit, or their text."""
        self.stats.sampled_tokens += len(rows)
        for row in rows.tolist():
            watch = self.state.requests[row].watch
            if watch is not None:
                watch(self.state.ids[row, : self.state.count[row]].tolist())
        stopped = stopped | follow(self.state, rows, stopped)
        stopped = stopped | self.state.ended_by_text(self.decode, rows)
        for place in np.flatnonzero(stopped | full)[::-1].tolist():
            self._finish(int(rows[place]), bool(stopped[place]))

    def _finish(self, row: int, stopped: bool) -> None:
        state = self.state
        count = int(state.count[row])
        ids = state.ids[row, :count].tolist()
        logprobs = state.logprobs[row, :count].tolist()
        request = state.requests[row]
        if request.sampling.keep:
            self._keep(request, row, ids)
        self._remove(row)
        if not request.abandoned:
            stop: Literal["stop", "length"] = "stop" if stopped else "length"
            done = Completion(tuple(ids), tuple(logprobs), stop, self.version, self.decode(ids))
            self._done.append((request, done))
