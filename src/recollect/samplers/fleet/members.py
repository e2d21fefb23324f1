"""The servers of a fleet: started, looked at, given weights, taken out when they fail, and let in again.

A server that fails is started again, or waited for, and it comes back only with the current weights. All of this runs
in the fleet's own event loop.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx

from recollect.runtime.threads import in_thread
from recollect.samplers.fleet.fleet_statistics import FleetStatistics
from recollect.samplers.fleet.server_process import ServerProcess
from recollect.samplers.fleet.vllm_client import LOOK_S, RequestRefused, ServerFailed, VllmClient
from recollect.samplers.fleet.weight_version import WeightVersion, WeightWay
from recollect.types import BadInput

TAKEN = "ddress already in use"  # what a server says whose port somebody else has got first
RESTARTS = 5  # of one server between two versions
PORTS = 3  # that a server is given at its first start
PAUSE_S = 1.0  # between looks at a server that is not there yet


class ServersGone(RuntimeError):
    """No server came back in time; the run can go on later from its newest checkpoint."""


@dataclass(frozen=True)
class FleetLimits:
    """How long to wait for servers."""

    start_s: float = 600.0  # until a server has loaded its model
    request_s: float = 600.0  # one completion
    wait_s: float = 300.0  # for any server to come back when none is left
    rows: int = 256  # sequences that a server decodes at once

    @property
    def loss(self) -> str:
        """What to say when no server came back."""
        return f"no vLLM server was back within {self.wait_s:g} s (actor_rollout_ref.rollout.server_wait_s)"


@dataclass(eq=False)
class FleetServer:
    """A server of the fleet."""

    name: str
    url: str
    process: ServerProcess | None = None  # None: somebody else's, which is waited for and not started
    client: VllmClient | None = None
    sleeps: bool = False  # it has GPUs of the learner's, and gives their memory back during updates
    ready: bool = False  # it has the current weights and is asked
    asleep: bool = False
    held: bool = False  # it has no process, and gets none while the others sleep
    busy: int = 0
    restarts: int = 0
    lost: asyncio.Event = field(default_factory=asyncio.Event)  # set when it is taken out
    revival: asyncio.Task[None] | None = None


class Members:
    """The servers, and which of them are there."""

    def __init__(
        self,
        servers: Sequence[FleetServer],
        way: WeightWay,
        check: Callable[[dict[str, Any]], str],
        limits: FleetLimits,
        stats: FleetStatistics,
        say: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        """``check`` says what is wrong with what a server says of itself; empty: nothing."""
        self.servers, self.way, self.check, self.limits = list(servers), way, check, limits
        self.stats, self.say, self.warn = stats, say, warn
        self.current: WeightVersion | None = None
        self.slots = asyncio.Semaphore(1)  # one for each connection
        self.awake = asyncio.Event()  # not set: servers that sleep must have no memory of a GPU
        self.awake.set()
        self._http: Any = None

    def ready(self) -> list[FleetServer]:
        """Those that have the current weights."""
        return [member for member in self.servers if member.ready]

    async def wait(self) -> bool:
        """Wait until one is there; False when none came back in time. It runs in any event loop."""
        until = time.monotonic() + self.limits.wait_s
        while not self.ready() and time.monotonic() < until:
            await asyncio.sleep(PAUSE_S / 4)
        return bool(self.ready())

    async def launch(self) -> None:
        """Start the servers of this run; they load while the weights are written."""
        most = connections(self.limits.rows * len(self.servers))
        limits = httpx.Limits(max_connections=most + len(self.servers), max_keepalive_connections=most)
        self.slots = asyncio.Semaphore(most)
        self._http = httpx.AsyncClient(limits=limits, timeout=None, trust_env=False)
        for member in self.servers:
            await self._begin(member)

    async def look(self) -> None:
        """Check servers that run already, without weights; BadInput where one does not fit."""

        async def look(member: FleetServer) -> None:
            await self._up(member)
            await self._check(member)

        await self.launch()
        self._refuse(await asyncio.gather(*(look(m) for m in self.servers), return_exceptions=True))

    async def enter(self, weights: WeightVersion) -> None:
        """The first weights: every server must come up and take them."""
        self.current = weights
        started = time.monotonic()
        done = 0

        async def up(member: FleetServer) -> None:
            nonlocal done
            await self._up_anew(member)
            await self._check(member)
            done += 1
            took = time.monotonic() - started
            self.say(f"{member.name} is up at {member.url} after {took:.0f} s ({done} of {len(self.servers)})")

        self._refuse(await asyncio.gather(*(up(m) for m in self.servers), return_exceptions=True))
        self._refuse(await self._give(self.servers, weights))
        for member in self.servers:
            member.ready = True

    def _refuse(self, results: Sequence[BaseException | None]) -> None:
        """Say what is wrong with the first server that did not come up."""
        for member, error in zip(self.servers, results, strict=True):
            if isinstance(error, ServerFailed | RequestRefused):
                raise BadInput(f"{member.name} at {member.url}: {error}") from None
            if isinstance(error, BaseException):
                raise error

    async def give(self, weights: WeightVersion) -> None:
        """New weights for every server that is there; those that fail are taken out, and one must be left."""
        self.current = weights
        there = self.ready()
        for member, problem in zip(there, await self._give(there, weights), strict=True):
            if isinstance(problem, ServerFailed | RequestRefused):
                self.take_out(member, str(problem))
            elif problem is not None:
                raise problem
            else:
                member.restarts = 0
        if not await self.wait():
            raise ServersGone(f"{self.limits.loss}; the same command goes on from the newest checkpoint")

    async def _give(self, there: Sequence[FleetServer], weights: WeightVersion) -> list[BaseException | None]:
        clients = [member.client for member in there]
        assert None not in clients
        return await self.way.give(clients, weights)  # type: ignore[arg-type]

    def take_out(self, member: FleetServer, problem: str) -> None:
        """Ask a server no more until it is there again with the current weights."""
        if not (member.ready or member.asleep):
            return
        member.ready = member.asleep = False
        member.lost.set()
        self.stats.taken_out += 1
        left = len(self.ready())
        self.warn(f"{member.name} at {member.url} was taken out ({problem}); {left} of {len(self.servers)} are left")
        member.revival = asyncio.ensure_future(self._revive(member))

    async def end(self) -> None:
        """Ask none of them any more."""
        for member in self.servers:
            if member.revival is not None:
                member.revival.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await member.revival
            member.ready = False
        if self._http is not None:
            await self._http.aclose()

    def close(self) -> None:
        """Stop those that this run started."""
        for member in self.servers:
            if member.process is not None:
                member.process.close()

    async def _begin(self, member: FleetServer) -> None:
        """Start a member's process, if it is ours, and know where it answers."""
        if member.process is not None:
            await in_thread(member.process.start, {})
            member.url = member.process.url
        member.client = VllmClient(member.url, self._http, self.limits.request_s)

    async def _up(self, member: FleetServer) -> None:
        """Wait until a server answers; a process that ended says why."""
        assert member.client is not None
        until = time.monotonic() + (self.limits.start_s if member.process is not None else LOOK_S)
        while not await member.client.healthy():
            if member.process is not None and (why := await in_thread(member.process.ended, {})) is not None:
                raise ServerFailed(f"it did not start: {why}")
            if time.monotonic() > until:
                key = "actor_rollout_ref.rollout.server_start_s"
                late = f"it was not ready within {self.limits.start_s:g} s ({key})"
                raise ServerFailed(late if member.process is not None else "nothing answers there")
            await asyncio.sleep(PAUSE_S / 4)

    async def _up_anew(self, member: FleetServer) -> None:
        """Wait until a server answers; one whose port was taken is started again with another."""
        for left in reversed(range(PORTS)):
            try:
                return await self._up(member)
            except ServerFailed as error:
                if member.process is None or not left or TAKEN not in str(error):
                    raise
                self.warn(f"{member.name} at {member.url} starts again with another port: {error}")
                await self._begin(member)

    async def _check(self, member: FleetServer) -> None:
        """Refuse a server of another model, and one that does not see the storage."""
        assert member.client is not None
        about = await member.client.about(self.way.probe)
        try:
            problem = self.way.refuse(about) or self.check(about)
        except (TypeError, ValueError, AttributeError):
            problem = "what it says of itself cannot be read"
        if problem:
            raise RequestRefused(problem)

    async def _revive(self, member: FleetServer) -> None:
        """Start a server again, or wait for it, and let it in with the current weights."""
        while True:
            try:
                if member.process is not None:
                    await in_thread(member.process.kill, {})
                    if member.restarts >= RESTARTS:
                        self.warn(f"{member.name} was started {RESTARTS} times in vain and is left out")
                        return
                    await self._room(member)
                    member.restarts += 1
                    await self._begin(member)
                await self._up(member)
                await self._check(member)
                await self._catch_up(member)
                return
            except (ServerFailed, RequestRefused, BadInput, OSError) as error:
                if member.process is not None:
                    self.warn(f"{member.name} is not back: {error}")
                await asyncio.sleep(PAUSE_S)

    async def _room(self, member: FleetServer) -> None:
        """Wait while the learner has the memory that a server needs."""
        if member.sleeps:
            member.held = True
            await self.awake.wait()
            member.held = False

    async def _catch_up(self, member: FleetServer) -> None:
        """Load the current weights, which may be others when that is done."""
        weights = None
        while weights is not self.current:
            weights = self.current
            assert weights is not None
            for problem in await self._give([member], weights):
                if problem is not None:
                    raise problem
        member.lost = asyncio.Event()
        member.ready = True
        self.warn(f"{member.name} is back at {member.url} with version {weights.version}" if weights else "")


def outside(urls: Sequence[str]) -> list[FleetServer]:
    """Members that somebody else runs."""
    return [FleetServer(f"server {i}", url.rstrip("/")) for i, url in enumerate(urls)]


def started(processes: Sequence[ServerProcess], sleeps: Sequence[bool]) -> list[FleetServer]:
    """Members that this run starts, and which of them share the learner's GPUs."""
    both = zip(processes, sleeps, strict=True)
    return [FleetServer(f"server {i}", "", process, sleeps=shares) for i, (process, shares) in enumerate(both)]


def connections(wanted: int) -> int:
    """Requests under way at once: those wanted, as far as this process may open files."""
    return max(8, min(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
