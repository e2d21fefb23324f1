"""Talking to one session of the sandbox. Whatever comes back is data of bounded size, never trusted further."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import Any, Literal

from recollect.config import Sandbox
from recollect.sandbox.box import Box
from recollect.sandbox.inside import wire

Verdict = Literal["ok", "error", "timeout", "cpu", "memory", "processes", "output", "ended"]
VERDICTS = ("ok", "error", "timeout", "cpu", "memory", "processes", "output", "ended")
MOST_TEXT = 1 << 30
SLACK_S = 10.0  # how much longer than its limit a call may take before its session is ended from outside


class SandboxError(RuntimeError):
    """The sandbox itself failed; not the program in it."""


@dataclass(frozen=True)
class ProgramResult:
    """What a program did."""

    outcome: Verdict  # ok; error (it failed); a limit that it passed; or ended (it was killed or left without a word)
    out: str = ""
    err: str = ""
    value: str = ""  # of the last expression of a block
    error: str = ""  # the traceback of a block
    code: int = 0  # exit status, negative for a signal
    state_lost: bool = False  # the Python state is gone
    seconds: float = 0.0


class SandboxSession:
    """One trajectory's sandbox: its files and its Python state, for one call at a time."""

    def __init__(self, cfg: Sandbox, box: Box) -> None:
        self._cfg, self.box = cfg, box
        self._number, self._socket = box.open()
        self._turn = asyncio.Lock()
        self._closed = False
        self._started = False  # the session has run something that the model wrote

    @property
    def limits(self) -> Sandbox:
        """What holds for each of its calls."""
        return self._cfg

    @property
    def closed(self) -> bool:
        """True when nothing can run here any more."""
        return self._closed

    async def python(self, code: str, timeout: float | None = None) -> ProgramResult:
        """Run a block in the session's Python state."""
        return await self.ask({"op": "python", "code": code}, timeout)

    async def program(
        self, code: str, stdin: str = "", timeout: float | None = None, argv: tuple[str, ...] = ()
    ) -> ProgramResult:
        """Run a text as a Python program of its own, in the session's files."""
        return await self.ask({"op": "program", "code": code, "stdin": stdin, "argv": list(argv)}, timeout)

    async def command(self, command: str, stdin: str = "", timeout: float | None = None) -> ProgramResult:
        """Run a shell command in the session's files."""
        return await self.ask({"op": "command", "command": command, "stdin": stdin}, timeout)

    async def file(self, name: str, **arguments: Any) -> ProgramResult:
        """Run an operation of ``inside/files.py``."""
        return await self.ask({"op": "file", "name": name, "arguments": arguments}, None)

    async def write(self, path: str, text: str, append: bool = False) -> ProgramResult:
        """Put a text into a file of the session."""
        return await self.file("write_file", path=path, text=text, append=append)

    async def ask(self, request: dict[str, Any], timeout: float | None) -> ProgramResult:
        """Run a request of `inside/cell.py`; the methods above make them."""
        seconds = self._cfg.timeout_s if timeout is None else timeout
        async with self._turn:
            if self._closed:
                raise SandboxError("the sandbox is closed")
            try:
                async with asyncio.timeout(seconds + SLACK_S):
                    return _ran(await self._exchange({**request, "timeout": seconds}))
            except TimeoutError:
                self.close()
                return ProgramResult("timeout", state_lost=True, seconds=seconds)
            except (OSError, ValueError, KeyError, TypeError, OverflowError) as error:
                self.close()
                if self._started:  # the program's doing
                    return ProgramResult("ended", err=f"the session broke: {error}", code=-9, state_lost=True)
                raise SandboxError(f"the sandbox broke: {error}") from None
            except BaseException:
                self.close()  # cancelled: what is still running is not wanted any more
                raise

    async def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._socket, wire.pack(request))
        answer = await self._answer(loop)
        if answer.get("started") is True:
            self._started = True
            answer = await self._answer(loop)
        return answer

    async def _answer(self, loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
        size = wire.size(await _exactly(loop, self._socket, wire.HEAD))
        if size > self._most():
            raise ValueError(f"an answer of {size} bytes")
        return wire.unpack(await _exactly(loop, self._socket, size))

    def _most(self) -> int:
        return 16 * 1024 * self._cfg.output_kb + (16 << 20)

    def close(self) -> None:
        """End the session with everything that runs in it."""
        if not self._closed:
            self._closed = True
            self._socket.close()
            self.box.end(self._number)


async def _exactly(loop: asyncio.AbstractEventLoop, sock: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        data = await loop.sock_recv(sock, min(count - len(parts), 1 << 20))
        if not data:
            raise OSError("it ended without an answer")
        parts += data
    return bytes(parts)


def _ran(answer: dict[str, Any]) -> ProgramResult:
    if answer.get("outcome") not in VERDICTS:
        raise ValueError(str(answer.get("error", "an answer without an outcome"))[:500])
    texts = {name: wire.text(answer, name, MOST_TEXT) for name in ("outcome", "out", "err", "value", "error")}
    lost, seconds = bool(answer["state_lost"]), float(answer["seconds"])
    return ProgramResult(**texts, code=int(answer["code"]), state_lost=lost, seconds=seconds)  # type: ignore[arg-type]
