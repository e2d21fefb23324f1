"""Whose fault a broken session is, and what somebody who allows to go without isolation is told."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
from pathlib import Path

import pytest

from recollect.config import Sandbox
from recollect.sandbox import box
from recollect.sandbox.inside import seccomp, usage, wire
from recollect.sandbox.pool import Pool
from recollect.sandbox.sandbox_session import SandboxError
from recollect.types import BadInput
from tests.hostile.attempts import has


def keeper_of(pool: Pool) -> int:
    """The newest process below the zygote."""
    assert pool._box is not None
    return max(p.pid for p in usage.descendants(pool._box._process.pid))


def test_a_session_that_breaks_before_any_program_is_a_failure() -> None:
    pool = Pool(Sandbox())

    async def go() -> None:
        async with pool.session() as session:
            assert (await session.write("a", "x")).outcome == "ok"  # no program of the model's
            os.kill(keeper_of(pool), signal.SIGKILL)
            with pytest.raises(SandboxError):
                await session.program("print(1)")

    asyncio.run(go())
    pool.close()


def test_a_session_that_breaks_after_a_program_has_started_is_a_verdict() -> None:
    pool = Pool(Sandbox())

    async def go() -> None:
        async with pool.session() as session:
            assert (await session.program("print(1)")).out == "1\n"
            os.kill(keeper_of(pool), signal.SIGKILL)
            ran = await session.program("print(2)")
            assert (ran.outcome, ran.out, ran.state_lost) == ("ended", "", True)
            assert session.closed
        assert (await pool.run("print(3)")).out == "3\n"

    asyncio.run(go())
    pool.close()


@pytest.mark.parametrize("body", [b"[" * 200_000, b'{"a":' * 100_000, b"[1]", b"\xff", b"1" * 9000])
def test_the_wire_takes_objects_only(body: bytes) -> None:
    with pytest.raises(ValueError):
        wire.unpack(body)


def test_texts_of_the_wire_are_texts() -> None:
    assert wire.text({"a": "x\ud800" * 9}, "a", 3) == "x?x"
    for value in (1, None, [], {}):
        with pytest.raises(ValueError, match="not a text"):
            wire.text({"a": value}, "a", 3)


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_jump_of_the_filter_lands_inside_it(machine: str) -> None:
    code = seccomp.program(machine)
    lines = [code[i : i + 8] for i in range(0, len(code), 8)]
    for place, line in enumerate(lines):
        if line[0] & 7 == 5:  # a jump
            assert place + 1 + max(line[2], line[3]) < len(lines)
    assert lines[-1][:2] == b"\x06\x00"


def test_every_method_is_tried_before_none(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if not has("namespaces"):
        pytest.skip("this machine has no namespaces")
    capfd.readouterr()
    before = box._isolating_command
    monkeypatch.setattr(
        box, "_isolating_command", lambda plan: [w.replace("bwrap", "/nowhere/bwrap") for w in before(plan)][:1]
    )
    pool = Pool(Sandbox(isolation="bubblewrap", allow_unsafe=True))
    assert pool.start()[0] == "namespaces"
    pool.close()
    assert "namespaces is used instead" in capfd.readouterr().err
    with pytest.raises(BadInput, match="bubblewrap"):
        Pool(Sandbox(isolation="bubblewrap")).start()


def test_going_without_is_said_at_every_start(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box, "methods", lambda cfg: [])
    for _ in range(2):
        pool = Pool(Sandbox(allow_unsafe=True))
        walls = pool.start()
        assert asyncio.run(pool.run("print(1)")).out == "1\n"
        pool.close()
        said = capfd.readouterr().err
        assert said.count("NOT isolated") == 1
        assert ("runs as nobody" in said) == ("nobody" in walls)
        assert "docs/security.md" in said


def test_what_an_unsafe_program_leaves_in_shared_memory_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box, "methods", lambda cfg: [])
    pool = Pool(Sandbox(allow_unsafe=True))
    name = f"recollect-{os.getpid()}"
    asyncio.run(pool.run(f"open('/dev/shm/{name}', 'w').write('x')"))
    pool.close()
    assert not Path("/dev/shm", name).exists()


def test_the_isolated_zero_reads_but_is_no_memory() -> None:
    pool = Pool(Sandbox())
    code = "import os\nprint(open('/dev/zero', 'rb').read(3), os.stat('/dev/zero').st_mode)"
    out = asyncio.run(pool.run(code)).out.split()
    pool.close()
    assert out[0] == r"b'\x00\x00\x00'"
    assert stat.S_ISCHR(int(out[1]))
