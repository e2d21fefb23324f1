"""A program that keeps another one: it starts it in a process group of its own and ends the group with its owner.

The owner holds the other end of standard input. When that closes, however the owner ended, or when the program ends by
itself, every process of the group is ended, and shared memory and temporary files that they left behind are removed. It
uses the standard library alone: the program may belong to another Python. It prints a line of JSON when it has started it, and one with
its exit status at the end.

    python process_keeper.py [--apart] LOG COMMAND...

With --apart it is no child of its owner, for owners whose children are ended with them before they can tidy up.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

KEEPER = "RECOLLECT_KEEPER"  # tells the program's workers who keeps them
GRACE_S = 3.0  # between the request to end and the end
LOOK_S = 0.5
SHARED = Path("/dev/shm")
# names that Python, torch, vLLM (workers of one server on CPUs) and NCCL give to shared memory
KINDS = ("psm_", "sem.mp-", "torch_", "sem.loky-", "vllm_", "nccl-")
COMPILED = "TORCHINDUCTOR_CACHE_DIR"
PR_SET_PDEATHSIG = 1


def members(group: int) -> list[int]:
    """The processes of a group that are not zombies."""
    found = []
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if entry.isdigit():
            with suppress(OSError, ValueError, IndexError):
                state, _, of = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()[:3]
                if int(of) == group and state != "Z":
                    found.append(int(entry))
    return found


def shared_memory(processes: list[int]) -> Iterator[str]:
    """Names of the shared memory that processes have mapped: by inode, for semaphores are mapped under another name."""
    inodes = set()
    for process in processes:
        with suppress(OSError):
            for line in Path("/proc", str(process), "maps").read_text().splitlines():
                if "/dev/shm/" in line:
                    inodes.add(int(line.split()[4]))
    for entry in os.scandir(SHARED) if inodes else ():
        if entry.name.startswith(KINDS) and entry.inode() in inodes:
            yield entry.name


def end(group: int) -> None:
    """Ask the processes of a group to end, and end those that do not."""
    for kind, wait in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, kind)
            os.killpg(group, signal.SIGCONT)  # one that is stopped would not hear of it
        until = time.monotonic() + wait
        while members(group) and time.monotonic() < until:
            with suppress(ChildProcessError):
                os.waitpid(-1, os.WNOHANG)
            time.sleep(0.05)


def die_with_parent() -> None:
    """In the program, before it starts: end when the keeper is killed."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def keep(log: str, command: list[str]) -> int:
    """Run a program until it ends or the owner is gone; returns its exit status."""
    folder = tempfile.mkdtemp(prefix="recollect-")
    environment = {**os.environ, KEEPER: str(os.getpid()), "TMPDIR": folder}
    environment.setdefault(COMPILED, os.path.join(tempfile.gettempdir(), f"torchinductor_{os.getuid()}"))  # is kept
    with open(log, "ab") as out:
        kept = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            env=environment,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    print(json.dumps({"group": kept.pid, "keeper": os.getpid()}), flush=True)
    held: set[str] = set()
    try:
        while kept.poll() is None:
            held |= set(shared_memory(members(kept.pid)))
            readable, _, _ = select.select([sys.stdin], [], [], LOOK_S)
            if readable and not os.read(sys.stdin.fileno(), 1):
                break
    finally:
        held |= set(shared_memory(members(kept.pid)))
        end(kept.pid)
        for name in held:
            with suppress(OSError):
                (SHARED / name).unlink()
        shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):  # the owner may be gone
        print(json.dumps({"code": kept.wait()}), flush=True)
    return kept.wait()


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if arguments[0] == "--apart":
        if os.fork():
            os._exit(0)
        arguments = arguments[1:]
    for kind in (signal.SIGINT, signal.SIGHUP):
        signal.signal(kind, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    sys.exit(keep(arguments[0], arguments[1:]))
