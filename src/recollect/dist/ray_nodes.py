"""The nodes of a Ray cluster that a run has: one placement group, and in each of its bundles a host for processes.

Ray places, watches nodes and replaces lost ones where it has room. Everything else is done by the processes themselves,
which are started here as they are on one machine. Every call to a host has a deadline.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from recollect import __version__
from recollect.dist.machine import LOOPBACK, Launcher, NodeLost
from recollect.dist.node_host import HostedProcess, HostFacts, NodeHost, first_of, is_there
from recollect.dist.ray_cluster import NodeFacts, RayCluster
from recollect.dist.ray_room import Bundle
from recollect.types import BadInput

ASK_S = 5.0  # for a host to answer
START_S = 90.0  # for a host to start a process
STOP_S = 40.0  # for a host to end what it has
PAUSE_S = 0.5
LATE_S = 3.0  # after which people are told what is waited for
SILENT_S = 60.0  # after which what a silent node has is given up
CALLS = 32  # to one host at a time


class NodeAway(Exception):
    """A host has not answered; it may do so later, or another one in its place."""


class NodeFiles(Protocol):
    """A node whose files can be looked at."""

    @property
    def name(self) -> str:
        """With its address, for messages."""

    def reads(self, path: Path) -> str:
        """What a file begins with there; empty: it is not there."""

    def has(self, path: Path) -> bool:
        """Whether a file or folder is there."""


class SeenNode:
    """A node of the cluster that a run has not been given: one may look at its files."""

    def __init__(self, title: str, facts: NodeFacts) -> None:
        self.facts, self.title = facts, title

    @property
    def name(self) -> str:
        return f"{self.title} ({self.facts.address})"

    def reads(self, path: Path) -> str:
        return str(self.ask(first_of, str(path)))

    def has(self, path: Path) -> bool:
        return bool(self.ask(is_there, str(path)))

    def ask(self, function: Callable[[Any], Any], given: Any) -> Any:
        """Call a function there."""
        import ray
        from ray.exceptions import RayError
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        there = NodeAffinitySchedulingStrategy(self.facts.name, soft=False)
        asking = ray.remote(function).options(num_cpus=0, max_retries=0, scheduling_strategy=there)
        try:
            return ray.get(asking.remote(given), timeout=START_S)
        except RayError as error:
            raise BadInput(f"{self.name} cannot be asked: {_last_line(error)}") from None


class RayNode:
    """A node of the run: a machine where processes can be started, whichever node Ray takes for it."""

    def __init__(self, actor: Any, title: str, wait_s: float, say: Callable[[str], None]) -> None:
        self.actor, self.title, self.wait_s, self.say = actor, title, wait_s, say
        self.known: HostFacts | None = None
        self.group: RayNodes | None = None  # lasts as long as one of its nodes is in use
        self.silent = False

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"{self.title} ({self.known.address})" if self.known is not None else self.title

    def reads(self, path: Path) -> str:
        """What a file begins with there; empty: it is not there."""
        return str(self._look("reads", path))

    def has(self, path: Path) -> bool:
        """Whether a file or folder is there."""
        return bool(self._look("has", path))

    def _look(self, method: str, path: Path) -> Any:
        try:
            return self.ask(method, str(path), seconds=START_S)
        except (NodeAway, OSError) as error:
            raise BadInput(f"{self.name} cannot be asked: {error}") from None

    def ask(self, method: str, *given: Any, seconds: float = ASK_S) -> Any:
        """Call a method of the host. NodeAway where it does not answer, OSError for what goes wrong there."""
        import ray
        from ray.exceptions import ActorDiedError, RayError, RayTaskError

        if not ray.is_initialized():
            raise NodeAway("the run has left the cluster")
        try:
            found = ray.get(getattr(self.actor, method).remote(*given), timeout=seconds)
        except RayTaskError as error:
            raise OSError(f"{self.title}: {_last_line(error.cause)}") from None
        except ActorDiedError as error:
            raise NodeLost(f"{self.title} is lost for good: {_last_line(error)}") from None
        except RayError as error:
            self.silent = True
            raise NodeAway(_last_line(error)) from None
        self.silent = False
        return found

    def tell(self, method: str, *given: Any) -> None:
        """Call a method and do not wait."""
        import ray

        if ray.is_initialized():
            getattr(self.actor, method).remote(*given)

    def facts(self, until: float | None = None) -> HostFacts:
        """What the node is; waited for while Ray looks for one."""
        began, told = time.monotonic(), False
        until = began + self.wait_s if until is None else until
        while True:
            try:
                found: HostFacts = self.ask("about", seconds=max(PAUSE_S, min(ASK_S, until - time.monotonic())))
                break
            except NodeAway as error:
                if time.monotonic() > until:
                    line = f"{self.title} has not answered for {self.wait_s:g} s (trainer.node_wait_s): {error}"
                    raise NodeLost(f"{line}; see `ray status`") from None
                if not told and time.monotonic() > began + LATE_S:
                    self.say(f"{self.title} does not answer; waiting {self.wait_s:g} s for it or a node in its place")
                    told = True
                time.sleep(PAUSE_S)
        if self.known is not None and self.known.life != found.life:
            self.say(f"{self.title} is at {found.address} ({found.name}) now")
        self.known = found
        return found

    def start(self, slot: str, launcher: Launcher, log: Path | None) -> RemoteProcess:
        """Start a process there; when the node is lost meanwhile, on the one that comes in its place."""
        until = time.monotonic() + self.wait_s
        while True:
            facts = self.facts(until)
            try:
                return RemoteProcess(self, self.ask("start", slot, launcher, log, seconds=START_S), facts.address)
            except NodeAway as error:
                if time.monotonic() > until:
                    raise NodeLost(f"{self.title} could start nothing: {error}") from None


class RemoteProcess:
    """A process on a node."""

    def __init__(self, node: RayNode, held: HostedProcess, address: str) -> None:
        self.node, self.held, self.address = node, held, address
        self.port, self.group = held.port, held.group
        self.silent: float | None = None  # since when its node does not answer

    def ended(self) -> str | None:
        """How it ended and what it said last; None while it runs, or while its node is silent for a moment."""
        try:
            found: str | None = self.node.ask("look", self.held)
        except (NodeLost, OSError) as error:
            return str(error)
        except NodeAway:
            now = time.monotonic()
            self.silent = now if self.silent is None else self.silent
            return f"its node has been silent for {now - self.silent:.0f} s" if now - self.silent > SILENT_S else None
        self.silent = None
        return found

    def kill(self) -> None:
        """End it at once; nobody waits for that."""
        self.node.tell("kill", self.held)

    def stop(self) -> None:
        """End it in order."""
        try:
            self.node.ask("stop", self.held, seconds=PAUSE_S if self.node.silent else STOP_S)
        except (NodeAway, NodeLost, OSError):
            pass  # a node that is lost has ended it


class RayNodes:
    """The nodes of a run, in the order of their bundles; each of them is another node of the cluster."""

    def __init__(
        self, cluster: RayCluster, bundles: Sequence[Bundle], wait_s: float, say: Callable[[str], None]
    ) -> None:
        import ray
        from ray.util.placement_group import placement_group
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        self.cluster, self.here = cluster, cluster.here
        group = placement_group([dict(bundle.resources) for bundle in bundles], strategy="STRICT_SPREAD")
        hosts: list[Any] = []
        self._end = weakref.finalize(self, end, cluster, group, hosts)
        try:
            if not group.wait(min(LATE_S, wait_s)):
                say(f"waiting {wait_s:g} s for Ray to give {len(bundles)} nodes")
                if not group.wait(wait_s):
                    wanted = "; ".join(f"{bundle.title}: {words(bundle.resources)}" for bundle in bundles)
                    raise BadInput(
                        f"Ray had no room for the run within {wait_s:g} s (trainer.node_wait_s): {wanted}; "
                        "`ray status` says who has it"
                    )
            local = LOOPBACK if self.here == LOOPBACK else ""
            for number, bundle in enumerate(bundles):
                made = ray.remote(NodeHost).options(
                    num_cpus=bundle.resources.get("CPU", 0),
                    num_gpus=bundle.resources.get("GPU", 0),
                    max_restarts=-1,
                    max_concurrency=CALLS,
                    scheduling_strategy=PlacementGroupSchedulingStrategy(group, number),
                )
                hosts.append(made.remote(local))
            self.nodes = [
                RayNode(host, bundle.title, wait_s, say) for host, bundle in zip(hosts, bundles, strict=True)
            ]
            for node in self.nodes:
                node.group = self
                _refuse_other(node)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End what the run has on the nodes and give them back."""
        self._end()


def end(cluster: RayCluster, group: Any, hosts: Sequence[Any]) -> None:
    """End the hosts with all that they have, remove the placement group, leave the cluster."""
    import ray
    from ray.exceptions import RayError

    if not ray.is_initialized():
        return
    try:
        ray.wait([host.end.remote() for host in hosts], num_returns=len(hosts), timeout=STOP_S) if hosts else None
        ray.util.remove_placement_group(group)
    except RayError:
        pass  # a cluster that is gone has ended them
    cluster.close()


def _refuse_other(node: RayNode) -> None:
    """Refuse a node with another version of this package."""
    try:
        facts = node.facts()
    except OSError as error:
        raise BadInput(str(error)) from None
    if facts.recollect != __version__:
        raise BadInput(f"{node.title} ({facts.address}) has recollect {facts.recollect}, and here is {__version__}")


def words(resources: Mapping[str, float]) -> str:
    """Resources for people."""
    return ", ".join(f"{count:g} {name}s" for name, count in resources.items() if name in ("CPU", "GPU"))


def _last_line(error: object) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
