"""A box: one isolated zygote, started by the strongest method that works here."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from typing import Any

from recollect.config import Sandbox
from recollect.sandbox.contents import environment, interpreter, make_plan, source_root
from recollect.sandbox.inside.view import USER, WORKSPACE
from recollect.sandbox.scratch import ScratchFolder
from recollect.types import BadInput

START_S = 30.0
BOOT = (
    "import sys; sys.path.insert(0, sys.argv[2]);"
    "from recollect.sandbox.inside.zygote import main; main(int(sys.argv[1]))"
)


class Box:
    """A running zygote; sessions are opened by sending it one end of a socket pair."""

    def __init__(self, cfg: Sandbox, method: str, problems: Sequence[str] = ()) -> None:
        self.method = method
        self.problems = tuple(problems)  # why no better method is used
        self._scratch = ScratchFolder()
        self._count = 0
        self.alive = True
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._zygote = ours
        try:
            plan = make_plan(cfg, method, self._scratch.path)
            python = [interpreter(), "-I", "-S", "-c", BOOT, str(theirs.fileno()), str(source_root())]
            self._process = subprocess.Popen(
                [*_isolating_command(plan), *python],
                env=environment(os.path.dirname(os.path.dirname(interpreter())), []),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
                cwd="/",
            )
            theirs.close()
            ours.settimeout(START_S)
            said = self._greet(plan)
        except BaseException:
            self.close()
            raise
        finally:
            theirs.close()
        self.nested = bool(said["nested"])
        self.walls = [self.method, *map(str, said["walls"])]

    def _greet(self, plan: dict[str, Any]) -> dict[str, Any]:
        """Send the plan and receive the names of the walls; OSError if the box could not be made."""
        try:
            self._zygote.send(json.dumps(plan).encode())
            answer = self._zygote.recv(65536)
        except OSError:
            answer = b""
        if not answer:
            self._process.kill()
            assert self._process.stderr is not None
            lines = self._process.stderr.read(4096).decode("utf-8", "replace").strip().splitlines()
            raise OSError(lines[-1] if lines else "the process ended")
        said = json.loads(answer)
        if "failed" in said:
            raise OSError(said["failed"])
        return said

    def open(self) -> tuple[int, socket.socket]:
        """A new session: its number and the socket to talk to it."""
        ours, theirs = socket.socketpair()
        self._count += 1
        with theirs:
            try:
                socket.send_fds(self._zygote, [json.dumps({"session": self._count}).encode()], [theirs.fileno()])
            except OSError:
                ours.close()
                self.close()
                raise
        ours.setblocking(False)
        return self._count, ours

    def end(self, session: int) -> None:
        """End a session with everything that runs in it."""
        try:
            self._zygote.send(json.dumps({"session": session}).encode())
        except OSError:
            self.close()

    def close(self) -> None:
        """End the box with everything that runs in it."""
        self.alive = False
        self._zygote.close()  # the zygote ends when it reads this, and is process 1 of all that is inside
        if process := getattr(self, "_process", None):
            process.kill()
            process.wait()
            process.stderr.close()
        self._scratch.close()


def _isolating_command(plan: dict[str, Any]) -> list[str]:
    """The command that isolates what follows it; nothing where the zygote does it itself."""
    if plan["method"] != "bubblewrap":
        return []
    command = ["bwrap", "--unshare-all", "--new-session", "--as-pid-1"]
    command += ["--unshare-user", "--uid", str(USER), "--gid", str(USER), "--hostname", "sandbox"]
    size = str(plan["limits"]["disk_mb"] << 20)
    command += ["--cap-add", "CAP_SYS_ADMIN"] if plan["own_folders"] else []  # a session has no capability
    for folder in ("/tmp", WORKSPACE):
        command += ["--dir", folder] if plan["own_folders"] else ["--size", size, "--tmpfs", folder]
    for source, target in [*plan["binds"], *_sources()]:
        command += ["--ro-bind", source, target]
    for name, target in plan["links"].items():
        command += ["--symlink", target, name]
    command += ["--proc", "/proc", "--dev", "/dev", "--dev-bind", "/dev/full", "/dev/zero"]  # see view.DEVICES
    command += [] if plan["own_folders"] else ["--size", size, "--tmpfs", "/dev/shm"]
    return [*command, "--remount-ro", "/", "--chdir", "/", "--"]


def _sources() -> list[list[str]]:
    """The few source files that the zygote loads inside."""
    root = source_root() / "recollect"
    return [[str(root / name), str(root / name)] for name in ("__init__.py", "sandbox")]


def methods(cfg: Sandbox) -> list[str]:
    """What to try, the strongest first.

    As root, namespaces come first: they give the rights of root away. With bubblewrap programs stay root outside their
    user namespace, for whom limits on processes do not hold. For others bubblewrap comes first: it may have rights that
    they do not have. One that is named is the only one, unless it is allowed to go without: every other is better than
    none.
    """
    found = ["bubblewrap"] if shutil.which("bwrap") else []
    best = ["namespaces", *found] if os.geteuid() == 0 else [*found, "namespaces"]
    if cfg.isolation == "auto":
        return best
    others = [method for method in best if method != cfg.isolation] if cfg.allow_unsafe else []
    return [cfg.isolation, *others]


def isolation_warning(box: Box) -> str:
    """The warning for a box without the wanted isolation; empty if it has it."""
    if box.method != "none":
        return f"sandbox: {'; '.join(box.problems)}; {box.method} is used instead" if box.problems else ""
    user = "nobody" if "nobody" in box.walls else "the user of this process"
    files = "only its own files and the system's programs" if "landlock" in box.walls else "EVERY FILE OF THIS MACHINE"
    if not {"landlock", "seccomp"} - set(box.walls):
        rest = "it shares the kernel's process and network tables with this machine"
    else:
        missing = " and ".join(name for name in ("landlock", "seccomp") if name not in box.walls)
        rest = f"this kernel has no {missing}, so signals, sockets or other processes may be within reach"
    why = "; ".join(box.problems) or "no method is there"
    return (
        f"sandbox.allow_unsafe: what the model writes is NOT isolated ({why}). It runs as {user}, reads {files}, "
        f"and {rest}. See docs/security.md"
    )


def open_box(cfg: Sandbox) -> Box:
    """A box by the first method that works; BadInput if none does and running without isolation is not allowed."""
    if os.uname().sysname != "Linux":
        raise BadInput("the sandbox needs Linux")
    problems: list[str] = []
    for method in methods(cfg):
        try:
            return Box(cfg, method, problems)
        except OSError as error:
            problems.append(f"{method}: {error}")
    if not cfg.allow_unsafe:
        raise BadInput(
            f"this machine does not isolate programs ({'; '.join(problems)}); allow user namespaces, install "
            "bubblewrap, or set sandbox.allow_unsafe=true to run what the model writes with limits only"
        )
    return Box(cfg, "none", problems)
