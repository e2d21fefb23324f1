"""Calling plain functions off the event loop, and counting what may run at once, in any loop of the program."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any
from weakref import WeakKeyDictionary


async def in_thread(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Call a plain function in a thread of its own; one that hangs is left behind and cannot hold up the program."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result(value) if error is None else future.set_exception(error)

    def work() -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = function(**given)
        except (SystemExit, KeyboardInterrupt, StopIteration) as caught:  # these mean something else to a loop
            error = RuntimeError(f"{type(caught).__name__}: {caught}")
        except BaseException as caught:
            error = caught
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, daemon=True).start()
    return await future


class Slots:
    """A semaphore that may be used in one event loop after another; None is without bound."""

    def __init__(self, count: int | None) -> None:
        self._count = count
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    def one(self) -> AbstractAsyncContextManager[Any]:
        """Hold one slot."""
        if self._count is None:
            return nullcontext()
        return self._by_loop.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(self._count))
