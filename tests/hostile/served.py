"""`recollect serve` in a process of its own, and clients that do not behave."""

from __future__ import annotations

import os
import resource
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.commands import CONTEXT, end, redirect
from tests.waiting import LONG

START_S = 120.0


@dataclass(frozen=True)
class Served:
    """A running server."""

    url: str  # without /v1
    pid: int
    log: Path  # all that it printed

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return str(parts.hostname), int(parts.port or 0)

    def resident(self) -> int:
        """Bytes of memory that the process holds now."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * resource.getpagesize()


def _child(args: Sequence[str], log: str, descriptors: int, env: Mapping[str, str]) -> None:
    redirect(log, log)
    os.environ.update(env)
    if descriptors:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    import torch

    torch.set_num_threads(1)
    end(["serve", *args])


@contextmanager
def served(*options: str, descriptors: int = 0, env: Mapping[str, str] | None = None) -> Iterator[Served]:
    """A server of the embedded model, up while this is open."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        log.touch()
        args = ["--checkpoint", "tiny", "--port", "0", *options, "trainer.threads=1", "trainer.device=cpu"]
        process = CONTEXT.Process(target=_child, args=(args, str(log), descriptors, env or {}))
        process.start()
        try:
            yield Served(_url(process, log), int(process.pid or 0), log)
        finally:
            if process.is_alive():
                os.kill(int(process.pid or 0), signal.SIGKILL)
            process.join()


def _url(process: object, log: Path) -> str:
    start = time.monotonic()
    while time.monotonic() - start < START_S and process.is_alive():  # type: ignore[attr-defined]
        words = log.read_text().split()
        if "serving" in words and "stops)" in words:
            return next(word for word in words if word.startswith("http")).removesuffix("/v1")
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def health(url: str, timeout: float = LONG) -> float:
    """Seconds until the server says that it is well, over a connection of its own."""
    start = time.monotonic()
    assert httpx.get(f"{url}/health", timeout=timeout, headers={"Connection": "close"}).status_code == 200
    return time.monotonic() - start


def dial(address: tuple[str, int], say: bytes = b"") -> socket.socket:
    """A connection that says something, or nothing, and stays."""
    sock = socket.create_connection(address, timeout=LONG)
    if say:
        sock.sendall(say)
    return sock


def is_closed(sock: socket.socket) -> bool:
    """True when the other side has closed it; what it said is read over."""
    sock.setblocking(False)
    with suppress(BlockingIOError):
        try:
            while sock.recv(65536):
                pass
        except ConnectionError:
            pass
        return True
    return False


def post_head(length: int, path: str = "/v1/completions") -> bytes:
    """The head of a request with a body of some length."""
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode()
