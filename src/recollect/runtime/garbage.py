"""Python's garbage collector in a program with millions of objects that stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

NEW_OBJECTS = 50_000  # until the collector looks at them; 700 by default


@contextmanager
def leaving_the_old() -> Iterator[None]:
    """What is there now is not searched for garbage, which would stop everything for some tenths of a second.

    Garbage that is made meanwhile is found as always. What somebody else has set aside before stays so.
    """
    before, mine = gc.get_threshold(), gc.get_freeze_count() == 0
    gc.collect()
    if mine:
        gc.freeze()
    gc.set_threshold(NEW_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if mine:
            gc.unfreeze()
