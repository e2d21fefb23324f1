"""A rank as the driver has it: its process, wherever that is, and the connection to it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Protocol

from recollect.dist.channel import Channel
from recollect.dist.joining import TOKEN, Door
from recollect.dist.machine import Launch, Machine, Running
from recollect.dist.place import RankPlace

END_S = 5.0


class RankProcess(Protocol):
    """A rank's process."""

    name: str
    pid: int  # on its machine

    def ended(self) -> str | None:
        """How it ended, and what it said last; None while it runs, or while that is not known."""

    def kill(self) -> None:
        """End it."""

    def close(self) -> None:
        """Wait until it has ended, and forget it."""


class LocalProcess:
    """A process of this machine; ``said`` is what it wrote to its standard error."""

    def __init__(self, process: subprocess.Popen[bytes], said: IO[bytes]) -> None:
        self.process, self.said, self.pid = process, said, process.pid
        self.name = f"process {self.pid}"

    def ended(self) -> str | None:
        """Its exit status in words, and the last line that it wrote."""
        code = self.process.poll()
        if code is None:
            return None
        how = f"killed by signal {-code}" if code < 0 else f"exit {code}"
        return ": ".join(part for part in (how, self._last_words()) if part)

    def _last_words(self) -> str:
        self.said.seek(0, os.SEEK_END)
        self.said.seek(max(0, self.said.tell() - 4096))
        lines = [line.strip() for line in self.said.read().decode(errors="replace").splitlines() if line.strip()]
        return lines[-1][-200:] if lines else ""

    def kill(self) -> None:
        self.process.kill()

    def close(self) -> None:
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(END_S)
        self.said.close()


class NodeProcess:
    """A process on a node."""

    def __init__(self, running: Running) -> None:
        self.running, self.pid = running, running.group
        self.name = f"process {self.pid} on {running.address}"

    def ended(self) -> str | None:
        """How it ended, as the node says it."""
        return self.running.ended()

    def kill(self) -> None:
        self.running.kill()

    def close(self) -> None:
        self.running.stop()


@dataclass
class RankMember:
    """One rank, and what was last heard of it."""

    place: RankPlace
    process: RankProcess
    channel: Channel
    heard: float = 0.0
    passes: int = 0

    @property
    def rank(self) -> int:
        """Its number."""
        return self.place.rank

    @property
    def name(self) -> str:
        """How messages call it."""
        return f"rank {self.rank} ({self.process.name})"


def start_here(place: RankPlace) -> RankMember:
    """Start a rank's process, which has a session of its own and hears nothing of the terminal."""
    mine, theirs = socket.socketpair()
    said = tempfile.TemporaryFile()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "recollect.dist.rank_process", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            env=environment(place.threads),
        )
    return RankMember(place, LocalProcess(process, said), Channel(mine))


def start_there(
    places: Sequence[RankPlace], machines: Sequence[Machine], here: str, wait_s: float
) -> Sequence[RankMember]:
    """Start ranks on nodes, as many on each. They come to a door of this process, which is at ``here``."""
    door = Door(here)
    started: list[tuple[RankPlace, NodeProcess]] = []
    try:
        for place in places:
            launcher = partial(launch, door.at, door.token(place.rank), place.threads, os.getcwd())
            machine = machines[place.rank * len(machines) // place.size]
            running = machine.start(f"rank-{place.rank}", launcher, None)
            started.append((replace(place, address=running.address), NodeProcess(running)))

        def look() -> None:
            for place, process in started:
                if place.rank in door.tokens.values() and (how := process.ended()) is not None:
                    raise ChildProcessError(f"rank {place.rank} ({process.name}) did not start: {how}")

        came = door.admit(wait_s, look)
    except BaseException:
        for _, process in started:
            process.kill()
        raise
    finally:
        door.close()
    meeting = f"tcp://{started[0][0].address}:{came[0][1]}"
    return [RankMember(replace(place, meeting=meeting), process, came[place.rank][0]) for place, process in started]


def launch(door: str, token: str, threads: int, folder: str, address: str) -> Launch:
    """What to start where the rank will be."""
    command = (sys.executable, "-m", "recollect.dist.rank_process", "JOIN", door, address)
    return Launch(command, environment(threads) | {TOKEN: token}, folder=folder)


def environment(threads: int) -> dict[str, str]:
    """The environment of this process for another one of this package."""
    found = dict(os.environ, OMP_NUM_THREADS=str(threads))
    folder = str(Path(__file__).resolve().parents[2])  # the package, however this process found it
    paths = [folder, *found.get("PYTHONPATH", "").split(os.pathsep)]
    return found | {"PYTHONPATH": os.pathsep.join(p for p in paths if p)}
