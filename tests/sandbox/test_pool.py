"""The host's side: choosing a method, refusing to go without, cancellation, and what happens when something dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from recollect.sandbox import box, run_python, shared
from recollect.sandbox.inside import landlock, seccomp
from recollect.sandbox.pool import Pool
from recollect.types import BadInput
from tests.sandbox.conftest import is_empty, limits
from tests.waiting import until

METHODS = ["namespaces", "bubblewrap"]


def test_every_wall_that_the_kernel_offers_stands(pool: Pool) -> None:
    walls = pool.start()
    assert walls[0] in ("namespaces", "bubblewrap")
    assert {"rlimits", "no_new_privs"} < set(walls)
    assert ("landlock" in walls) == (landlock.version() > 0)
    assert "seccomp" in walls or not seccomp.program(os.uname().machine)


def test_state_is_kept_between_blocks_and_values_are_shown(pool: Pool) -> None:
    async def go() -> None:
        async with pool.session() as session:
            first = await session.python("import math\nx = [1, 2]\nprint('hello')\nx")
            assert (first.outcome, first.out, first.value) == ("ok", "hello\n", "[1, 2]")
            assert (await session.python("x.append(3)\nsum(x), _")).value == "(6, [1, 2, 3])"
            failed = await session.python("def f(n):\n    return f(n - 1) if n else 1 / 0\nf(40)")
            assert failed.outcome == "error"
            assert failed.error.splitlines()[-1] == "ZeroDivisionError: division by zero"
            assert "more calls" in failed.error
            assert "recollect" not in failed.error
            assert len(failed.error.splitlines()) < 25
            assert "SyntaxError" in (await session.python("x =")).error
            assert (await session.python("exit()")).outcome == "ok"
            assert (await session.python("len(x)")).value == "3"

    asyncio.run(go())


def test_state_survives_a_timeout_that_can_be_interrupted(pool: Pool) -> None:
    async def go() -> None:
        async with pool.session() as session:
            await session.python("x = 5")
            late = await session.python("while True: pass", 0.3)
            assert (late.outcome, late.state_lost) == ("timeout", False)
            assert (await session.python("x")).value == "5"
            stubborn = (
                "import time\nwhile True:\n    try:\n        while True: time.sleep(9)\n    except BaseException: pass"
            )
            late = await session.python(stubborn, 0.3)
            assert (late.outcome, late.state_lost) == ("timeout", True)
            assert "NameError" in (await session.python("x")).error

    asyncio.run(go())


def test_a_process_that_leaves_is_noticed(pool: Pool) -> None:
    async def go() -> None:
        async with pool.session() as session:
            ran = await session.python("print('bye', flush=True)\nimport os\nos._exit(3)")
            assert (ran.outcome, ran.out, ran.state_lost) == ("ended", "bye\n", True)

    asyncio.run(go())


def test_programs_have_input_arguments_and_an_exit_status(pool: Pool) -> None:
    async def go() -> None:
        async with pool.session() as session:
            text = "line\n" * 100_000
            code = "import sys\nprint(len(sys.stdin.read()), sys.argv[1:])\nsys.exit(7)"
            ran = await session.program(code, text, argv=("a", "b"))
            assert (ran.out, ran.code, ran.outcome) == (f"{len(text)} ['a', 'b']\n", 7, "error")
            assert (await session.command("cat", "x\ny")).out == "x\ny"
            assert (await session.command("false")).code == 1

    asyncio.run(go())


def test_bytes_that_are_not_text_come_out_as_text(pool: Pool) -> None:
    ran = asyncio.run(pool.run("import sys\nsys.stdout.buffer.write(bytes(range(256)))"))
    assert ran.outcome == "ok"
    assert "�" in ran.out


def test_cancelling_ends_what_runs(pool: Pool) -> None:
    async def go() -> None:
        async with pool.session() as session:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await session.command("sleep 600", timeout=600)
            assert session.closed

    start = time.monotonic()
    asyncio.run(go())
    assert is_empty(pool)
    assert time.monotonic() - start < 120  # it would take 600


def test_sessions_wait_for_a_free_place() -> None:
    made = Pool(limits(max_sessions=2))
    held = most = 0

    async def one() -> str:
        nonlocal held, most
        async with made.session() as session:
            held += 1
            most = max(most, held)
            ran = await session.command("echo done")
            held -= 1
            return ran.out

    async def go() -> list[str]:
        return await asyncio.gather(*(one() for _ in range(6)))

    assert asyncio.run(go()) == ["done\n"] * 6
    assert most == 2
    made.close()


def test_a_dead_box_is_replaced() -> None:
    made = Pool(limits())
    assert asyncio.run(made.run("print(1)")).out == "1\n"
    assert made._box is not None
    made._box._process.kill()
    made._box._process.wait()

    def answers() -> bool:
        try:
            return asyncio.run(made.run("print(2)")).out == "2\n"
        except RuntimeError:  # the zygote was dying as it was asked
            return False

    assert until(answers)
    made.close()


def test_closing_ends_everything_and_leaves_no_folder() -> None:
    made = Pool(limits())
    made.start()
    assert made._box is not None
    scratch = made._box._scratch.path
    assert scratch.is_dir()
    made.close()
    assert not scratch.exists()
    with pytest.raises(RuntimeError, match="closed"):
        made.start()


def unique_seconds() -> str:
    """A time for `sleep` that no other process on the machine sleeps for, longer than any test."""
    return f"{100_000_000 + time.time_ns() % 10**9}.{os.getpid()}"


def processes() -> str:
    """A line for each process of the machine: its number and its command."""
    return subprocess.run(["ps", "ax", "-o", "pid=,args="], capture_output=True, text=True, check=True).stdout


def test_everything_ends_with_the_host() -> None:
    code = """
import asyncio, os, subprocess, sys
from recollect.config import Sandbox
from recollect.sandbox.pool import Pool
async def main():
    pool = Pool(Sandbox())
    async with pool.session() as session:
        sleeps = f"sleep {sys.argv[1]}"
        task = asyncio.ensure_future(session.command(sleeps, timeout=600))
        while sleeps not in subprocess.run(["ps", "ax"], capture_output=True, text=True).stdout:
            await asyncio.sleep(0.05)
        os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    seconds = unique_seconds()
    command = [sys.executable, "-c", code, seconds]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert until(lambda: f"sleep {seconds}" not in processes())


def test_it_refuses_to_run_without_isolation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box, "methods", lambda _: [])
    with pytest.raises(BadInput, match=r"sandbox\.allow_unsafe=true"):
        Pool(limits()).start()


def test_unsafe_still_has_limits_and_the_second_wall(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(box, "methods", lambda _: [])
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    made = Pool(limits(allow_unsafe=True))
    walls, seconds = made.start(), unique_seconds()
    assert walls[0] == "none"

    async def go() -> None:
        async with made.session() as session:
            assert (await session.python("x = 1\nx + 1")).value == "2"
            assert (await session.command(f"sleep {seconds} & sleep {seconds}", timeout=0.3)).outcome == "timeout"
            if "landlock" in walls:
                assert "hidden" not in (await session.command(f"cat {secret}")).out
            if "seccomp" in walls:
                assert "PermissionError" in (await session.program("import socket; socket.socket()")).err
        async with made.session() as session:
            assert (await session.file("list_files", path=".")).out == "(no files)"

    asyncio.run(go())
    assert until(lambda: f"sleep {seconds}" not in processes())
    made.close()


def test_unsafe_sessions_leave_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the one that holds a session's state, which stands still between calls, nor what a call has started."""
    monkeypatch.setattr(box, "methods", lambda _: [])
    made, seconds = Pool(limits(allow_unsafe=True)), unique_seconds()
    made.start()

    async def one(cut: bool) -> int:
        async with made.session() as session:
            pid = int((await session.python("import os\nos.getpid()")).value)
            if cut:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(session.command(f"sleep {seconds} & sleep {seconds}"), 0.15)
            return pid

    async def go() -> list[int]:
        return [pid for _ in range(5) for pid in await asyncio.gather(*(one(i % 2 == 0) for i in range(4)))]

    pids = asyncio.run(go())

    def none_left() -> bool:
        lines = processes().splitlines()
        return not any(f"sleep {seconds}" in line or int(line.split()[0]) in pids for line in lines)

    try:
        assert until(none_left), processes()
    finally:
        made.close()


def started(method: str, **other: object) -> Pool:
    """A pool by one method; where that is not to be had, the test is skipped."""
    if method == "bubblewrap" and not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed")
    made = Pool(limits(isolation=method, **other))
    try:
        walls = made.start()
    except BadInput as error:
        pytest.skip(str(error))
    assert walls[0] == method
    return made


@pytest.mark.parametrize("method", METHODS)
def test_each_method_isolates(method: str) -> None:
    made = started(method)

    async def go() -> None:
        for _ in range(2):
            async with made.session() as session:
                assert (await session.python("import os\nos.getuid(), os.getcwd()")).value == "(1000, '/workspace')"
                assert (await session.file("list_files", path=".")).out == "(no files)"
                await session.write("note", "x")
                assert (await session.program("open('/etc/shadow')")).outcome == "error"
                assert "PermissionError" in (await session.program("import socket; socket.socket()")).err
                assert (
                    await session.command("for i in $(seq 99); do sleep 99 & done; wait", timeout=1.5)
                ).outcome != "ok"

    asyncio.run(go())
    made.close()


@pytest.mark.parametrize("method", METHODS)
def test_what_is_shown_below_tmp_is_there_and_stays_as_it_is(method: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, tempfile.TemporaryDirectory(dir="/tmp") as beside:
        own = Path(folder, "data")
        own.mkdir()
        (own / "said.txt").write_text("hello")
        made = started(method, read_only=[str(own)])
        names = Path(folder).name, Path(beside).name
        code = (
            f"print(open({str(own / 'said.txt')!r}).read())\n"
            f"import os, tempfile\nprint([name in os.listdir('/tmp') for name in {names}], bool(tempfile.mkdtemp()))\n"
            f"try: open({str(own / 'mine')!r}, 'w')\nexcept OSError: print('no')"
        )
        try:
            assert asyncio.run(made.run(code)).out == "hello\n[True, False] True\nno\n"
        finally:
            made.close()
        assert [path.name for path in own.iterdir()] == ["said.txt"]


def test_the_process_has_a_sandbox_of_its_own() -> None:
    shared.configure(limits())
    assert asyncio.run(run_python("print(input()[::-1])", stdin="abc")) == (0, "cba\n", "")
    status, _, err = asyncio.run(run_python("raise SystemExit(4)"))
    assert (status, err) == (4, "")
    status, out, err = asyncio.run(run_python("print(1, flush=True)\nwhile True: pass", timeout=0.3))
    assert status != 0
    assert out == "1\n"
    assert "timeout" in err
    before = shared.pool()
    shared.configure(limits(memory_mb=100))
    assert shared.pool() is not before
    assert asyncio.run(run_python("x = bytearray(120_000_000)"))[0] == 1
    shared.configure(limits())
