"""Where tools and rewards that compute are called: in threads of this process, or wherever a run has said.

Who starts attempts says it (`agents/rollout.py`); it holds for everything that those attempts call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Protocol

from recollect.runtime.threads import in_thread


class WorkPlace(Protocol):
    """Computes for this process somewhere else."""

    async def call(self, function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
        """What a plain function gives, or an error with the name and text of the one that it raised there."""

    def room(self, function: Callable[..., Any]) -> AbstractAsyncContextManager[Any]:
        """Hold what a call of a function needs; waiting for it is no time of the call's."""

    async def run_program(self, code: str, stdin: str, timeout: float | None) -> Any:
        """Run a Python program in a sandbox there."""


_place: ContextVar[WorkPlace | None] = ContextVar("work_place", default=None)


@contextmanager
def working(place: WorkPlace | None) -> Iterator[None]:
    """Let tools and rewards be computed there; None: here."""
    token = _place.set(place)
    try:
        yield
    finally:
        _place.reset(token)


def place() -> WorkPlace | None:
    """Where tools and rewards are computed; None: here."""
    return _place.get()


async def compute(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Call a plain function where such work is done."""
    there = _place.get()
    return await in_thread(function, given) if there is None else await there.call(function, given)


def room(function: Callable[..., Any]) -> AbstractAsyncContextManager[Any]:
    """Hold what a call of a function needs where it is computed."""
    there = _place.get()
    return nullcontext() if there is None else there.room(function)
