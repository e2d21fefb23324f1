"""Sandboxes on a node of a Ray cluster: an actor that opens sessions there and passes requests on to them."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from recollect import __version__
from recollect.config import Sandbox
from recollect.runtime.threads import in_thread
from recollect.sandbox.pool import Pool
from recollect.sandbox.sandbox_session import ProgramResult, SandboxError, SandboxSession
from recollect.types import BadInput


@dataclass(frozen=True)
class HostReady:
    """What a host says when it is asked whether it can be used."""

    recollect: str  # version
    warning: str  # about the isolation there
    refused: str  # why programs cannot run there; empty: they can


@dataclass(frozen=True)
class Ran:
    """What a request gave."""

    result: ProgramResult | None
    broken: str  # why the sandbox failed; empty: it did not
    closed: bool  # nothing can run in that session any more


class ProgramHost:
    """The sandboxes of one node. Its methods run in one event loop."""

    def __init__(self, cfg: Sandbox) -> None:
        self.pool = Pool(cfg)
        self.sessions: dict[int, tuple[SandboxSession, AsyncExitStack]] = {}
        self.count = 0

    async def ready(self) -> HostReady:
        """Make a box, so that the first session opens at once."""
        try:
            await in_thread(self.pool.start, {})
        except BadInput as error:
            return HostReady(__version__, "", str(error))
        return HostReady(__version__, self.pool.warning, "")

    async def open(self) -> int:
        """A new empty session."""
        stack = AsyncExitStack()
        session = await stack.enter_async_context(self.pool.session())
        self.count += 1
        self.sessions[self.count] = session, stack
        return self.count

    async def ask(self, number: int, request: dict[str, Any], timeout: float | None) -> Ran:
        """Run a request in a session."""
        session, _ = self.sessions[number]
        try:
            return Ran(await session.ask(request, timeout), "", session.closed)
        except SandboxError as error:
            return Ran(None, str(error), session.closed)

    async def end(self, number: int) -> None:
        """End a session with everything that runs in it."""
        if number in self.sessions:
            await self.sessions.pop(number)[1].aclose()

    async def close(self) -> None:
        """End everything."""
        for number in list(self.sessions):
            await self.end(number)
        self.pool.close()
