"""A role behind a server that recollect runs for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from recollect.runtime.console import Console
from recollect.samplers.child_server import Served
from recollect.serve.server import ServeLimits
from recollect.serve.start import KEY, listening, serve
from recollect.types import BadInput
from tests.samplers.test_bindings import fit
from tests.waiting import LONG, until


def gone(url: str) -> bool:
    def refuses() -> bool:
        try:
            httpx.get(url, timeout=LONG)
        except httpx.TransportError:
            return True
        return False

    return until(refuses)


def test_a_role_is_served_while_the_run_lasts(tmp_path: Path) -> None:
    work, report = fit(tmp_path / "run", "roles.qa=serve:tiny", "trainer.total_training_steps=1")
    url, name = report["fixed_roles"]["qa"]["model"].split()
    assert name == "tiny"
    assert report["untrained_tokens"] > 0
    assert all(r["rollout/failures"] == 0 for r in work.run.metrics() if "reward/mean" in r)
    assert gone(url)


def test_the_server_ends_with_a_parent_that_is_killed() -> None:
    code = "from recollect.samplers.child_server import Served; import time; "
    code += "print(Served('tiny').url, flush=True); time.sleep(600)"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    try:
        url = parent.stdout.readline().strip()
        assert httpx.get(f"{url}/models", timeout=LONG).status_code == 200
    finally:
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
    assert gone(url)


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"did not start: .*no model folder"):
        Served(str(tmp_path / "none"))


def test_a_server_for_others_needs_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY, raising=False)
    with pytest.raises(BadInput, match=f"set the environment variable {KEY}"):
        serve("tiny", "0.0.0.0", 0, [], ServeLimits(), False, Console(quiet=True))


def test_a_port_that_is_taken() -> None:
    sock = listening("127.0.0.1", 0)
    sock.listen()
    with pytest.raises(BadInput, match=r"cannot listen at 127\.0"):
        serve("tiny", "127.0.0.1", sock.getsockname()[1], [], ServeLimits(), False, Console(quiet=True))
    sock.close()
