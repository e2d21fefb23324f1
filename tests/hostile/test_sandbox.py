"""Every attempt of ``attempts.py`` by every method that this machine has: it gains nothing, and breaks nothing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from recollect.sandbox.pool import Pool
from tests.hostile.attempts import ATTEMPTS, METHODS, Attempt, attempt, has, opened


@pytest.fixture(scope="module", params=METHODS)
def pool(request: pytest.FixtureRequest) -> Iterator[Pool]:
    if not has(request.param):
        pytest.skip(f"this machine has no {request.param}")
    mark = Path(f"/dev/shm/of-the-host-{os.getpid()}")
    with ExitStack() as stack:
        if mark.parent.is_dir() and os.access(mark.parent, os.W_OK):
            mark.write_text("secret")
            stack.callback(mark.unlink)
        yield stack.enter_context(opened(request.param))


@pytest.mark.parametrize("made", ATTEMPTS, ids=lambda made: made.name)
def test_an_attempt_gains_nothing_and_breaks_nothing(pool: Pool, made: Attempt) -> None:
    ran, after = asyncio.run(attempt(pool, made, os.getpid()))
    assert made.holds(ran), ran
    assert "BROKEN" not in after
    assert asyncio.run(pool.run("print('fine')")).out == "fine\n"


NESTED = """
import os
for _ in range(1500):
    os.mkdir("d")
    os.chdir("d")
open("file", "w").close()
os.chmod(".", 0)
print("made")
"""


def test_folders_nested_deeper_than_python_recurses_go_with_the_box() -> None:
    with opened("unsafe") as pool:
        assert pool._box is not None
        scratch = pool._box._scratch.path
        assert asyncio.run(pool.run(NESTED)).out == "made\n"
    assert not scratch.exists()


def test_tools_list_and_search_folders_nested_deeper_than_python_recurses() -> None:
    async def found(pool: Pool) -> list[str]:
        async with pool.session() as session:
            await session.program(NESTED.replace('os.chmod(".", 0)', 'open("file", "w").write("here")'))
            asked = [("list_files", {}), ("grep", {"pattern": "he"})]
            return [(await session.file(name, path=".", **more)).out for name, more in asked]

    with opened("unsafe") as pool:
        listed, grepped = asyncio.run(found(pool))
    assert listed.endswith("/d/file (4 bytes)")
    assert grepped.endswith("/d/file:1: here")
