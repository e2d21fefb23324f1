"""What a tree of processes uses, and ending it: read from /proc, because one process's limits say nothing of many."""

from __future__ import annotations

import os
import resource
import signal
import time
from dataclasses import dataclass

_PAGE = resource.getpagesize()
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """One line of the process table."""

    pid: int
    parent: int
    state: str
    cpu: float  # seconds, with those of its children that have ended
    threads: int
    resident: int  # bytes


def read(pid: int) -> Process | None:
    """One process, if it is still there."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            values = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    cpu = sum(int(values[i]) for i in (11, 12, 13, 14)) / _TICKS
    return Process(pid, int(values[1]), values[0].decode(), cpu, int(values[17]), int(values[21]) * _PAGE)


def descendants(root: int) -> list[Process]:
    """All processes below ``root``, which adopts orphans."""
    try:
        table = [p for p in map(read, map(int, filter(str.isdigit, os.listdir("/proc")))) if p is not None]
    except OSError:
        return []
    children: dict[int, list[Process]] = {}
    for process in table:
        children.setdefault(process.parent, []).append(process)
    found, waiting = [], [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += [p.pid for p in below]
    return found


def private_bytes(process: Process) -> int:
    """Memory that is not a file's: what a process costs beyond the programs that all share."""
    total = 0
    try:
        with open(f"/proc/{process.pid}/status") as file:
            for line in file:
                if line.startswith(("RssAnon:", "RssShmem:")):
                    total += int(line.split()[1]) * 1024
    except OSError:
        return 0
    return total


def end_all(root: int, but: int = 0) -> None:
    """Kill every process below ``root`` except ``but``, until none is left to fork another."""
    for attempt in range(200):
        alive = [p for p in descendants(root) if p.pid != but and p.state not in "ZX"]
        for process in alive:
            try:
                os.kill(process.pid, signal.SIGKILL)
            except OSError:
                continue
        reap(but)
        if not alive:
            return
        time.sleep(0.0005 * min(attempt + 1, 20))


def reap(but: int = 0) -> None:
    """Collect dead children, but leave the state of ``but`` to be asked for."""
    while True:
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None or found.si_pid == but:
                return
            os.waitpid(found.si_pid, 0)
        except ChildProcessError:
            return
