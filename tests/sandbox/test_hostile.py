"""Programs that try to leave, to stay, to spy or to exhaust. Each must fail, and the next call must still work."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from recollect.sandbox.contents import source_root
from recollect.sandbox.pool import Pool
from recollect.sandbox.sandbox_session import ProgramResult
from tests.sandbox.conftest import SECRET, inside, is_empty, limits
from tests.waiting import LONG


def run(pool: Pool, code: str, **options: object) -> ProgramResult:
    return asyncio.run(pool.run(code, **options))  # type: ignore[arg-type]


def shell(pool: Pool, command: str) -> ProgramResult:
    async def go() -> ProgramResult:
        async with pool.session() as session:
            return await session.command(command)

    return asyncio.run(go())


@pytest.fixture(autouse=True)
def _still_works(pool: Pool):  # type: ignore[no-untyped-def]
    yield
    assert run(pool, "print('fine')").out == "fine\n"
    assert is_empty(pool)


FORK_BOMBS = {
    "python": "import os, time\nwhile True:\n    try: os.fork()\n    except OSError: time.sleep(0.01)",
    "threads": "import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(99,)).start()",
}


@pytest.mark.parametrize("name", FORK_BOMBS)
def test_fork_bomb(pool: Pool, name: str) -> None:
    ran = run(pool, FORK_BOMBS[name], timeout=1.5)
    assert ran.outcome in ("processes", "timeout", "cpu", "error")
    assert ran.seconds < LONG


def test_fork_bomb_of_the_shell_never_grows_beyond_the_limit(pool: Pool) -> None:
    seen = []

    async def go() -> ProgramResult:
        async with pool.session() as session:
            task = asyncio.ensure_future(session.command(":(){ :|:& };:; sleep 99", timeout=1.5))
            while not task.done():
                seen.append(len(inside(pool)))
                await asyncio.sleep(0.02)
            return await task

    assert asyncio.run(go()).outcome in ("processes", "timeout", "cpu", "error")
    assert max(seen) <= 40  # the limit is 12; bubblewrap as root has no count in the kernel, only the keeper's


def test_memory_bomb_in_one_process(pool: Pool) -> None:
    ran = run(pool, "hog = []\nwhile True: hog.append(bytearray(8_000_000))")
    assert ran.outcome == "error"
    assert "MemoryError" in ran.err


def test_memory_bomb_in_many_processes(pool: Pool) -> None:
    code = (
        "import os, time\nfor _ in range(6):\n    if os.fork() == 0: break\nhog = bytearray(90_000_000)\ntime.sleep(30)"
    )
    ran = run(pool, code)
    assert ran.outcome == "memory"
    assert ran.seconds < 30  # not when they end


def test_memory_cannot_hide_in_shared_pages(pool: Pool) -> None:
    for call in ("mmap.mmap(-1, 4096)", "mmap.mmap(os.open('/dev/zero', os.O_RDWR), 4096)", "os.memfd_create('x')"):
        ran = run(pool, f"import mmap, os\n{call}")
        assert ran.outcome == "error"
        assert "PermissionError" in ran.err or "No such device" in ran.err
    kept = (
        "import mmap\nmmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE)\nf = open('x', 'w+b')\nf.write(b'y' * 9)\nf.flush()\n"
    )
    assert run(pool, f"{kept}print(mmap.mmap(f.fileno(), 9)[:3])").out == "b'yyy'\n"


def test_endless_output(pool: Pool) -> None:
    for code in ("while True: print('x' * 1000)", "import os\nwhile True: os.write(2, b'x' * 1000)"):
        ran = run(pool, code)
        assert ran.outcome == "output"
        assert len(ran.out) + len(ran.err) <= 2 * 64 * 1024


def test_endless_loop_and_endless_sleep(pool: Pool) -> None:
    for code in (
        "while True: pass",
        "import time\nwhile True: time.sleep(1)",
        "import sys\nsys.stdin.read()\nwhile 1: 0",
    ):
        ran = run(pool, code, timeout=0.4)
        assert ran.outcome == "timeout"
        assert ran.seconds < LONG


def test_processor_time_of_all_processes_counts(pool: Pool) -> None:
    other = Pool(limits(cpu_s=0.5))
    ran = run(other, "import os\nfor _ in range(3): os.fork()\nwhile True: pass")
    other.close()
    assert ran.outcome == "cpu"


def test_disk_and_file_size(pool: Pool) -> None:
    assert "File too large" in run(pool, "open('big', 'wb').write(b'x' * 5_000_000)").err
    many = "for i in range(9): open(f'/tmp/{i}', 'wb').write(b'x' * 1_500_000)"
    assert "No space left" in run(pool, many).err


SPIES = {
    "environment": "import os\nprint(os.environ)",
    "environ of processes": (
        "import glob\nfor p in glob.glob('/proc/*/environ') + glob.glob('/proc/*/cmdline'):\n"
        "    try: print(open(p).read())\n    except OSError as e: print(e)"
    ),
    "memory of its keeper": "open('/proc/1/mem', 'rb')",
    "files of its keeper": "import os\nprint(os.listdir('/proc/1/fd'), os.listdir('/proc/1/root'))",
    "walk": (
        "import os\nfor d, _, names in os.walk('/'):\n    if d.startswith(('/usr', '/proc', '/lib')): continue\n"
        "    for n in names:\n        try:\n            if os.path.getsize(f'{d}/{n}') < 1000:\n"
        "                print(open(f'{d}/{n}').read())\n        except (OSError, UnicodeDecodeError): pass"
    ),
}


@pytest.mark.parametrize("name", SPIES)
def test_secrets_of_the_host_cannot_be_read(pool: Pool, name: str) -> None:
    ran = run(pool, SPIES[name])
    assert SECRET not in ran.out + ran.err
    assert "API_KEY" not in ran.out


def test_files_of_the_host_cannot_be_read(pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    places = [tmp_path / "secret", Path.home() / ".bashrc", "/etc/shadow", "/etc/hostname", source_root() / "recollect"]
    code = f"import os\nfor p in {[str(p) for p in places]!r}:\n    print(os.path.exists(p), os.access(p, os.R_OK))"
    assert run(pool, code).out == "False False\n" * len(places)


def test_nothing_outside_can_be_written(pool: Pool, tmp_path: Path) -> None:
    places = [str(tmp_path / "x"), "/x", "/usr/x", "/etc/passwd", "/etc/x", "/proc/sys/kernel/hostname", "/dev/x"]
    code = f"for p in {places!r}:\n    try: open(p, 'w').write('x'); print('wrote', p)\n    except OSError: pass"
    assert run(pool, code).out == ""
    assert list(tmp_path.iterdir()) == []
    name = f"recollect-{os.getpid()}"
    assert run(pool, f"open('/tmp/{name}', 'w').write('x'); print('wrote')").out == "wrote\n"
    assert not Path("/tmp", name).exists()


def test_symlinks_lead_nowhere(pool: Pool, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)

    async def go() -> list[str]:
        async with pool.session() as session:
            await session.command(f"ln -s {secret} a; ln -s / root; ln -s /proc/1/root up; ln -s /proc/self/cwd/.. b")
            texts = []
            for path in ("a", f"root{secret}", f"up{secret}", f"b{secret}", f"../../..{secret}", "up/etc/shadow"):
                ran = await session.file("read_file", path=path, start=1, lines=0)
                texts.append(ran.out)
                await session.write(path, "overwritten")
            return texts

    assert [text for text in asyncio.run(go()) if SECRET in text or "root:" in text] == []
    assert secret.read_text() == SECRET


def test_sockets(pool: Pool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for call in (
            f"socket.create_connection(('127.0.0.1', {port}), 1)",
            "socket.socket(socket.AF_UNIX)",
            "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
            "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('8.8.8.8', 53))",
        ):
            ran = run(pool, f"import socket\n{call}\nprint('open')")
            assert ran.out == ""
            assert "Operation not permitted" in ran.err
        bash = shell(pool, f"echo hi > /dev/tcp/127.0.0.1/{port} && echo open")
        assert "open" not in bash.out
    assert shell(pool, "tail -n +3 /proc/net/dev | grep -v ' lo:'").out == ""


def test_parents_and_others_cannot_be_killed_or_traced(pool: Pool) -> None:
    async def go() -> None:
        async with pool.session() as session:
            await session.python("x = 1")
            for code in (
                "import os\nos.kill(1, 9)",
                "import os\nos.kill(os.getppid(), 15)",
                "import os, signal\nos.kill(1, signal.SIGSTOP)",
            ):
                await session.program(code)
            host = await session.program(f"import os\nos.kill({os.getpid()}, 0)")
            assert "ProcessLookupError" in host.err or os.getpid() < 10
            await session.program("import os\nos.kill(-1, 9)")
            ran = await session.python("1 + 1")
            assert ran.value == "2" or ran.state_lost
            assert (await session.python("2 + 2")).value == "4"

    asyncio.run(go())
    ptrace = (
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.ptrace(16, 1, 0, 0), ctypes.get_errno())"
    )
    assert run(pool, ptrace).out == "-1 1\n"


@pytest.mark.parametrize(
    "call", ["unshare(0x10000000)", "unshare(0x20000)", "mount(b'x', b'/tmp', b'tmpfs', 0, 0)", "chroot(b'/tmp')"]
)
def test_the_filter_refuses_what_leads_out(pool: Pool, call: str) -> None:
    code = f"import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.{call}, ctypes.get_errno())"
    assert run(pool, code).out == "-1 1\n"


def test_a_daemon_does_not_survive(pool: Pool) -> None:
    daemon = (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(600)\n    os._exit(0)"
    )

    async def go() -> None:
        async with pool.session() as session:
            await session.program(daemon)
            await session.command("nohup setsid sleep 600 > /dev/null 2>&1 & disown")
            assert (await session.command("ls -d /proc/[0-9]* | wc -l")).out.strip() in (
                "3",
                "4",
            )  # keeper, shell, ls, wc
            await session.python("import subprocess\np = subprocess.Popen(['sleep', '600'], start_new_session=True)")

    asyncio.run(go())
    assert is_empty(pool)


def test_forged_answers_reach_nobody(pool: Pool) -> None:
    forge = "import os\nfor fd in range(3, 64):\n    try: os.write(fd, b'\\xff' * 5000)\n    except OSError: pass"

    async def go() -> None:
        async with pool.session() as session:
            for _ in range(2):
                ran = await session.python(forge, 0.5)
                assert ran.outcome in ("ok", "ended", "output", "timeout", "error")
            assert (await session.program(forge)).outcome == "ok"
            assert (await session.python("6 * 7")).value == "42"

    asyncio.run(go())


def test_a_fork_inside_a_block_does_not_answer_twice(pool: Pool) -> None:
    async def go() -> list[str]:
        async with pool.session() as session:
            await session.python("import os\nchild = os.fork()")
            return [(await session.python(f"{i} * 10")).value for i in range(5)]

    assert asyncio.run(go()) == ["0", "10", "20", "30", "40"]


def test_sessions_do_not_see_each_other(pool: Pool) -> None:
    async def go() -> None:
        async with pool.session() as a, pool.session() as b:
            await a.write("note", "mine")
            await a.command("cp note /tmp/note; cp note /dev/shm/note")
            await a.python("here = 1")
            for path in ("note", "/tmp/note", "/dev/shm/note"):
                assert (await b.file("read_file", path=path, start=1, lines=0)).outcome == "error"
            assert "NameError" in (await b.python("here")).error
            assert (await b.command("ls -d /proc/[0-9]* | wc -l")).out.strip() in ("4", "5")
            assert (await a.file("read_file", path="note", start=1, lines=0)).out == "mine"

    asyncio.run(go())
