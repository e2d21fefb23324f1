"""A vLLM server that this run starts: on a free port of this machine, in a process group that ends with the run."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from typing import Protocol

from recollect.files.output import writing
from recollect.runtime.error_text import shortened

INSIDE = Path(__file__).parent / "inside"  # what runs there and needs no recollect
STOP_S = 12.0  # the keeper asks, waits and ends
TELLS_S = 60.0  # until the keeper has said which group it keeps
LAST_WORDS = 20_000  # bytes at the end of a log that are searched for a reason
WHY = ("Error: ", "error: ", "No module named")
AFTER = "Engine core initialization failed"  # said after the reason


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


class LocalServer:
    """A server on this machine. ``command`` makes the command line of a port."""

    def __init__(self, command: Callable[[int], Sequence[str]], environment: Mapping[str, str], log: Path) -> None:
        self.command, self.environment, self.log = command, dict(environment), log
        self.url = ""
        self.process: subprocess.Popen[str] | None = None
        self.group = 0
        self.closed = False

    def start(self) -> None:
        """Start it under a keeper; it is ready when it says so at /health."""
        self.kill()
        with writing(self.log):
            self.log.parent.mkdir(parents=True, exist_ok=True)
            self.log.write_text("")  # of the last start alone, so that it stays small
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        keeper = [sys.executable, str(INSIDE / "server_keeper.py"), str(self.log), *self.command(port)]
        self.process = subprocess.Popen(
            keeper,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=self.environment,
            text=True,
            start_new_session=True,  # Ctrl-C is for the run, which then ends its servers
        )
        self.group = self._group()
        if self.closed:  # while it was being started
            self._stop()

    def _group(self) -> int:
        """The process group that the keeper keeps; 0 when it could not start."""
        lines: Queue[str] = Queue()
        assert self.process is not None
        stream = self.process.stdout
        threading.Thread(target=lambda: lines.put(stream.readline() if stream else ""), daemon=True).start()
        with suppress(Empty, ValueError, KeyError, TypeError):
            return int(json.loads(lines.get(timeout=TELLS_S))["group"])
        return 0

    def ended(self) -> str | None:
        """Why it is not running, from the end of its log."""
        if self.process is not None and self.process.poll() is None:
            return None
        return last_words(self.log)

    def kill(self) -> None:
        """End its processes at once; the keeper then tidies up."""
        if self.group:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.group, signal.SIGKILL)
        self._stop()

    def close(self) -> None:
        """End it; it is not started again."""
        self.closed = True
        self._stop()

    def _stop(self) -> None:
        """Close the keeper's input, which ends the server's processes, and wait for it."""
        process, self.process = self.process, None
        if process is None:
            return
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self.group:  # a keeper that was killed has not done it
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.group, signal.SIGKILL)
        if process.stdout is not None:
            process.stdout.close()
        self.group = 0


def last_words(log: Path) -> str:
    """The line of a log that says best why a server ended."""
    try:
        text = log.read_bytes()[-LAST_WORDS:].decode("utf-8", "replace")
    except OSError:
        return f"it ended; its log {log} cannot be read"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reasons = [line for line in lines if any(words in line for words in WHY) and AFTER not in line]
    said = [*lines[-1:], *reasons][-1] if lines else "it ended"
    return f"{shortened(said)[:300]} (all of it: {log})"


def free_port() -> int:
    """A port that was free a moment ago; a server that comes too late for it is started again with another."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
