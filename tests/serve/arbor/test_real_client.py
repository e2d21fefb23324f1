"""The real clients: DSPy and arbor-ai's files in an environment of their own (`make test-dspy`)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.waiting import until

PYTHON, ARBOR = os.environ.get("RECOLLECT_DSPY_PYTHON", ""), os.environ.get("RECOLLECT_ARBOR_FILES", "")
PROGRAM = Path(__file__).with_name("dspy_program.py")
STEPS = 15

pytestmark = pytest.mark.skipif(not PYTHON, reason="make test-dspy makes the environment of the client")


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


def test_a_program_trains_through_the_server(tmp_path: Path) -> None:
    port = free_port()
    server = started(tmp_path / "jobs", port)
    try:
        quiet = {"DSPY_CACHEDIR": str(tmp_path / "cache"), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        command = [PYTHON, str(PROGRAM), f"http://127.0.0.1:{port}/v1", ARBOR, str(STEPS)]
        done = subprocess.run(command, env={**os.environ, **quiet}, capture_output=True, timeout=900, check=False)
        assert done.returncode == 0, done.stderr.decode()[-4000:]
        found = json.loads(done.stdout.decode().strip().splitlines()[-1])
        job = found["model"].removeprefix("openai/arbor:")
        url = f"http://127.0.0.1:{port}/v1/fine_tuning/grpo/status"
        answer = httpx.post(url, json={"job_id": job}, timeout=60).json()
        print(found, answer["fidelity"])
        assert found["after"] > found["before"] + 10
        assert answer["status"] == "succeeded"
        assert answer["step"] == STEPS
        assert answer["fidelity"]["fidelity"] == 1
        assert "tokenised" not in answer["fidelity"]["completions"]
        assert answer["last_checkpoint"] == "model_checkpoint_best"
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(60)
