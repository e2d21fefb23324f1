"""A vLLM server that this run starts, in a process group that ends with the run."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from recollect.dist.machine import Launcher, Machine, OwnMachine, Running
from recollect.files.output import writing

INSIDE = Path(__file__).parent / "inside"  # what runs there and needs no recollect


class ServerProcess(Protocol):
    """A server that can be started again, wherever it runs."""

    url: str

    def start(self) -> None: ...

    def ended(self) -> str | None:
        """Why it is not running; None while it is."""

    def kill(self) -> None:
        """End it at once."""

    def close(self) -> None:
        """End it in order; it is not started again."""


class OwnServer:
    """A server of this run. ``launcher`` says what to start, on the machine where it will be."""

    def __init__(self, launcher: Launcher, log: Path, machine: Machine | None = None) -> None:
        self.launcher, self.log = launcher, log
        self.machine: Machine = OwnMachine() if machine is None else machine
        self.url = ""
        self.running: Running | None = None
        self.closed = False

    @property
    def group(self) -> int:
        """The process group of the server; 0: there is none."""
        return 0 if self.running is None else self.running.group

    def start(self) -> None:
        """Start it; it is ready when it says so at /health."""
        self.kill()
        with writing(self.log):
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self.log.write_text("")  # of the last start alone, so that it stays small
        self.running = self.machine.start(self.log.stem, self.launcher, self.log)
        self.url = f"http://{self.running.address}:{self.running.port}"
        if self.closed:  # while it was being started
            self._stop()

    def ended(self) -> str | None:
        """Why it is not running, from the end of its log."""
        return "it was not started" if self.running is None else self.running.ended()

    def kill(self) -> None:
        """End its processes at once."""
        running, self.running = self.running, None
        if running is not None:
            running.kill()

    def close(self) -> None:
        """End it; it is not started again."""
        self.closed = True
        self._stop()

    def _stop(self) -> None:
        running, self.running = self.running, None
        if running is not None:
            running.stop()
