"""A real vLLM server as the fixed model of a stage. `make test-vllm` makes its environment and names its python."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from recollect.models.tiny import save_tiny
from recollect.policies.endpoint import Endpoint
from recollect.runs.directory import RunDirectory
from recollect.serve.start import listening
from tests.samplers.test_bindings import fit

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]
START_S = 600


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """(address, model folder) of a server that runs while the tests do."""
    python = os.environ["RECOLLECT_VLLM_PYTHON"]
    folder = tmp_path_factory.mktemp("vllm")
    save_tiny(folder / "model")
    sock = listening("127.0.0.1", 0)
    port = sock.getsockname()[1]
    sock.close()
    command = [
        python,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        str(folder / "model"),
        "--dtype",
        "float32",
    ]
    command += ["--host", "127.0.0.1", "--port", str(port), "--max-model-len", "512", "--served-model-name", "fixed"]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "OMP_"))}
    env |= {"VLLM_CPU_KVCACHE_SPACE": "2", "HF_HUB_OFFLINE": "1"}
    log = folder / "vllm.log"
    with log.open("w") as out:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=out, start_new_session=True)
    url = f"http://127.0.0.1:{port}/v1"
    try:
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            assert process.poll() is None, log.read_text()[-3000:]
            try:
                if httpx.get(f"{url}/models", timeout=2).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(1)
        yield url, folder / "model"
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()


def test_stage_one_against_vllm_trains_no_token_of_it(vllm: tuple[str, Path], tmp_path: Path) -> None:
    url, model = vllm
    settings = [f"actor_rollout_ref.rollout.fixed_model_api={url}", "actor_rollout_ref.rollout.training_stage=memory"]
    before = {p.name: p.read_bytes() for p in model.iterdir() if p.is_file()}
    work, report = fit(tmp_path / "run", *settings)
    assert report["fixed_roles"] == {"qa": {"model": f"{url} fixed"}}
    assert report["fidelity"] == 1.0
    assert report["untrained_tokens"] > 0
    rows = list(RunDirectory(tmp_path / "run").trajectories())
    turns = [turn for row in rows for turn in row["turns"]]
    assert {(t["role"], t["trainable"]) for t in turns} == {("memory", True), ("qa", False)}
    assert all(row["failure"] is None for row in rows)
    assert report["trained_tokens"] == sum(len(t["ids"]) for t in turns if t["role"] == "memory")
    assert sum(row["reward"] for row in rows) > 0  # it does answer
    steps = [r for r in work.run.metrics() if "reward/mean" in r]
    assert not any("tokens/qa/trained" in r for r in steps)
    assert {p.name: p.read_bytes() for p in model.iterdir() if p.is_file()} == before


def test_the_same_answers_as_our_own_engine(vllm: tuple[str, Path]) -> None:
    """Greedy replies of vLLM and of the engine to the same messages are the same."""
    import asyncio

    from recollect.config.compose import compose
    from recollect.samplers.bindings import RoleBinder
    from recollect.types import Message, Sampling

    url, model = vllm
    found = RoleBinder(compose(None, ["trainer.threads=1", "trainer.device=cpu"]), None).loaded(str(model))
    endpoint = Endpoint(url)
    log = [Message("user", "Question: What does mira hold?\nMemory: mira holds 472\nAnswer:")]
    sampling = Sampling(temperature=0.0, max_tokens=12, stop_ids=found.renderer.stop_ids)
    outside = asyncio.run(endpoint.chat(log, None, sampling)).text
    ours = asyncio.run(found.sampler.generate(found.renderer.prompt(log), sampling)).text
    assert outside.strip() == ours.strip() == r"\boxed{ 472}"
    endpoint.close()
