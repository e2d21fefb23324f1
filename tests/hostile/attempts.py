# ruff: noqa: E501
"""What hostile programs try in the sandbox, and what must come of it: the same list for every method of isolation.

``PYTHONPATH=src python -m tests.hostile.attempts`` prints the table that docs/security.md shows.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from recollect.config import Sandbox
from recollect.sandbox import box
from recollect.sandbox.pool import Pool
from recollect.sandbox.sandbox_session import ProgramResult

METHODS = ("namespaces", "bubblewrap", "unsafe")
LIMITS = {"timeout_s": 60.0, "memory_mb": 192, "processes": 12, "output_kb": 64, "disk_mb": 8, "file_mb": 4}


def quiet(ran: ProgramResult) -> bool:
    """The program ran, or failed by itself; nothing broke."""
    return ran.outcome in ("ok", "error", "ended", "timeout")


def refused(ran: ProgramResult) -> bool:
    """The kernel said no, and the attempt did not get its word out."""
    return ran.outcome == "error" and "OPEN" not in ran.out


def silent(ran: ProgramResult) -> bool:
    """Nothing that it looked for was found."""
    return "OPEN" not in ran.out + ran.value


def limited(ran: ProgramResult) -> bool:
    """It was stopped, or could not have the memory."""
    return "HELD" not in ran.out


@dataclass(frozen=True)
class Attempt:
    """A program, how it is run, and what must hold of the result."""

    name: str
    code: str
    holds: Callable[[ProgramResult], bool]
    block: bool = False  # in the session's Python state, not as a program of its own


def _limit(name: str) -> Attempt:
    code = f"import resource\nresource.prlimit(KEEPER, resource.RLIMIT_{name}, (0, 0))\nprint('OPEN')"
    return Attempt(f"set its keeper's {name} limit to 0", code, refused)


_C = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
_WRITE = "import os\nfor fd in range(3, 99):\n    try: os.write(fd, TEXT)\n    except OSError: pass\n"
_HOLD = """
import mmap, os, sys, time
kept = []
def hold():
    for number in range(5):
        m = MAP
        for at in range(0, 20 << 20, 4096): m[at] = 1
        AFTER
        kept.append(m)
for _ in range(4):
    if os.fork() == 0:
        hold()
        time.sleep(20)
        print("HELD", flush=True)
        os._exit(0)
for _ in range(4): os.wait()
"""


def _holds(name: str, made: str, after: str = "m.madvise(mmap.MADV_DONTNEED)") -> Attempt:
    return Attempt(f"hold memory: {name}", _HOLD.replace("MAP", made).replace("AFTER", after), limited)


ATTEMPTS = [
    Attempt("interrupt its keeper", "import os\nos.kill(KEEPER, 2)", quiet),
    Attempt("every signal to its keeper", "import os\nfor n in range(1, 65):\n    try: os.kill(KEEPER, n)\n"
            "    except OSError: pass", quiet),
    Attempt("every signal to all it can see", "import os\nfor n in (2, 15, 19, 9):\n    try: os.kill(-1, n)\n"
            "    except OSError: pass", quiet),
    *map(_limit, ("CPU", "NOFILE", "FSIZE", "NPROC", "AS")),
    Attempt("its keeper's priority", "import os\nos.setpriority(os.PRIO_PROCESS, KEEPER, 19)\nprint('OPEN')", refused),
    Attempt("the priority of all of its user", "import os\nos.setpriority(os.PRIO_USER, 0, 19)\nprint('OPEN')", refused),
    Attempt("its keeper's processors", "import os\nos.sched_setaffinity(KEEPER, {0})\nprint('OPEN')", refused),
    Attempt("its keeper's scheduler", "import os\nos.sched_setscheduler(KEEPER, os.SCHED_IDLE, os.sched_param(0))\n"
            "print('OPEN')", refused),
    Attempt("its keeper's disk priority", f"{_C}print('OPEN' if libc.syscall(251, 1, KEEPER, 3 << 13) == 0 else '')",
            silent),
    Attempt("200 kB of [ into the control pipe", _WRITE.replace("TEXT", "(200000).to_bytes(4, 'big') + b'[' * 200000"),
            quiet, block=True),
    Attempt("a control message of wrong types", _WRITE.replace(
        "TEXT", "(lambda b: len(b).to_bytes(4, 'big') + b)(b'{\"value\": [[1]], \"error\": {}}')"), quiet, block=True),
    Attempt("a control message without end", _WRITE.replace("TEXT", "b'\\xff\\xff\\xff\\xff{'"), quiet, block=True),
    Attempt("half a character as its value", "class A:\n    __repr__ = lambda self: '\\ud800'\nA()",
            lambda ran: "\ud800" not in ran.value, block=True),
    Attempt("half a character in its code", "x = '\ud800'", quiet, block=True),
    Attempt("leave no room for another process", "import threading, time\nfor _ in range(11):\n"
            "    try: threading.Thread(target=time.sleep, args=(99,), daemon=True).start()\n    except RuntimeError: pass",
            lambda ran: True, block=True),
    Attempt("fill the disk", "for i in range(9):\n    try: open(f'{i}', 'wb').write(b'x' * 1_500_000)\n"
            "    except OSError: pass", lambda ran: True),
    _holds("shared without a file", "mmap.mmap(-1, 20 << 20)"),
    _holds("shared, all but a page let go", "mmap.mmap(-1, 20 << 20)",
           "import ctypes; ctypes.CDLL(None).munmap(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(m)) + 4096)"
           ", ctypes.c_size_t((20 << 20) - 4096))"),
    _holds("a shared map of /dev/zero", "mmap.mmap(os.open('/dev/zero', os.O_RDWR), 20 << 20)"),
    _holds("a memory file", "mmap.mmap(os.memfd_create('x'), 20 << 20)"),
    _holds("a file in /dev/shm", "(lambda f: (os.ftruncate(f, 20 << 20), mmap.mmap(f, 20 << 20))[1])"
           "(os.open('/dev/shm/x%d-%d' % (os.getpid(), number), os.O_RDWR | os.O_CREAT))", "pass"),
    _holds("System V", f"(lambda c: c if c.shmget(0, 20 << 20, 0o1600) >= 0 else None)({'__import__'}('ctypes').CDLL(None))",
           "pass"),
    Attempt("hold memory: processes whose first thread is gone", """
import ctypes, os, threading, time
def hold():
    time.sleep(0.2)
    kept = bytearray(60_000_000)
    time.sleep(20)
    os.write(1, b"HELD")
for _ in range(4):
    if os.fork() == 0:
        threading.Thread(target=hold).start()
        time.sleep(0.1)
        ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)
for _ in range(4): os.wait()
""", limited),
    Attempt("fill the process table with dead children", """
import os, time
try:
    for _ in range(40):
        child = os.fork()
        if child == 0: os._exit(0)
        os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    time.sleep(0.5)
    print("HELD", flush=True)
except BlockingIOError: pass
""", limited),
    Attempt("fill the process table with dead orphans", """
import os, time
for _ in range(40):
    try: child = os.fork()
    except BlockingIOError: break
    if child == 0:
        try: os._exit(0 * os.fork())
        except BlockingIOError: os._exit(1)
    if os.waitpid(child, 0)[1]: break
else:
    time.sleep(0.5)
    print("HELD", flush=True)
""", limited),
    Attempt("send to a socket by its path", "import socket\na, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
            "try: a.sendto(b'x', '/run/x')\nexcept FileNotFoundError: pass\nprint('OPEN')", refused),
    Attempt("a socket of any kind", "import socket\nfor kind in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, 16, 38, 40):\n"
            "    try:\n        socket.socket(kind, socket.SOCK_RAW if kind == 16 else socket.SOCK_STREAM)\n        print('OPEN')\n"
            "    except OSError: pass", silent),
    Attempt("be root", "import os\nprint('OPEN' if 0 in (os.getuid(), os.geteuid(), os.getgid()) else '')", silent),
    Attempt("regain rights", "import os\nfor f in (os.setuid, os.setgid):\n    try: f(0); print('OPEN')\n"
            "    except OSError: pass", silent),
    Attempt("read the host's accounts", "try: print('OPEN' if 'root:' in open('/etc/passwd').read() else '')\n"
            "except OSError: pass", silent),
    Attempt("read the host's other files", "import os\nfor p in ('/etc/shadow', '/etc/hostname', '/root', '/home', '/sys', '/run',"
            " '/var/log'):\n    try: print('OPEN', p, os.listdir(p) if os.path.isdir(p) else open(p).read())\n"
            "    except OSError: pass", silent),
    Attempt("see the host's shared memory", "import os\ntry: print('OPEN' if 'of-the-host' in str(os.listdir('/dev/shm')) else '')\n"
            "except OSError: pass", silent),
    Attempt("see the host's processes", "try: print('OPEN' if b'hostile' in open('/proc/HOST/cmdline', 'rb').read() else '')\n"
            "except OSError: pass", silent),
    Attempt("open a device", "import os\nfor p in ('kvm', 'sda', 'vda', 'mem', 'kmsg', 'fuse', 'net/tun', 'nvidia0', 'tty0'):\n"
            "    try: os.open('/dev/' + p, os.O_RDONLY); print('OPEN', p)\n    except OSError: pass", silent),
    Attempt("write beside its own files", "import os\nfor p in ('/x', '/usr/x', '/etc/x', '/dev/x', '/var/tmp/x', '/proc/1/oom_score_adj',"
            " '/proc/self/oom_score_adj', '/proc/sys/kernel/core_pattern'):\n    try: open(p, 'w').write('1'); print('OPEN', p)\n"
            "    except OSError: pass", silent),
    Attempt("trace its keeper", f"{_C}print('OPEN' if libc.ptrace(16, KEEPER, 0, 0) == 0 else '')\n"
            "try: open('/proc/%d/mem' % KEEPER, 'rb'); print('OPEN')\nexcept OSError: pass", silent),
    Attempt("new namespaces and mounts", f"{_C}for call in (lambda: libc.unshare(0x10000000), lambda: libc.unshare(0x20000),\n"
            "    lambda: libc.mount(b'x', b'/tmp', b'tmpfs', 0, 0), lambda: libc.chroot(b'/tmp')):\n"
            "    print('OPEN' if call() == 0 else '')", silent),
]  # fmt: skip


@contextmanager
def opened(method: str) -> Iterator[Pool]:
    """A sandbox by one method."""
    plain = box.methods
    if method == "unsafe":
        box.methods = lambda cfg: []
    try:
        made = Pool(
            Sandbox(**LIMITS, isolation="auto" if method == "unsafe" else method, allow_unsafe=method == "unsafe")
        )  # type: ignore[arg-type]
        made.start()
        yield made
        made.close()
    finally:
        box.methods = plain


def has(method: str) -> bool:
    """Whether this machine has a method."""
    if method == "bubblewrap" and not shutil.which("bwrap"):
        return False
    try:
        with opened(method):
            return True
    except Exception:
        return False


async def attempt(pool: Pool, made: Attempt, host: int) -> tuple[ProgramResult, str]:
    """What came of an attempt, and whether its session, or else a new one, works afterwards."""
    async with pool.session() as session:
        keeper = (await session.program("import os\nprint(os.getppid())")).out.strip()
        code = made.code.replace("KEEPER", keeper).replace("HOST", str(host))
        ran = await (session.python(code, 0.5) if made.block else session.program(code))
        if not session.closed:
            after = await session.program("print(input())", "fine")
            again = await session.python("6 * 7")
            fine = (after.out == "fine\n" or after.outcome == "ended") and (again.value == "42" or again.state_lost)
            return ran, "its session goes on" if fine else f"BROKEN: {after} {again}"
    return ran, "the session ended"


def rows(method: str, host: int) -> Iterator[tuple[Attempt, ProgramResult, str, float]]:
    """Every attempt by one method."""
    with opened(method) as pool:
        for made in ATTEMPTS:
            start = time.monotonic()
            ran, after = asyncio.run(attempt(pool, made, host))
            yield made, ran, after, time.monotonic() - start


def table(host: int) -> list[str]:
    """Lines of a Markdown table: a line for each attempt, a column for each method."""
    found: dict[str, dict[str, str]] = {made.name: {} for made in ATTEMPTS}
    there = [method for method in METHODS if has(method)]
    for method in there:
        for made, ran, after, _ in rows(method, host):
            held = made.holds(ran) and "BROKEN" not in after
            found[made.name][method] = f"{'held' if held else 'FAILED'} ({ran.outcome})"
    lines = [f"| attempt | {' | '.join(there)} |", f"|---{'|---' * len(there)}|"]
    return lines + [f"| {name} | {' | '.join(row[m] for m in there)} |" for name, row in found.items()]


if __name__ == "__main__":
    import os

    print("\n".join(table(os.getpid())))
