"""What the event loop waits for is counted; what it computes is not."""

from __future__ import annotations

import asyncio
import time

import pytest

from recollect.runtime.event_loop import run_timed


def test_waiting_is_counted_and_work_is_not() -> None:
    async def works() -> str:
        time.sleep(0.3)  # computes
        await asyncio.sleep(0.1)
        return "done"

    found, waited = run_timed(works())
    assert found == "done"
    assert 0.09 < waited < 0.29


def test_what_fails_fails_as_before() -> None:
    async def fails() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        run_timed(fails())
