"""Ctrl-C or SIGTERM once: finish what is under way, save, stop. Twice: stop now."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from recollect.runtime.console import Console


class Interrupted(Exception):
    """The user asked to stop; everything is saved, unless the message says otherwise."""


class StopRequest:
    """Whether the user has asked to stop."""

    def __init__(self) -> None:
        self.made = False


@contextmanager
def interruptible(console: Console, request: StopRequest, unit: str) -> Iterator[None]:
    """While this is open, the first Ctrl-C or SIGTERM (which cluster managers send) only sets ``request.made``."""

    def ask(number: int, frame: Any) -> None:
        if request.made:
            raise KeyboardInterrupt
        request.made = True
        console.warn(f"stopping after this {unit} (Ctrl-C again to stop now)")

    if threading.current_thread() is not threading.main_thread():  # signals go to the main thread alone
        yield
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
