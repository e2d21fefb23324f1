"""A sampler over several vLLM servers that hold the same weights.

A server that fails is taken out and its requests go to others, with the same seeds, so that the ids are the same.
Meanwhile it is started again, or waited for, and it comes back only with the current weights. With no server left,
requests fail as those to an endpoint that is away: the rollout waits and repeats the attempts.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from recollect.policies.endpoint import EndpointDown
from recollect.runtime.threads import LoopThread, in_thread
from recollect.samplers.fleet.balance import Balance
from recollect.samplers.fleet.server_process import ServerProcess
from recollect.samplers.fleet.vllm_client import LOOK_S, RequestRefused, ServedTokens, ServerFailed, VllmClient
from recollect.samplers.fleet.weight_store import StoredWeights, WeightStore
from recollect.samplers.sampler import NamedWeights
from recollect.types import BadInput, Completion, Sampling

TRIES = 4  # servers that one request is given to; a request that ends servers must not end them all for ever
RESTARTS = 5  # of one server between two versions
PAUSE_S = 1.0  # between looks at a server that is not there yet
SETTLE_S = 5.0  # for requests that were given up to end


class ServersGone(RuntimeError):
    """No server came back in time; the run can go on later from its newest checkpoint."""


@dataclass(frozen=True)
class FleetLimits:
    """How long to wait for servers."""

    start_s: float = 600.0  # until a server has loaded its model
    request_s: float = 600.0  # one completion
    wait_s: float = 300.0  # for any server to come back when none is left
    rows: int = 256  # sequences that a server decodes at once


@dataclass(frozen=True)
class FleetFacts:
    """What the model is that the servers compute."""

    window: int
    vocabulary: int
    check: Callable[[dict[str, Any]], str]  # what is wrong with what a server says of itself; empty: nothing
    digest: Callable[[StoredWeights], str]  # of the weights of a version, as other samplers' digests


@dataclass
class FleetStatistics:
    """What the servers did for this process. They do not tell reading prompts from decoding."""

    steps: int = 0  # completions
    prompt_tokens: int = 0
    computed_prompt_tokens: int = 0  # at most: what servers had cached is not known
    sampled_tokens: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0  # in which at least one request was under way
    peak_rows: int = 0
    decoding: int = 0
    waiting: int = 0
    outside: bool = True
    taken_out: int = 0  # servers, each time
    repeated: int = 0  # requests that were given to another server
    syncs: int = 0
    sync_seconds: float = 0.0
    sync_bytes: int = 0  # of the newest version


@dataclass(eq=False)
class FleetServer:
    """A server of the fleet."""

    name: str
    url: str
    process: ServerProcess | None = None  # None: somebody else's, which is waited for and not started
    client: VllmClient | None = None
    ready: bool = False  # it has the current weights and is asked
    busy: int = 0
    restarts: int = 0
    lost: asyncio.Event = field(default_factory=asyncio.Event)  # set when it is taken out
    revival: asyncio.Task[None] | None = None


class Fleet:
    """The servers as one sampler. All that is done with them is done in one loop of a thread of its own."""

    version = 0

    def __init__(
        self,
        members: Sequence[FleetServer],
        store: WeightStore,
        facts: FleetFacts,
        decode: Callable[[Sequence[int]], str],
        limits: FleetLimits = FleetLimits(),
        say: Callable[[str], None] = lambda text: None,
        warn: Callable[[str], None] = lambda text: None,
        prepare: Callable[[], None] | None = None,
    ) -> None:
        """``prepare`` writes what servers load before they start."""
        self.members, self.store, self.facts, self.decode = list(members), store, facts, decode
        self.limits, self.say, self.warn, self.prepare = limits, say, warn, prepare
        self.stats = FleetStatistics()
        self.current: StoredWeights | None = None
        self._balance: Balance[FleetServer] = Balance(lambda member: member.busy, limits.rows)
        self._thread: LoopThread | None = None
        self._http: Any = None
        self._slots = asyncio.Semaphore(1)
        self._since = 0.0  # when the first of the requests under way began

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
        """Write the weights where the servers see them, and have all servers load them."""
        assert weights is not None, "servers have memory of their own"
        self._settle()
        start = time.monotonic()
        first = self.current is None
        if self._thread is None:
            if self.prepare is not None:
                self.prepare()
            self.store.open()
            self._thread = LoopThread("fleet")
            self._wait(self._launch())
        stored = self.store.write(version, weights)
        self._wait(self._enter(stored) if first else self._give(stored))
        self.version = version
        self.store.drop_old()
        self.stats.syncs += 1
        self.stats.sync_seconds += time.monotonic() - start if not first else 0.0
        self.stats.sync_bytes = stored.size

    def look(self) -> None:
        """Check servers that run already, without weights; BadInput where one does not fit."""
        self.store.open()
        self._thread = LoopThread("fleet")

        async def check(member: FleetServer) -> None:
            await self._up(member)
            await self._check(member)

        async def work() -> None:
            await self._launch()
            self._refuse(await asyncio.gather(*(check(m) for m in self.members), return_exceptions=True))

        self._wait(work())

    def free(self) -> None:
        """Servers keep their memory: it is theirs by `gpu_memory_utilization`."""

    def restore(self) -> None:
        """Nothing to take back."""

    def statistics(self) -> FleetStatistics:
        """What was done so far, and what is under way."""
        return FleetStatistics(**vars(self.stats))

    def weights_digest(self) -> str:
        """A digest of the weights that the servers have."""
        assert self.current is not None, "servers have weights only after the first sync"
        return self.facts.digest(self.current)

    def close(self) -> None:
        """Stop the servers that this run started, and delete the weights on the storage."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        try:
            with suppress(Exception):
                thread.wait(self._end())
        finally:
            for member in self.members:
                if member.process is not None:
                    member.process.close()
            thread.close()
            self.store.clear()

    # ---- going away and coming back, as an endpoint does ----

    async def back(self, warn: Callable[[str], None]) -> bool:
        """Wait until a server is there again; False when none came back in time."""
        if self._ready():
            return True
        warn(f"no server is left; waiting up to {self.limits.wait_s:g} s for one")
        until = time.monotonic() + self.limits.wait_s
        while not self._ready() and time.monotonic() < until:
            await asyncio.sleep(PAUSE_S / 4)
        return bool(self._ready())

    @property
    def loss(self) -> str:
        """What to say when none came back."""
        return f"no vLLM server was back within {self.limits.wait_s:g} s (actor_rollout_ref.rollout.server_wait_s)"

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

    def _ready(self) -> list[FleetServer]:
        return [member for member in self.members if member.ready]

    async def _complete(self, prompt: list[int], sampling: Sampling) -> ServedTokens:
        """Ask one server after another until one gives the completion."""
        assert self.current is not None
        expected, problem = self.current.label, ""
        for attempt in range(TRIES):
            ready = self._ready()
            if not ready:
                break
            member = self._balance.choose(sampling.key, ready)
            self.stats.repeated += attempt > 0
            try:
                done = await self._ask(member, prompt, sampling, expected)
            except ServerFailed as error:
                problem = f"{member.url}: {error}"
                self._take_out(member, str(error))
                continue
            except RequestRefused as error:
                raise RuntimeError(f"{member.url}: {error}") from None
            self.stats.steps += 1
            self.stats.prompt_tokens += len(prompt)
            self.stats.computed_prompt_tokens += len(prompt)
            self.stats.sampled_tokens += len(done.ids)
            return done
        raise EndpointDown(f"no vLLM server gave a completion; the last: {problem}" if problem else "no server is left")

    async def _ask(self, member: FleetServer, prompt: list[int], sampling: Sampling, expected: str) -> ServedTokens:
        """Ask a server; when it is taken out meanwhile, stop waiting for it."""
        assert member.client is not None
        self._count(member, 1)
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
            self._count(member, -1)

    async def _in_turn(self, client: VllmClient, prompt: list[int], sampling: Sampling, expected: str) -> ServedTokens:
        """Ask with one of the connections; waiting for one is no time of the server's."""
        async with self._slots:
            return await client.complete(prompt, sampling, expected)

    def _count(self, member: FleetServer, change: int) -> None:
        member.busy += change
        now = time.monotonic()
        if change > 0 and self.stats.decoding == 0:
            self._since = now
        self.stats.decoding += change
        self.stats.peak_rows = max(self.stats.peak_rows, self.stats.decoding)
        if self.stats.decoding == 0:
            self.stats.decode_seconds += now - self._since

    # ---- servers ----

    async def _launch(self) -> None:
        """Start the servers of this run; they load while the weights are written."""
        most = connections(self.limits.rows * len(self.members))
        limits = httpx.Limits(max_connections=most + len(self.members), max_keepalive_connections=most)
        self._slots = asyncio.Semaphore(most)
        self._http = httpx.AsyncClient(limits=limits, timeout=None, trust_env=False)
        for member in self.members:
            await self._begin(member)

    async def _begin(self, member: FleetServer) -> None:
        """Start a member's process, if it is ours, and know where it answers."""
        if member.process is not None:
            await in_thread(member.process.start, {})
            member.url = member.process.url
        member.client = VllmClient(member.url, self._http, self.limits.request_s)

    async def _enter(self, stored: StoredWeights) -> None:
        """The first weights: every server must come up with them."""
        self.current = stored
        started = time.monotonic()
        done = 0

        async def enter(member: FleetServer) -> None:
            nonlocal done
            await self._up(member)
            await self._check(member)
            assert member.client is not None
            await member.client.take(stored)
            member.ready = True
            done += 1
            took = time.monotonic() - started
            self.say(f"{member.name} is ready at {member.url} after {took:.0f} s ({done} of {len(self.members)})")

        self._refuse(await asyncio.gather(*(enter(m) for m in self.members), return_exceptions=True))

    def _refuse(self, results: Sequence[BaseException | None]) -> None:
        """Say what is wrong with the first server that did not come up."""
        for member, error in zip(self.members, results, strict=True):
            if isinstance(error, ServerFailed | RequestRefused):
                raise BadInput(f"{member.name} at {member.url}: {error}") from None
            if isinstance(error, BaseException):
                raise error

    async def _give(self, stored: StoredWeights) -> None:
        """New weights for every server that is there; those that fail are taken out, and one must be left."""
        self.current = stored
        self._balance.forget()

        async def give(member: FleetServer) -> None:
            assert member.client is not None
            try:
                await member.client.take(stored)
                member.restarts = 0
            except (ServerFailed, RequestRefused) as error:
                self._take_out(member, str(error))

        await asyncio.gather(*(give(member) for member in self._ready()))
        if not self._ready():
            until = time.monotonic() + self.limits.wait_s
            while not self._ready() and time.monotonic() < until:
                await asyncio.sleep(PAUSE_S / 4)
        if not self._ready():
            raise ServersGone(f"{self.loss}; the same command goes on from the newest checkpoint")

    async def _up(self, member: FleetServer) -> None:
        """Wait until a server answers; a process that ended says why."""
        assert member.client is not None
        until = time.monotonic() + (self.limits.start_s if member.process is not None else LOOK_S)
        while not await member.client.healthy():
            if member.process is not None and (why := member.process.ended()) is not None:
                raise ServerFailed(f"it did not start: {why}")
            if time.monotonic() > until:
                key = "actor_rollout_ref.rollout.server_start_s"
                late = f"it was not ready within {self.limits.start_s:g} s ({key})"
                raise ServerFailed(late if member.process is not None else "nothing answers there")
            await asyncio.sleep(PAUSE_S / 4)

    async def _check(self, member: FleetServer) -> None:
        """Refuse a server of another model, and one that does not see the storage."""
        assert member.client is not None
        about = await member.client.about(str(self.store.probe))
        if about.get("sees") != self.store.token:
            raise RequestRefused(
                f"it does not see {self.store.folder}; weights go there by storage that learner and servers share: "
                "set actor_rollout_ref.rollout.server_storage"
            )
        if problem := self.facts.check(about):
            raise RequestRefused(problem)

    def _take_out(self, member: FleetServer, problem: str) -> None:
        """Ask a server no more until it is there again with the current weights."""
        if not member.ready:
            return
        member.ready = False
        member.lost.set()
        self.stats.taken_out += 1
        left = len(self._ready())
        self.warn(f"{member.name} at {member.url} was taken out ({problem}); {left} of {len(self.members)} are left")
        member.revival = asyncio.ensure_future(self._revive(member))

    async def _revive(self, member: FleetServer) -> None:
        """Start a server again, or wait for it, and let it in with the current weights."""
        while True:
            try:
                if member.process is not None:
                    if member.restarts >= RESTARTS:
                        self.warn(f"{member.name} was started {RESTARTS} times in vain and is left out")
                        return
                    member.restarts += 1
                    await in_thread(member.process.kill, {})
                    await self._begin(member)
                await self._up(member)
                await self._check(member)
                await self._catch_up(member)
                return
            except (ServerFailed, RequestRefused, BadInput, OSError) as error:
                if member.process is not None:
                    self.warn(f"{member.name} is not back: {error}")
                await asyncio.sleep(PAUSE_S)

    async def _catch_up(self, member: FleetServer) -> None:
        """Load the current weights, which may be others when that is done."""
        assert member.client is not None
        stored = None
        while stored is not self.current:
            stored = self.current
            assert stored is not None
            await member.client.take(stored)
        member.lost = asyncio.Event()
        member.ready = True
        self.warn(f"{member.name} is back at {member.url} with version {stored.version}" if stored else "")

    async def _end(self) -> None:
        for member in self.members:
            if member.revival is not None:
                member.revival.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await member.revival
            member.ready = False
        if self._http is not None:
            await self._http.aclose()


def outside(urls: Sequence[str]) -> list[FleetServer]:
    """Members that somebody else runs."""
    return [FleetServer(f"server {i}", url.rstrip("/")) for i, url in enumerate(urls)]


def started(processes: Sequence[ServerProcess]) -> list[FleetServer]:
    """Members that this run starts."""
    return [FleetServer(f"server {i}", "", process) for i, process in enumerate(processes)]


def connections(wanted: int) -> int:
    """Requests under way at once: those wanted, as far as this process may open files."""
    return max(8, min(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
