"""Work that may hang, and work that takes long."""

from __future__ import annotations

import threading
import time

import pytest

from recollect.runtime.threads import in_time, reminding


def test_what_hangs_is_left_behind() -> None:
    free = threading.Event()
    with pytest.raises(TimeoutError, match=r"the disk has not answered for 0.1 s"):
        in_time(lambda: free.wait(30), 0.1, "the disk")
    free.set()
    assert in_time(lambda: 3, 10.0, "the disk") == 3
    with pytest.raises(KeyError):
        in_time(lambda: {}[1], 10.0, "the disk")


def test_what_takes_long_is_said_until_it_is_over() -> None:
    said: list[str] = []
    with reminding("writing", said.append, 0.05):
        time.sleep(0.3)
    count = len(said)
    assert count >= 2
    assert said[0] == "writing has taken 0 s so far"
    time.sleep(0.2)
    assert len(said) == count
