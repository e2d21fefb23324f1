"""The keeper of one session: it starts what is asked for, watches it against the limits, and answers.

In a namespace of its own it is process 1, so nothing inside can kill it, and when it ends everything inside ends. The
walls are up before it reads its first request; what it forks is behind them too.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from recollect.sandbox.inside import cell, files, kernel, landlock, unsafe, usage, wire
from recollect.sandbox.inside.view import WORKSPACE
from recollect.sandbox.inside.walls import walls, writable

LOOK_EVERY_S = 0.05  # seconds between two looks at what is used
GRACE = 0.5  # seconds that a block gets to leave after an interrupt, so that the state survives
MAX_REQUEST = 64_000_000
_NAMES = "HUP INT QUIT ABRT USR1 USR2 ALRM TERM TSTP TTIN TTOU XCPU VTALRM PROF IO PWR"
IGNORED = [signal.Signals[f"SIG{name}"] for name in _NAMES.split(" ")]
NOTHING: dict[str, Any] = {"state_lost": True, "code": -9, "value": "", "error": "", "out": "", "err": ""}
MB = 1 << 20


@dataclass
class Child:
    """A process that was started, and the pipes that come out of it."""

    pid: int
    pidfd: int
    out: int
    err: int
    requests: int = -1  # of the process that holds the Python state
    control: int = -1

    def close(self) -> None:
        """Close what belongs to it."""
        for fd in (self.pidfd, self.out, self.err, self.requests, self.control):
            if fd >= 0:
                os.close(fd)


@dataclass
class CallOutput:
    """What was seen of one call."""

    out: bytearray = field(default_factory=bytearray)
    err: bytearray = field(default_factory=bytearray)
    control: bytearray = field(default_factory=bytearray)
    verdict: str = ""  # the limit that was passed, if any
    ended: bool = False  # the process is gone


class Keeper:
    """One session."""

    def __init__(self, sock: socket.socket, plan: dict[str, Any], workspace: str) -> None:
        self.sock, self.limits, self.workspace = sock, plan["limits"], workspace
        self.env = {**plan["env"], "HOME": workspace}
        self.plan = plan
        self.cell: Child | None = None
        self.started = False  # a program of the model's has run here
        self.dispositions = {number: signal.getsignal(number) for number in IGNORED}
        for number in IGNORED:
            signal.signal(number, signal.SIG_IGN)  # process 1 is safe from others only where it has no handler

    def serve(self) -> None:
        """Answer requests until the other side is gone."""
        while (head := self._receive(wire.HEAD)) and (size := wire.size(head)) <= MAX_REQUEST:
            request = wire.unpack(self._receive(size))
            started = time.monotonic()
            answer = self._answer(request)
            self.sock.sendall(wire.pack({**answer, "seconds": time.monotonic() - started}))

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """What a request asks for; what fails once a program has run is that program's doing, and a verdict."""
        try:
            return getattr(self, f"do_{request['op']}")(request)
        except (OSError, ValueError, MemoryError, RecursionError) as error:
            if not self.started:
                raise
            self._drop_cell()
            usage.end_all(os.getpid())
            said = f"{type(error).__name__}: {error}"
            return {
                "outcome": "ended",
                "state_lost": True,
                "code": -9,
                "value": "",
                "error": "",
                "out": "",
                "err": said,
            }

    def _begin(self) -> None:
        """Tell the host that from here on a break is the program's doing."""
        if not self.started:
            self.started = True
            self.sock.sendall(wire.pack({"started": True}))

    def _drop_cell(self) -> None:
        if self.cell is not None:
            self._finish(self.cell)
            self.cell = None

    def _receive(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            data = self.sock.recv(min(count - len(parts), MB))
            if not data:
                return b""
            parts += data
        return bytes(parts)

    def do_python(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a block in the session's Python state."""
        gone = self.cell is not None and bool(select.select([self.cell.pidfd], [], [], 0)[0])
        if gone:  # something killed it between two calls
            self._drop_cell()
        self._begin()
        if self.cell is None:
            self.cell = self._start_cell()
        child, code = self.cell, request["code"].encode("utf-8", "surrogatepass")
        os.kill(child.pid, signal.SIGCONT)
        before = usage.read(child.pid)
        with contextlib.suppress(BrokenPipeError), open(child.requests, "wb", closefd=False) as pipe:
            pipe.write(len(code).to_bytes(wire.HEAD, "big") + code)
        seen = self._watch(child, request["timeout"], 0.0 if before is None else before.cpu)
        result: dict[str, Any] = {"value": "", "error": ""}
        try:
            if seen.control:
                said = wire.unpack(bytes(seen.control[wire.HEAD :]))
                result = {name: wire.text(said, name, 2 * cell.MAX_VALUE) for name in result}
        except ValueError:
            seen.ended = True
        lost = seen.ended or not seen.control
        if lost:
            self._drop_cell()
        else:
            os.kill(child.pid, signal.SIGSTOP)  # nothing runs between two calls
        usage.end_all(os.getpid(), 0 if lost else child.pid)
        verdict = seen.verdict or ("ended" if lost else "error" if result["error"] else "ok")
        return {"outcome": verdict, "state_lost": lost or gone, "code": 0, **result, **self._texts(seen)}

    def do_program(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a text as a Python program of its own."""
        self._begin()
        return self._once(lambda: cell.run_program(request["code"], request["argv"]), request)

    def do_command(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a command of the shell."""
        self._begin()
        shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"

        def run() -> int:
            os.execve(shell, [shell, "-c", request["command"]], self.env)

        return self._once(run, request)

    def do_file(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run a file operation, in a process of its own because the model's files are not to be trusted."""

        def run() -> int:
            status, text = files.run(request["name"], request["arguments"])
            with open(1 if status == 0 else 2, "w", encoding="utf-8", errors="replace", closefd=False) as stream:
                stream.write(text)
            return status

        return self._once(run, request)

    def _once(self, run: Callable[[], int], request: dict[str, Any]) -> dict[str, Any]:
        with self._input(request.get("stdin", "")) as stdin:
            child, lost = self._room_for(lambda: self._fork(run, stdin.fileno(), request["timeout"]))
        seen = self._watch(child, request["timeout"], 0.0)
        status = self._finish(child)
        usage.end_all(os.getpid(), self.cell.pid if self.cell else 0)
        by_signal = {-signal.SIGXCPU: "cpu", -signal.SIGKILL: "ended"}.get(status, "error")
        verdict = seen.verdict or ("ok" if status == 0 else by_signal)
        return {"outcome": verdict, "state_lost": lost, "code": status, "value": "", "error": "", **self._texts(seen)}

    def _room_for(self, start: Callable[[], Child]) -> tuple[Child, bool]:
        """Start a process; the Python state goes when its threads leave no room for one."""
        try:
            return start(), False
        except OSError:
            if self.cell is None:
                raise
            self._drop_cell()
            return start(), True

    @contextlib.contextmanager
    def _input(self, text: str) -> Iterator[IO[bytes]]:
        if not text:
            with open(os.devnull, "rb") as nothing:
                yield nothing
            return
        with tempfile.TemporaryFile(dir=self.workspace) as file:
            file.write(text.encode("utf-8", "replace"))
            file.seek(0)
            yield file

    def _texts(self, seen: CallOutput) -> dict[str, str]:
        return {"out": seen.out.decode("utf-8", "replace"), "err": seen.err.decode("utf-8", "replace")}

    def _start_cell(self) -> Child:
        requests, control = os.pipe(), os.pipe()

        def run() -> int:
            cell.serve(requests[0], control[1])
            return 0

        with open(os.devnull, "rb") as nothing:
            child = self._fork(run, nothing.fileno(), None, (requests[0], control[1]))
        os.close(requests[0])
        os.close(control[1])
        child.requests, child.control = requests[1], control[0]
        return child

    def _fork(self, run: Callable[[], int], stdin: int, seconds: float | None, keep: tuple[int, ...] = ()) -> Child:
        out, err = os.pipe(), os.pipe()
        try:
            pid = os.fork()
        except OSError:
            for fd in (*out, *err):
                os.close(fd)
            raise
        if pid == 0:
            status = 1
            try:
                self._become(stdin, out[1], err[1], seconds, keep)
                status = run()
            except MemoryError:
                os.write(2, b"MemoryError")
            except BaseException as error:
                os.write(2, f"{type(error).__name__}: {error}".encode())
            finally:
                os._exit(status)
        os.close(out[1])
        os.close(err[1])
        return Child(pid, os.pidfd_open(pid), out[0], err[0])

    def _become(self, stdin: int, out: int, err: int, seconds: float | None, keep: tuple[int, ...]) -> None:
        """In a new child: its standard streams, its own limits, and nothing else of the keeper's."""
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # where the keeper is not process 1
        os.setsid()
        for ignored, was in self.dispositions.items():
            signal.signal(ignored, was or signal.SIG_DFL)
        self._part()
        for number, fd in enumerate((stdin, out, err)):
            os.dup2(fd, number)
        first = 3
        for fd in sorted(keep):
            os.closerange(first, fd)
            first = fd + 1
        os.closerange(first, 1024)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        memory = self.limits["memory_mb"] * MB
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        if seconds is not None:
            cpu = max(1, int(self.limits["cpu_s"] + 0.999))
            resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
        os.environ.clear()
        os.environ.update(self.env)

    def _part(self) -> None:
        """In a new child: it cannot signal its keeper nor what another call has started, nor see others of the host."""
        if self.plan["method"] == "none":
            readable = [*self.plan["readable"], *unsafe.NEEDED, f"/proc/{os.getpid()}"]
            landlock.install(readable, writable(self.plan, self.workspace))
        else:
            landlock.part_from_others()

    def _watch(self, child: Child, seconds: float, cpu_before: float) -> CallOutput:
        """Read what a child says until it is done or a limit is passed."""
        seen, poller = CallOutput(), select.poll()
        sinks = {child.out: seen.out, child.err: seen.err}
        if child.control >= 0:
            sinks[child.control] = seen.control
        for fd in (*sinks, child.pidfd, self.sock.fileno()):
            poller.register(fd, select.POLLIN)
        before = self._ended_cpu() + cpu_before
        now = time.monotonic()
        until, look = now + seconds, now + LOOK_EVERY_S
        while not (seen.ended or _complete(seen.control)):
            for fd, _ in poller.poll(max(0.0, min(look, until) - now) * 1000):
                if fd == self.sock.fileno():
                    self._leave()
                elif fd == child.pidfd:
                    seen.ended = True
                elif not self._read(fd, sinks[fd]):
                    poller.unregister(fd)
            now = time.monotonic()
            if seen.verdict and now >= until:
                break
            if not seen.verdict and not seen.ended:
                seen.verdict = self._passed(seen, before, now >= look, now >= until)
                if seen.verdict and (child.control < 0 or seen.verdict not in ("timeout", "cpu")):
                    break
                if seen.verdict:
                    os.kill(child.pid, signal.SIGINT)
                    until = now + GRACE
            if now >= look:
                look = now + LOOK_EVERY_S
        for fd, sink in sinks.items():
            os.set_blocking(fd, False)
            while len(sink) <= self._bound() and self._read(fd, sink):
                pass
        if not seen.verdict and self._flooded(seen):
            seen.verdict = "output"
        for sink in (seen.out, seen.err):
            del sink[self._bound() :]
        return seen

    def _passed(self, seen: CallOutput, cpu_before: float, look: bool, late: bool) -> str:
        """The limit that a call has passed, or nothing."""
        if late:
            return "timeout"
        if self._flooded(seen):
            return "output"
        if not look:
            return ""
        below = usage.descendants(os.getpid())
        if sum(p.threads for p in below) > self.limits["processes"]:  # the dead have a place until they are buried
            return "processes"
        memory = self.limits["memory_mb"] * MB
        if sum(p.size for p in below) > memory and usage.memory(below) > memory:
            return "memory"
        cpu = sum(p.cpu for p in below) + self._ended_cpu() - cpu_before
        return "cpu" if cpu > self.limits["cpu_s"] else ""

    def _ended_cpu(self) -> float:
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        return spent.ru_utime + spent.ru_stime

    def _bound(self) -> int:
        return int(self.limits["output_kb"] * 1024)

    def _flooded(self, seen: CallOutput) -> bool:
        return len(seen.out) + len(seen.err) > self._bound() or len(seen.control) > 16 * cell.MAX_VALUE

    def _read(self, fd: int, sink: bytearray) -> bool:
        """Take what a pipe holds; False when there is no more to come, or nothing now."""
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return False
        if len(sink) <= max(self._bound(), 16 * cell.MAX_VALUE):
            sink += data
        return bool(data)

    def _finish(self, child: Child) -> int:
        """Make sure that a child is gone; its exit status, negative for a signal."""
        with contextlib.suppress(OSError):
            os.kill(child.pid, signal.SIGKILL)
        _, status = os.waitpid(child.pid, 0)
        child.close()
        return os.waitstatus_to_exitcode(status)

    def _leave(self) -> None:
        """The host has gone or does not want the answer any more."""
        if os.getpid() != 1:
            usage.end_all(os.getpid())
        os._exit(0)


def _complete(control: bytearray) -> bool:
    return len(control) >= wire.HEAD and len(control) >= wire.HEAD + wire.size(bytes(control[: wire.HEAD]))


def keep(sock: socket.socket, plan: dict[str, Any], nested: bool, check: bool = False) -> None:
    """Be a session's keeper, in a process that has just been made for it; with ``check`` only say what walls stand."""
    try:
        os.setsid()
        workspace = plan["workspace"] or WORKSPACE
        if plan["method"] == "none":
            workspace = tempfile.mkdtemp(dir=workspace)
        os.chdir(workspace)
        standing = walls(plan, nested, workspace)
        if check:
            sock.sendall(wire.pack({"walls": standing}))
        else:
            Keeper(sock, plan, workspace).serve()
            usage.end_all(os.getpid())
    except BaseException as error:
        with contextlib.suppress(OSError):
            sock.sendall(wire.pack({"outcome": "broken", "error": f"{type(error).__name__}: {error}"}))
    os._exit(0)
