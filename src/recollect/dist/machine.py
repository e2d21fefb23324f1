"""Where processes of a run are started: on this machine or on a node of a Ray cluster, in the same way."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from recollect.runtime.error_text import shortened
from recollect.types import BadInput

LOOPBACK = "127.0.0.1"
KEEPER = Path(__file__).parent / "process_keeper.py"
STOP_S = 12.0  # the keeper asks, waits and ends
TELLS_S = 60.0  # until the keeper has said which group it keeps
LAST_WORDS = 20_000  # bytes at the end of a log that are searched for a reason
WHY = ("Error: ", "error: ", "No module named")
AFTER = "Engine core initialization failed"  # said after the reason


class NodeLost(BadInput):
    """A node does not answer, and none came in its place."""


@dataclass(frozen=True)
class Launch:
    """What to start."""

    command: tuple[str, ...]
    environment: dict[str, str]
    port: int = 0  # where it will listen, if it does
    folder: str = ""  # where it works, if that is there


Launcher = Callable[[str], Launch]  # made on the machine itself, from the address that it has there


class Running(Protocol):
    """A process that was started, with all that it starts."""

    address: str
    port: int
    group: int  # its process group, which is also its process id

    def ended(self) -> str | None:
        """How it ended and what it said last; None while it runs."""

    def kill(self) -> None:
        """End it at once."""

    def stop(self) -> None:
        """End it in order."""


class Machine(Protocol):
    """Where a process can be started. A ``slot`` holds one process: a new one takes the place of the old."""

    def start(self, slot: str, launcher: Launcher, log: Path | None) -> Running: ...


class OwnMachine:
    """This machine."""

    def start(self, slot: str, launcher: Launcher, log: Path | None) -> Running:
        """Start a process that listens, if at all, on loopback."""
        return KeptProcess(launcher(LOOPBACK), log)


class KeptProcess:
    """A process under a keeper, so that it ends with this process, however that ends."""

    def __init__(self, launch: Launch, log: Path | None, address: str = LOOPBACK, apart: bool = False) -> None:
        """What it writes goes to the log, or where only this process can read it."""
        self.address, self.port, self.log, self.apart = address, launch.port, log, apart
        self.written: IO[bytes] | None = None if log is not None else tempfile.TemporaryFile()  # noqa: SIM115
        fds = [] if self.written is None else [self.written.fileno()]
        place = f"/dev/fd/{fds[0]}" if fds else str(log)
        self.keeper = subprocess.Popen(
            [sys.executable, "-I", str(KEEPER), *(["--apart"] if apart else []), place, *launch.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=launch.environment,
            cwd=launch.folder if os.path.isdir(launch.folder) else None,
            pass_fds=fds,
            text=True,
            start_new_session=True,  # Ctrl-C is for the run, which then ends its processes
        )
        self.about: dict[str, Any] = {}  # what the keeper said
        self.begun, self.over = threading.Event(), threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()
        self.begun.wait(TELLS_S)
        self.group = int(self.about.get("group", 0))  # 0: the keeper could not start it

    def _listen(self) -> None:
        stream = self.keeper.stdout
        assert stream is not None
        if self.apart:
            self.keeper.wait()
        with suppress(ValueError, OSError):
            for line in stream:
                self.about |= json.loads(line)
                self.begun.set()
        self.keeper.wait()
        self.over.set()
        self.begun.set()

    def ended(self) -> str | None:
        """How it ended and what it said last; None while it runs."""
        if not self.over.is_set():
            return None
        return self.last_words()

    @property
    def code(self) -> int | None:
        """Its exit status, if the keeper has said it."""
        return self.about.get("code")

    def last_words(self) -> str:
        """The line of what it wrote that says best why it ended."""
        if self.log is not None:
            return last_words(self.log)
        assert self.written is not None
        return reason(os.pread(self.written.fileno(), LAST_WORDS, max(0, os.fstat(self.written.fileno()).st_size - LAST_WORDS)))

    def kill(self) -> None:
        """End its processes at once; the keeper then tidies up."""
        self._kill_group()
        self.stop()

    def stop(self) -> None:
        """Close the keeper's input, which ends the processes, and wait for it."""
        with suppress(OSError):
            if self.keeper.stdin is not None:
                self.keeper.stdin.close()
        if not self.over.wait(STOP_S):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(int(self.about.get("keeper", self.keeper.pid)), signal.SIGKILL)
            self.over.wait(STOP_S)
        self._kill_group()  # a keeper that was killed has not done it

    def _kill_group(self) -> None:
        if self.group:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.group, signal.SIGKILL)


def last_words(log: Path) -> str:
    """The line of a log that says best why its writer ended."""
    try:
        text = log.read_bytes()[-LAST_WORDS:]
    except OSError:
        return f"it ended; its log {log} cannot be read"
    return f"{reason(text)} (all of it: {log})"


def reason(written: bytes) -> str:
    """The line that says best why a program ended."""
    lines = [line.strip() for line in written.decode("utf-8", "replace").splitlines() if line.strip()]
    reasons = [line for line in lines if any(words in line for words in WHY) and AFTER not in line]
    return shortened([*lines[-1:], *reasons][-1])[:300] if lines else "it ended"


def free_port(address: str = LOOPBACK) -> int:
    """A port that was free a moment ago; a program that comes too late for it is started again with another."""
    with socket.socket() as sock:
        sock.bind((address, 0))
        return int(sock.getsockname()[1])
