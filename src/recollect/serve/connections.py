"""Bounded connections. A client has limited time to send its request and to read the answer.

If there are too many, the oldest that still wait for their request are closed, so idle connections keep nobody out.
Messages that strangers can cause are logged once a minute.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import time
from contextlib import suppress
from functools import partial
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from recollect.serve.limits import BODY_S, HEAD_S, LINGER_S, STALL_S

HEAD, BODY, ANSWER, LEFT = "head", "body", "answer", "left"  # what a connection waits for
ALLOWED = {HEAD: HEAD_S, BODY: BODY_S + LINGER_S, LEFT: LINGER_S}  # seconds
QUEUE = 1024  # connections that the system holds until they are taken
AT_ONCE = 64  # connections that are taken in one go
SPARE = 16  # descriptors that stay free for files
LOG_S = 60.0


class Connections:
    """The open connections."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.open: dict[Connection, None] = {}

    def make_room(self) -> None:
        """Close some of the connections that wait, those that never asked for anything first, the oldest first."""
        waiting = [c for c in self.open if c.waits_for() != ANSWER and not c.dropped]
        waiting.sort(key=lambda c: (c.served, c.since))
        for connection in waiting[: max(1, len(waiting) // 16)]:
            connection.drop()

    async def watch(self) -> None:
        """Close what is overdue, every second."""
        while True:
            await asyncio.sleep(1)
            for connection in list(self.open):
                connection.note()
                if connection.overdue():
                    connection.drop()


class Connection(H11Protocol):
    """A connection that knows what it waits for, and since when."""

    def __init__(self, room: Connections, **given: Any) -> None:
        super().__init__(**given)
        self.room, self.since, self.state = room, time.monotonic(), HEAD
        self.stalled: float | None = None  # since when the client does not read
        self.served = self.dropped = False

    def waits_for(self) -> str:
        """What this connection waits for."""
        if self.transport.is_closing():
            return LEFT
        if self.conn.their_state is h11.IDLE:
            return HEAD
        answered = self.cycle is None or self.cycle.response_complete
        if self.conn.their_state is h11.SEND_BODY:
            return LEFT if answered else BODY
        return LEFT if answered else ANSWER

    def note(self) -> None:
        """Remember since when it waits for what it waits for."""
        if (state := self.waits_for()) != self.state:
            self.state, self.since = state, time.monotonic()

    def overdue(self) -> bool:
        """True when the client took too long."""
        now = time.monotonic()
        if self.stalled is not None and now - self.stalled > STALL_S:
            return True
        return now - self.since > ALLOWED.get(self.state, float("inf"))

    def drop(self) -> None:
        """Close it at once."""
        self.dropped = True
        self.transport.abort()

    # ---- what the server calls ----

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.room.open[self] = None
        if len(self.room.open) > self.room.most:
            self.room.make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        self.room.open.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.note()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.served = True
        self.state, self.since = self.waits_for(), time.monotonic()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.stalled = time.monotonic()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.stalled = None


class OnceAMinute(logging.Filter):
    """Lets a kind of message through once a minute; clients can cause many."""

    def __init__(self) -> None:
        super().__init__()
        self.last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind, now = str(record.msg).split("\n", 1)[0][:80], time.monotonic()
        if now - self.last.get(kind, -LOG_S) < LOG_S:
            return False
        self.last = {k: at for k, at in self.last.items() if now - at < LOG_S} | {kind: now}
        return True


def affordable(wanted: int) -> tuple[int, int]:
    """(connections, those accepted at once) for which there are file descriptors, at most the wanted number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 64
    need = wanted + used + 4 * AT_ONCE + SPARE
    if soft != resource.RLIM_INFINITY and soft < need:
        soft = need if hard == resource.RLIM_INFINITY else min(hard, need)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    free = need - used if soft == resource.RLIM_INFINITY else soft - used
    at_once = max(1, min(AT_ONCE, free // 16))
    return max(4, min(wanted, free - 4 * at_once - min(SPARE, free // 4))), at_once


class Http:
    """An HTTP server over an application, with its connections."""

    def __init__(self, app: Any, connections: int, at_once: int = AT_ONCE) -> None:
        self.room = Connections(connections)
        options: dict[str, Any] = {"log_level": "warning", "access_log": False, "lifespan": "off", "ws": "none"}
        options |= {"timeout_graceful_shutdown": 5, "backlog": at_once, "http": partial(Connection, self.room)}
        self.server: Any = uvicorn.Server(uvicorn.Config(app, **options))

    @property
    def started(self) -> bool:
        return bool(self.server.started)

    def stop(self) -> None:
        """Ask it to end soon."""
        self.server.should_exit = True

    async def serve(self, sock: socket.socket) -> None:
        """Answer until told to stop."""
        quiet = OnceAMinute()
        loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio")]
        for logger in loggers:
            logger.addFilter(quiet)
        asyncio.get_running_loop().set_exception_handler(self._failed)
        others = [asyncio.ensure_future(work) for work in (self.room.watch(), self._listen(sock))]
        try:
            await self.server.serve(sockets=[sock])
        finally:
            for task in others:
                task.cancel()
            for logger in loggers:
                logger.removeFilter(quiet)

    async def _listen(self, sock: socket.socket) -> None:
        """Let the system hold more connections than are taken in one go."""
        while not self.started:
            await asyncio.sleep(0.02)
        sock.listen(QUEUE)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Without descriptors for a new connection, old ones make room; the loop tries again."""
        if "socket.accept() out of system resource" in str(context.get("message", "")):
            self.room.make_room()
            logging.getLogger("uvicorn.error").warning(
                "no descriptors for a new connection (ulimit -n); closing idle ones"
            )
            return
        loop.default_exception_handler(context)
