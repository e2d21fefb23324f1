"""The run's sandbox: boxes are started once and stay warm, sessions are forked from them."""

from __future__ import annotations

import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from recollect.config import Sandbox
from recollect.runtime.threads import Slots, in_thread
from recollect.sandbox.box import Box, isolation_warning, open_box
from recollect.sandbox.sandbox_session import ProgramResult, SandboxSession


class Pool:
    """Opens sessions, at most ``sandbox.max_sessions`` at once; usable from one event loop after another."""

    def __init__(self, cfg: Sandbox) -> None:
        self.cfg = cfg
        self._box: Box | None = None
        self._lock = threading.Lock()
        self._free = Slots(cfg.max_sessions)
        self._closed = False
        self.warning = ""  # about its isolation; said once

    def start(self) -> list[str]:
        """Make sure that there is a box; the names of its walls. BadInput when this machine cannot isolate."""
        with self._lock:
            return self._warm().walls

    def _warm(self) -> Box:
        if self._closed:
            raise RuntimeError("the sandbox is closed")
        if self._box is None or not self._box.alive:
            self._box = open_box(self.cfg)
            self._warn(isolation_warning(self._box))
        return self._box

    def _warn(self, text: str) -> None:
        """Warn once for each pool."""
        if text and not self.warning:
            print(f"recollect: {text}", file=sys.stderr, flush=True)
        self.warning = self.warning or text

    def _open(self) -> SandboxSession:
        with self._lock:
            box = self._warm()
            try:
                session = SandboxSession(self.cfg, box)
            except OSError:  # its zygote died, so a new one is made
                session = SandboxSession(self.cfg, self._warm())
            if not session.box.nested:
                self._box = None  # its sessions are not kept apart, so this one has it alone
            return session

    @asynccontextmanager
    async def session(self) -> AsyncIterator[SandboxSession]:
        """A new empty session, ended with everything in it on the way out."""
        async with self._free.one():
            warm = self._box is not None and self._box.alive
            session = self._open() if warm else await in_thread(self._open, {})
            try:
                yield session
            finally:
                session.close()
                if not session.box.nested:
                    session.box.close()

    async def run(self, code: str, stdin: str = "", timeout: float | None = None) -> ProgramResult:
        """Run one Python program in a session of its own."""
        async with self.session() as session:
            return await session.program(code, stdin, timeout)

    def close(self) -> None:
        """End everything."""
        with self._lock:
            self._closed = True
            if self._box is not None:
                self._box.close()
                self._box = None
