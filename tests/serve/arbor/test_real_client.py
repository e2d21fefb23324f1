"""Real processes: DSPy and arbor-ai's files in environments of their own (`make test-dspy`), and a killed server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serve.arbor.arbor_client import asking, nested, rewarded
from tests.waiting import until

NEW, OLD = (os.environ.get(f"RECOLLECT_DSPY{name}_PYTHON", "") for name in ("", "30"))
ARBOR = os.environ.get("RECOLLECT_ARBOR_FILES", "")
PROGRAM = Path(__file__).with_name("dspy_program.py")
STEPS = 15


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def started(jobs: Path, port: int) -> subprocess.Popen[bytes]:
    what = ["serve", "tiny", "--trainable", "--port", str(port), "--jobs", str(jobs), "trainer.device=cpu"]
    server = subprocess.Popen([sys.executable, "-m", "recollect", *what])
    address = f"http://127.0.0.1:{port}/health"

    def answers() -> bool:
        try:
            return httpx.get(address).status_code == 200
        except httpx.HTTPError:
            return False

    assert until(answers, 120)
    return server


def status(port: int, job: str) -> dict[str, Any]:
    url = f"http://127.0.0.1:{port}/v1/fine_tuning/grpo/status"
    return dict(httpx.post(url, json={"job_id": job}, timeout=60).json())


@pytest.mark.parametrize(("python", "client"), [(NEW, ARBOR), (OLD, "")], ids=["arbor-ai", "inside DSPy 3.0"])
def test_a_program_trains_through_the_server(python: str, client: str, tmp_path: Path) -> None:
    if not python:
        pytest.skip("make test-dspy makes the environment of the client")
    port = free_port()
    server = started(tmp_path / "jobs", port)
    try:
        quiet = {"DSPY_CACHEDIR": str(tmp_path / "cache"), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        command = [python, str(PROGRAM), f"http://127.0.0.1:{port}/v1", client, str(STEPS)]
        done = subprocess.run(command, env={**os.environ, **quiet}, capture_output=True, timeout=900, check=False)
        assert done.returncode == 0, done.stderr.decode()[-4000:]
        found = json.loads(done.stdout.decode().strip().splitlines()[-1])
        answer = status(port, found["model"].removeprefix("openai/arbor:"))
        print(found, answer["fidelity"])
        assert found["after"] > found["before"] + 10
        assert (answer["status"], answer["step"]) == ("succeeded", STEPS)
        assert answer["fidelity"]["fidelity"] == 1
        assert set(answer["fidelity"]["completions"]) <= {"matched", "truncated"}
        assert answer["last_checkpoint"] == ("model_checkpoint_best" if client else None)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)


def test_the_same_task_is_learned_without_a_server(tmp_path: Path) -> None:
    if not NEW:
        pytest.skip("part of make test-dspy")
    command = [sys.executable, str(PROGRAM.with_name("same_task.py")), str(tmp_path / "run"), str(STEPS)]
    done = subprocess.run(command, capture_output=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    found = json.loads(done.stdout.decode().strip().splitlines()[-1])
    assert found["after"] > found["before"] + 10


def test_a_server_that_was_killed_goes_on(tmp_path: Path) -> None:
    """SIGKILL while the first of two groups is posted; the second one is posted to a new server."""
    port, jobs = free_port(), tmp_path / "jobs"
    url = f"http://127.0.0.1:{port}/v1"
    call = lambda route, body: httpx.post(f"{url}/{route}", json=body, timeout=120).json()
    server = started(jobs, port)
    job = call("fine_tuning/grpo/initialize", nested())["job_id"]
    status(port, job)
    groups = []
    for text in ("a", "b"):
        body = {"model": f"arbor:{job}", "messages": asking(text), "n": 4, "max_tokens": 6}
        said = [c["message"]["content"] for c in call("chat/completions", body)["choices"]]
        groups.append([rewarded(asking(text), t, float(i)) for i, t in enumerate(said)])
    numbers = status(port, job)["pending_batch_ids"]
    assert len(numbers) == 2
    call("fine_tuning/grpo/step", {"job_id": job, "batch_id": numbers[0], "batch": groups[0]})
    server.kill()
    server.wait(60)
    server = started(jobs, port)
    try:
        assert status(port, job)["pending_batch_ids"] == [numbers[1]]
        answer = call("fine_tuning/grpo/step", {"job_id": job, "batch_id": numbers[1], "batch": groups[1]})
        assert answer["step"] == 1
        assert answer["fidelity"]["completions"].get("tokenised", 0) == 0
        assert answer["fidelity"]["fidelity"] == 1
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)
