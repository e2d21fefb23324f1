"""Work that runs event loops of its own, called from anywhere: also from inside a running loop, as in a notebook."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
WAIT_S = 0.1  # between two looks at whether a thread is done; an interrupt is noticed in this time


def run_anywhere(work: Callable[[], T], stop: Callable[[], None] = lambda: None) -> T:
    """Do the work here, or in a thread where this one's event loop is running.

    In a thread the first interrupt calls ``stop``, which asks the work to end in its own time; the next one is raised.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    done: list[T] = []
    failed: list[BaseException] = []

    over = threading.Event()

    def inside() -> None:
        try:
            done.append(work())
        except BaseException as error:
            failed.append(error)
        finally:
            over.set()

    thread = threading.Thread(target=inside, name="recollect", daemon=True)
    begun = asked = False
    while not over.is_set():
        try:
            if not begun:
                begun = True  # an interrupt while it starts does not start it again
                thread.start()
            over.wait(WAIT_S)
        except KeyboardInterrupt:
            if asked:
                raise
            asked = True
            stop()
    if failed:
        raise failed[0]
    return done[0]
