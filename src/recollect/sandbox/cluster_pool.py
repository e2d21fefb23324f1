"""Sessions of sandboxes on the nodes of a Ray cluster, used as those of `pool.py`.

There is a host on every node that has a CPU to spare. A session is opened where there are fewest for each CPU.
One whose host is lost has lost its state: the attempt that it belongs to is made again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from recollect import __version__
from recollect.config import Sandbox
from recollect.dist.ray_calls import SHARE, last_line
from recollect.dist.ray_cluster import NodeFacts, RayCluster
from recollect.policies.endpoint import EndpointDown
from recollect.runtime.threads import Slots
from recollect.sandbox.program_host import HostReady, ProgramHost, Ran
from recollect.sandbox.sandbox_session import SLACK_S, ProgramResult, SandboxError, SandboxSession
from recollect.types import BadInput

READY_S = 120.0  # for the first host
OPEN_S = 60.0  # for a session
END_S, LATE_S = 10.0, 2.0
LOOK_S = 0.5
CALLS = 1000  # to one host at a time
NO_ROOM = "no node of the Ray cluster has had half a CPU to spare for programs for {:g} s"


class HostLost(EndpointDown):
    """The node with an attempt's sandbox is gone."""


@dataclass(eq=False)
class Host:
    """One host."""

    node: NodeFacts
    actor: Any
    starting: Any  # its answer to `ready`
    ready: bool = False
    lost: bool = False
    sessions: int = 0


class ClusterPool:
    """Opens sessions, at most ``sandbox.max_sessions`` at once; usable from one event loop after another."""

    def __init__(self, cfg: Sandbox, cluster: RayCluster, warn: Callable[[str], None]) -> None:
        self.cfg, self.cluster, self.warn = cfg, cluster, warn
        self.hosts: dict[str, Host] = {}  # by the name of their node
        self._free = Slots(cfg.max_sessions)
        self._closed = False

    def start(self) -> None:
        """Have a host ready. BadInput when programs cannot be isolated on the nodes, or there is no room for them."""
        until = time.monotonic() + READY_S
        while self._least() is None:
            if time.monotonic() > until:
                raise BadInput(f"agent.run_on=cluster: {NO_ROOM.format(READY_S)}")
            time.sleep(LOOK_S)

    @asynccontextmanager
    async def session(self) -> AsyncIterator[SandboxSession]:
        """A new empty session, ended with everything in it on the way out."""
        async with self._free.one():
            host = await self._there(READY_S)
            host.sessions += 1
            try:
                session = ClusterSession(self.cfg, host, await ask(host, "open", seconds=OPEN_S))
                try:
                    yield session
                finally:
                    session.close()
            finally:
                host.sessions -= 1

    async def run(self, code: str, stdin: str = "", timeout: float | None = None) -> ProgramResult:
        """Run one Python program in a session of its own."""
        async with self.session() as session:
            return await session.program(code, stdin, timeout)

    async def wait(self, seconds: float) -> bool:
        """Wait until a host is there; False when none came in time."""
        with suppress(HostLost):
            await self._there(seconds)
            return True
        return False

    async def _there(self, seconds: float) -> Host:
        """The host with the fewest sessions; waited for while there is none."""
        until = time.monotonic() + seconds
        while (found := self._least()) is None:
            if time.monotonic() > until:
                raise HostLost(NO_ROOM.format(seconds))
            await asyncio.sleep(LOOK_S / 5)
        return found

    def _least(self) -> Host | None:
        """The host with the fewest sessions; hosts are started on nodes that have none."""
        if self._closed:
            raise RuntimeError("the sandbox is closed")
        kept = {name: host for name, host in self.hosts.items() if not host.lost}
        if len(kept) < len(self.hosts) or not kept:
            self.hosts = kept
            for node in self.cluster.nodes():
                if node.cpus > 0 and node.name not in self.hosts:
                    self.hosts[node.name] = self._started(node)
        for host in self.hosts.values():
            if not (host.ready or host.lost):
                self._look(host)
        there = [host for host in self.hosts.values() if host.ready]
        return min(there, key=lambda host: host.sessions / host.node.cpus, default=None)

    def _look(self, host: Host) -> None:
        """See whether a host that was started is ready."""
        import ray
        from ray.exceptions import RayError

        if not ray.wait([host.starting], timeout=0)[0]:
            return
        try:
            said: HostReady = ray.get(host.starting, timeout=0)
        except RayError:
            host.lost = True
            return
        if said.recollect != __version__:
            raise BadInput(f"the node {host.node.address} has recollect {said.recollect}, and here is {__version__}")
        if said.refused:
            raise BadInput(f"the node {host.node.address}: {said.refused}")
        if said.warning:
            self.warn(f"{host.node.address}: {said.warning}")
        host.ready = True

    def _started(self, node: NodeFacts) -> Host:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(node.name, soft=False)
        made = ray.remote(ProgramHost).options(num_cpus=SHARE, max_concurrency=CALLS, scheduling_strategy=there)
        actor = made.remote(self.cfg)
        return Host(node, actor, actor.ready.remote())

    def close(self) -> None:
        """End everything."""
        import ray

        self._closed = True
        if not ray.is_initialized():
            return
        for ready, seconds in ((True, END_S), (False, LATE_S)):  # one that is not ready may never be
            there = [host for host in self.hosts.values() if host.ready == ready and not host.lost]
            if ending := [host.actor.close.remote() for host in there]:
                ray.wait(ending, num_returns=len(ending), timeout=seconds)
        for host in self.hosts.values():
            ray.kill(host.actor)
        self.hosts = {}


class ClusterSession(SandboxSession):
    """One trajectory's sandbox on a node."""

    def __init__(self, cfg: Sandbox, host: Host, number: int) -> None:
        self._cfg, self._host, self._number = cfg, host, number
        self._turn = asyncio.Lock()
        self._closed = self._ended = False

    async def ask(self, request: dict[str, Any], timeout: float | None) -> ProgramResult:
        """Run a request there. `HostLost` when the node is gone."""
        seconds = self._cfg.timeout_s if timeout is None else timeout
        async with self._turn:
            if self._closed:
                raise SandboxError("the sandbox is closed")
            try:
                ran: Ran = await ask(self._host, "ask", self._number, request, timeout, seconds=seconds + 3 * SLACK_S)
            except BaseException:
                self.close()
                raise
            self._closed = self._closed or ran.closed
            if ran.result is None:
                raise SandboxError(ran.broken)
            return ran.result

    def close(self) -> None:
        """End the session with everything that runs in it."""
        import ray

        self._closed = True
        if not (self._ended or self._host.lost) and ray.is_initialized():
            self._host.actor.end.remote(self._number)
        self._ended = True


async def ask(host: Host, method: str, *given: Any, seconds: float) -> Any:
    """Call a method of a host."""
    from ray.exceptions import ActorDiedError, RayActorError, RayError, RayTaskError

    try:
        async with asyncio.timeout(seconds):
            return await getattr(host.actor, method).remote(*given)
    except RayTaskError as error:
        raise SandboxError(f"{host.node.address}: {last_line(error.cause)}") from None
    except (RayError, TimeoutError) as error:
        if isinstance(error, RayActorError | ActorDiedError):
            host.ready, host.lost = False, True
        why = last_line(error) if isinstance(error, RayError) else f"no answer within {seconds:g} s"
        raise HostLost(f"the sandbox on {host.node.address} is lost: {why}") from None
