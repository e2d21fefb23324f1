"""Servers that a run starts: a group of processes that ends with the run, whatever ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recollect.dist.machine import KEEPER, KeptProcess, Launch, free_port, last_words
from recollect.dist.process_keeper import members
from recollect.samplers.fleet.server_process import OwnServer
from tests.waiting import until

SERVER = """
import os, subprocess, sys, tempfile, time
from multiprocessing import get_context, shared_memory, resource_tracker
found = shared_memory.SharedMemory(create=True, size=100)
resource_tracker.unregister(found._name, "shared_memory")
tensors = shared_memory.SharedMemory(f"vllm_dist_{os.getpid()}-tp:0-[0-1]-cpushm_0", create=True, size=100)
resource_tracker.unregister(tensors._name, "shared_memory")
written = tempfile.mkstemp()[1]
lock = get_context("spawn").Lock()
resource_tracker.unregister(lock._semlock.name, "semaphore")
deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", deaf])
print(found.name, lock._semlock.name.replace("/", "sem."), tensors.name, written, flush=True)
time.sleep(60)
"""
OWNER = """
import sys, time
from pathlib import Path
from recollect.samplers.fleet.server_process import OwnServer
from recollect.dist.machine import Launch
code = Path(sys.argv[1]).read_text()
server = OwnServer(lambda address: Launch((sys.executable, "-c", code), {}), Path(sys.argv[2]))
server.start()
print(server.group, server.running.about["keeper"], flush=True)
time.sleep(60)
"""
linux = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")


def server(tmp_path: Path, code: str = SERVER) -> OwnServer:
    launch = Launch((sys.executable, "-c", code), dict(os.environ))
    return OwnServer(lambda address: launch, tmp_path / "server.log")


def shared(log: Path) -> Path:
    """The shared memory of a server that says its name."""
    until(lambda: log.read_text().startswith("psm_"))
    time.sleep(0.7)  # until the keeper has looked
    return Path("/dev/shm") / log.read_text().split()[0]


@linux
@pytest.mark.parametrize("how", ["close", "kill"])
def test_it_ends_with_all_that_it_started(how: str, tmp_path: Path) -> None:
    made = server(tmp_path)
    made.start()
    memory, group = shared(made.log), made.group
    assert len(members(group)) >= 2
    assert memory.exists()
    assert made.ended() is None
    getattr(made, how)()
    assert members(group) == []
    left = [memory.parent / name for name in made.log.read_text().split()[:4]]
    assert not any(path.exists() for path in left)
    made.closed = False
    made.start()  # again
    assert made.group not in (0, group)
    made.close()


@linux
@pytest.mark.parametrize("victim", ["owner", "keeper", "owner and keeper"])
def test_it_ends_with_its_owner_and_its_keeper(victim: str, tmp_path: Path) -> None:
    code = tmp_path / "server.py"
    code.write_text(SERVER)
    command = [sys.executable, "-c", OWNER, str(code), str(tmp_path / "server.log")]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    group, keeper = map(int, owner.stdout.readline().split())
    memory = shared(tmp_path / "server.log")
    main = members(group)
    for name, process in (("keeper", keeper), ("owner", owner.pid)):
        if name in victim:
            os.kill(process, signal.SIGKILL)
    if "keeper" in victim:  # the server's first process ends with it; vLLM's workers see that it is gone
        until(lambda: len(members(group)) < len(main))
        os.killpg(group, signal.SIGKILL)
    else:
        until(lambda: not members(group) and not memory.exists(), 15)
    left = [memory.parent / name for name in (tmp_path / "server.log").read_text().split()[:4]]
    for path in left:
        path.unlink(missing_ok=True)
    if "keeper" in victim:
        left[-1].parent.rmdir()
    assert not left[-1].parent.exists()
    owner.kill()
    owner.wait()


@linux
def test_one_that_is_stopped_is_ended_too(tmp_path: Path) -> None:
    made = server(tmp_path)
    made.start()
    shared(made.log)
    group = made.group
    os.killpg(group, signal.SIGSTOP)
    made.close()
    assert members(group) == []


def test_why_it_ended_is_said(tmp_path: Path) -> None:
    made = server(tmp_path, "raise ValueError('no room for 5 tokens')")
    made.start()
    until(lambda: made.ended() is not None)
    assert made.ended() == f"ValueError: no room for 5 tokens (all of it: {made.log})"
    made.close()
    made.log.write_text("ValueError: the reason\nRuntimeError: Engine core initialization failed. See above\nbye\n")
    assert last_words(made.log).startswith("ValueError: the reason")
    made.log.unlink()
    assert "cannot be read" in last_words(made.log)


def test_a_port_that_is_free() -> None:
    assert free_port() != free_port()


def test_the_keeper_needs_nothing_but_python(tmp_path: Path) -> None:
    log = tmp_path / "log"
    keeper = [
        sys.executable,
        "-I",
        "-S",
        str(KEEPER),
        str(log),
        sys.executable,
        "-c",
        "print('hello')",
    ]
    done = subprocess.run(keeper, input="", capture_output=True, text=True, timeout=30, check=False)
    first, last = map(json.loads, done.stdout.splitlines())
    assert first["group"] > 1
    assert [*last] == ["code"]


@linux
def test_one_that_is_no_child_of_its_owner_ends_with_it_too() -> None:
    code = "import sys, time; print('here', flush=True); time.sleep(60)"
    made = KeptProcess(Launch((sys.executable, "-c", code), dict(os.environ)), None, apart=True)
    parent = Path(f"/proc/{made.about['keeper']}/stat").read_text().rpartition(")")[2].split()[1]
    assert int(parent) != os.getpid()
    assert until(lambda: made.last_words() == "here")
    assert made.ended() is None
    os.killpg(made.group, signal.SIGKILL)
    assert until(lambda: made.ended() == "here")
    assert made.code == -signal.SIGKILL
    made.stop()
    again = KeptProcess(Launch((sys.executable, "-c", code), dict(os.environ)), None, apart=True)
    again.stop()
    assert members(again.group) == []
