"""A sampler over several vLLM servers that hold the same weights.

A server that fails is taken out (`members.py`) and its requests go to others, with the same seeds, so that the ids are
the same. With no server left, requests fail as those to an endpoint that is away: the rollout waits and repeats the
attempts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from recollect.policies.endpoint import EndpointDown
from recollect.runtime.threads import LoopThread
from recollect.samplers.fleet.balance import Balance
from recollect.samplers.fleet.fleet_statistics import FleetStatistics
from recollect.samplers.fleet.members import FleetLimits, FleetServer, Members
from recollect.samplers.fleet.sleeping import put_to_sleep, wake
from recollect.samplers.fleet.vllm_client import RequestRefused, ServedTokens, ServerFailed, VllmClient
from recollect.samplers.fleet.weight_version import WeightVersion, WeightWay
from recollect.samplers.sampler import NamedWeights
from recollect.types import Completion, Sampling

TRIES = 4  # servers that one request is given to; a request that ends servers must not end them all for ever
SETTLE_S = 5.0  # for requests that were given up to end


@dataclass(frozen=True)
class FleetFacts:
    """What the model is that the servers compute."""

    window: int
    vocabulary: int
    check: Callable[[dict[str, Any]], str]  # what is wrong with what a server says of itself; empty: nothing
    digest: Callable[[WeightVersion], str]  # of the weights of a version, as other samplers' digests


class Fleet:
    """The servers as one sampler. All that is done with them is done in one loop of a thread of its own."""

    version = 0

    def __init__(
        self,
        members: Sequence[FleetServer],
        way: WeightWay,
        facts: FleetFacts,
        decode: Callable[[Sequence[int]], str],
        limits: FleetLimits = FleetLimits(),
        say: Callable[[str], None] = lambda text: None,
        warn: Callable[[str], None] = lambda text: None,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        """``prepare`` writes what servers load before they start."""
        self.way, self.facts, self.decode, self.limits, self.prepare = way, facts, decode, limits, prepare
        self.stats = FleetStatistics()
        self.members = Members(members, way, facts.check, limits, self.stats, say, warn)
        self._balance: Balance[FleetServer] = Balance(lambda member: member.busy, limits.rows)
        self._thread: LoopThread | None = None

    # ---- what a sampler is asked ----

    @property
    def window(self) -> int:
        """Tokens that a prompt and its completion may have together."""
        return self.facts.window

    @property
    def vocabulary(self) -> int:
        """Ids that the model knows."""
        return self.facts.vocabulary

    async def generate(
        self, prompt_ids: Sequence[int], sampling: Sampling, watch: Callable[[list[int]], None] | None = None
    ) -> Completion:
        """One completion. A server answers when it is whole, so ``watch`` is called once."""
        if len(prompt_ids) == 0:
            raise ValueError("an empty prompt cannot be completed")
        if len(prompt_ids) + sampling.max_tokens > self.window:
            raise ValueError(
                f"a prompt of {len(prompt_ids)} tokens and {sampling.max_tokens} new ones "
                f"do not fit the servers' window of {self.window}"
            )
        if sampling.grammar is not None:
            raise ValueError("servers of a fleet sample without a grammar")
        assert self._thread is not None, "servers have weights only after the first sync"
        done: ServedTokens = await self._thread.call(self._complete(list(map(int, prompt_ids)), sampling))
        if watch is not None:
            watch(list(done.ids))
        return Completion(done.ids, done.logprobs, done.stop, self.version, self.decode(done.ids))

    def take_weights(self, version: int, weights: NamedWeights | None) -> None:
        """Have all servers load the weights."""
        assert weights is not None, "servers have memory of their own"
        self._settle()
        start = time.monotonic()
        first = self.members.current is None
        if self._thread is None:
            if self.prepare is not None:
                self.prepare()
            self.way.open()
            self._thread = LoopThread("fleet")
            self._wait(self.members.launch())
        kept = self.way.keep(version, weights)
        self._balance.forget()
        self._wait(self.members.enter(kept) if first else self.members.give(kept))
        self.version = version
        self.way.drop_old()
        self.stats.syncs += 1
        self.stats.sync_seconds += time.monotonic() - start if not first else 0.0
        self.stats.sync_bytes = kept.size

    def look(self) -> None:
        """Check servers that run already, without weights; BadInput where one does not fit."""
        self.way.open()
        self._thread = LoopThread("fleet")
        self._wait(self.members.look())

    def free(self) -> None:
        """Servers that share the learner's GPUs sleep; others keep their memory."""
        if self._thread is not None:
            self._settle()
            self._wait(put_to_sleep(self.members))

    def restore(self) -> None:
        """Wake those that sleep. One that does not wake is replaced."""
        if self._thread is not None:
            self._wait(wake(self.members))

    def statistics(self) -> FleetStatistics:
        """What was done so far, and what is under way."""
        return replace(self.stats)

    def weights_digest(self) -> str:
        """A digest of the weights that the servers have."""
        assert self.members.current is not None, "servers have weights only after the first sync"
        return self.facts.digest(self.members.current)

    def close(self) -> None:
        """Stop the servers that this run started, and forget the weights."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            with suppress(Exception):
                thread.wait(self.members.end())
        finally:
            self.members.close()
            thread.close()
            self.way.clear()

    # ---- going away and coming back, as an endpoint does ----

    async def back(self, warn: Callable[[str], None]) -> bool:
        """Wait until a server is there again; False when none came back in time."""
        if self.members.ready():
            return True
        warn(f"no server is left; waiting up to {self.limits.wait_s:g} s for one")
        return await self.members.wait()

    @property
    def loss(self) -> str:
        """What to say when none came back."""
        return self.limits.loss

    def _settle(self) -> None:
        """Requests that nobody awaits any more end in a moment; there must be no others."""
        until = time.monotonic() + SETTLE_S
        while self.stats.decoding and time.monotonic() < until:
            time.sleep(0.01)
        assert not self.stats.decoding, "weights may only change while nothing is being generated"

    # ---- in the fleet's own loop ----

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        assert self._thread is not None
        return self._thread.wait(work)

    async def _complete(self, prompt: list[int], sampling: Sampling) -> ServedTokens:
        """Ask one server after another until one gives the completion."""
        assert self.members.current is not None
        expected, problem = self.members.current.label, ""
        for attempt in range(TRIES):
            ready = self.members.ready()
            if not ready:
                break
            member = self._balance.choose(sampling.key, ready)
            self.stats.repeated += attempt > 0
            try:
                done = await self._ask(member, prompt, sampling, expected)
            except ServerFailed as error:
                problem = f"{member.url}: {error}"
                self.members.take_out(member, str(error))
                continue
            except RequestRefused as error:
                raise RuntimeError(f"{member.url}: {error}") from None
            self.stats.completed(len(prompt), len(done.ids))
            return done
        raise EndpointDown(f"no vLLM server gave a completion; the last: {problem}" if problem else "no server is left")

    async def _ask(self, member: FleetServer, prompt: list[int], sampling: Sampling, expected: str) -> ServedTokens:
        """Ask a server; when it is taken out meanwhile, stop waiting for it."""
        assert member.client is not None
        member.busy += 1
        self.stats.count(1)
        asked = asyncio.ensure_future(self._in_turn(member.client, prompt, sampling, expected))
        lost = asyncio.ensure_future(member.lost.wait())
        try:
            await asyncio.wait({asked, lost}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise ServerFailed("it was taken out")
            return asked.result()
        finally:
            asked.cancel()
            lost.cancel()
            member.busy -= 1
            self.stats.count(-1)

    async def _in_turn(self, client: VllmClient, prompt: list[int], sampling: Sampling, expected: str) -> ServedTokens:
        """Ask with one of the connections; waiting for one is no time of the server's."""
        async with self.members.slots:
            done = await client.complete(prompt, sampling, expected)
        if max(done.ids) >= self.vocabulary:
            raise ServerFailed(f"it gave the id {max(done.ids)}, and the model has {self.vocabulary}")
        return done
