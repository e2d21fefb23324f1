"""What a tree of processes uses, and ending it: read from /proc, because one process's limits say nothing of many."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class ProcessUsage:
    """One line of the process table."""

    pid: int
    parent: int
    state: str
    cpu: float  # seconds, with those of its children that have ended
    threads: int
    size: int  # bytes of all its mappings, touched or not
    task: int  # a thread that lives: the process itself, unless its first thread has ended before others

    @property
    def dead(self) -> bool:
        """True when nothing of it runs any more."""
        return self.state in "ZX"


def read(pid: int) -> ProcessUsage | None:
    """One process, if it is still there."""
    try:
        values = _stat(f"/proc/{pid}/stat")
    except OSError:
        return None
    parent, threads = int(values[1]), int(values[17])
    cpu = sum(int(values[i]) for i in (11, 12, 13, 14)) / _TICKS
    if values[0] == b"Z" and threads > 1:
        return _headless(pid, parent, cpu, threads)
    return ProcessUsage(pid, parent, values[0].decode(), cpu, threads, int(values[20]), pid)


def _headless(pid: int, parent: int, cpu: float, threads: int) -> ProcessUsage:
    """A process whose first thread has ended before others: it looks dead and empty, but is not."""
    try:
        task = max(map(int, os.listdir(f"/proc/{pid}/task")))
        size = int(_stat(f"/proc/{pid}/task/{task}/stat")[20])
    except (OSError, ValueError):
        task, size = pid, 0
    return ProcessUsage(pid, parent, "R", cpu, threads, size, task)


def _stat(path: str) -> list[bytes]:
    with open(path, "rb") as file:
        return file.read().rpartition(b")")[2].split()


def descendants(root: int) -> list[ProcessUsage]:
    """All processes below ``root``, which adopts orphans."""
    try:
        table = [p for p in map(read, map(int, filter(str.isdigit, os.listdir("/proc")))) if p is not None]
    except OSError:
        return []
    children: dict[int, list[ProcessUsage]] = {}
    for process in table:
        children.setdefault(process.parent, []).append(process)
    found, waiting = [], [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += [p.pid for p in below]
    return found


def memory(processes: list[ProcessUsage]) -> int:
    """Bytes that are not a file's, in memory or swapped out. The filter refuses shared memory that is in no file."""
    return sum(map(_private, processes))


def _private(process: ProcessUsage) -> int:
    try:
        with open(f"/proc/{process.pid}/task/{process.task}/status", "rb") as file:
            lines = [line.split() for line in file if line.startswith((b"RssAnon:", b"VmSwap:"))]
    except OSError:
        return 0
    return sum(int(line[1]) for line in lines) * 1024


def end_all(root: int, but: int = 0) -> None:
    """Kill every process below ``root`` except ``but``, until none is left to fork another."""
    for attempt in range(200):
        alive = [p for p in descendants(root) if p.pid != but and not p.dead]
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
