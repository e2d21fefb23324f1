"""What a run has on a node of the cluster: it starts the run's processes there, and they end with it.

It is a Ray actor, one on each node of the run. It knows no more than `KeptProcess` does; Ray ends it when the driver is
gone, however that ended, and starts it again elsewhere when its node is lost.
"""

from __future__ import annotations

import os
import platform
import secrets
import socket
import threading
from dataclasses import dataclass, replace
from pathlib import Path

from recollect import __version__
from recollect.dist.machine import KeptProcess, Launcher

FIRST = 100  # characters of a file that are told


@dataclass(frozen=True)
class HostFacts:
    """What a node is."""

    life: str  # another one after each start
    address: str
    name: str
    recollect: str  # version
    python: str
    cores: int
    memory: int  # bytes
    gpus: tuple[str, ...]  # those that Ray has given to the run


@dataclass(frozen=True)
class HostedProcess:
    """A process in a slot of a host."""

    life: str
    slot: str
    group: int
    port: int


class NodeHost:
    """The processes of a run on one node."""

    def __init__(self, address: str = "") -> None:
        """``address`` is where this node is reached; empty: as Ray knows it."""
        self.life, self.address = secrets.token_hex(8), address or _address()
        self.slots: dict[str, KeptProcess] = {}
        self.lock = threading.Lock()

    def about(self) -> HostFacts:
        """What this node is."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        gpus = tuple(filter(None, os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")))
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        python = platform.python_version()
        return HostFacts(self.life, self.address, socket.gethostname(), __version__, python, cores, memory, gpus)

    def reads(self, path: str) -> str:
        """What a file begins with here; empty: it is not there."""
        return first_of(path)

    def has(self, path: str) -> bool:
        """Whether a file or folder is here."""
        return is_there(path)

    def start(self, slot: str, launcher: Launcher, log: Path | None) -> HostedProcess:
        """Start a process in a slot; what was in it ends first."""
        with self.lock:
            old = self.slots.pop(slot, None)
        if old is not None:
            old.kill()
        made = launcher(self.address)
        plain = {name: value for name, value in made.environment.items() if not name.startswith("RAY_")}
        process = KeptProcess(replace(made, environment=plain), log, self.address, apart=True)
        with self.lock:
            self.slots[slot] = process
        return HostedProcess(self.life, slot, process.group, process.port)

    def look(self, held: HostedProcess) -> str | None:
        """How a process ended, and what it said last; None while it runs."""
        process = self._of(held)
        if process is None:
            return "its node was lost, or another process is in its place"
        said = process.ended()
        if said is None or process.code is None:
            return said
        how = f"killed by signal {-process.code}" if process.code < 0 else f"exit {process.code}"
        return f"{how}: {said}"

    def kill(self, held: HostedProcess) -> None:
        """End a process at once."""
        if (process := self._of(held)) is not None:
            process.kill()

    def stop(self, held: HostedProcess) -> None:
        """End a process in order."""
        if (process := self._of(held)) is not None:
            process.stop()

    def end(self) -> None:
        """End all of them."""
        with self.lock:
            found, self.slots = list(self.slots.values()), {}
        workers = [threading.Thread(target=process.stop) for process in found]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def _of(self, held: HostedProcess) -> KeptProcess | None:
        with self.lock:
            process = self.slots.get(held.slot)
        same = process is not None and held.life == self.life and process.group == held.group
        return process if same else None


def first_of(path: str) -> str:
    """What a file begins with; empty: it is not there."""
    try:
        with Path(path).open(errors="replace") as file:
            return file.read(FIRST)
    except OSError:
        return ""


def is_there(path: str) -> bool:
    """Whether there is such a file or folder."""
    return Path(path).exists()


def _address() -> str:
    import ray

    return str(ray.util.get_node_ip_address())
