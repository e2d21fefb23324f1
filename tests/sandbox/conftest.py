"""A warm sandbox with tight limits, and what the host can see of it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from recollect.config import Sandbox
from recollect.sandbox.inside import usage
from recollect.sandbox.pool import Pool
from tests.waiting import LONG, until

SECRET = "hunter2-of-the-host"
LIMITS = {"timeout_s": LONG, "memory_mb": 192, "processes": 12, "output_kb": 64, "disk_mb": 8, "file_mb": 4}


def limits(**other: object) -> Sandbox:
    return Sandbox(**{**LIMITS, **other})  # type: ignore[arg-type]


def inside(pool: Pool) -> list[usage.Process]:
    """The host's view of everything that runs in the sandbox, without the box's own two processes."""
    assert pool._box is not None
    found = usage.descendants(pool._box._process.pid)
    return [p for p in found if p.state not in "ZX"][1:]


def is_empty(pool: Pool) -> bool:
    return until(lambda: not inside(pool))


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    os.environ["RECOLLECT_TEST_SECRET"] = SECRET
    made = Pool(limits())
    made.start()
    yield made
    made.close()
    del os.environ["RECOLLECT_TEST_SECRET"]
