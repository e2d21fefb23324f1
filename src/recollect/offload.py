"""Calling plain functions off the event loop, in threads that cannot hold up the program."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any


async def in_thread(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Call a plain function in a thread of its own; one that hangs is left behind and cannot hold up the program."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if not future.done():
            future.set_result(value) if error is None else future.set_exception(error)

    def work() -> None:
        try:
            value, error = function(**given), None
        except Exception as caught:
            value, error = None, caught
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, daemon=True).start()
    return await future
