"""Real vLLM servers: weights that arrive, prefixes that are forgotten, servers that are killed and stopped.

`make test-vllm` makes an environment for vLLM and names its Python.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from transformers import AutoModelForCausalLM

from recollect.config.compose import compose
from recollect.dist.process_keeper import members, shared_memory
from recollect.files.output import Unwritten
from recollect.models.load import load_tokenizer
from recollect.models.tiny import save_tiny
from recollect.runs.directory import RunDirectory
from recollect.runtime.console import Console
from recollect.samplers.fleet import vllm_client, weight_broadcast
from recollect.samplers.fleet.fleet import Fleet
from recollect.samplers.fleet.make_fleet import make_fleet
from recollect.samplers.fleet.server_process import OwnServer
from recollect.samplers.fleet.vllm_client import ServerFailed
from recollect.training.learner.ranks.ranks_learner import RanksLearner
from recollect.training.train_run import TrainRun
from recollect.types import Completion, Sampling
from tests.samplers.fleet.test_training import near, weights
from tests.waiting import until

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1500)]
ROLLOUT = "actor_rollout_ref.rollout"
PROMPT = list(range(5, 305))  # longer than a block of the prefix cache, which has 128 tokens on a CPU
KEYS = [f"step-0/task-{t}/{i}/0" for t in range(3) for i in range(4)]


def settings(folder: Path, *more: str) -> list[str]:
    python = os.environ["RECOLLECT_VLLM_PYTHON"]
    return [
        *(f"{ROLLOUT}.name=vllm", f"{ROLLOUT}.server_python={python}", f"{ROLLOUT}.dtype=float32"),
        *("actor_rollout_ref.actor.dtype=float32", "trainer.device=cpu", f"trainer.default_local_dir={folder}"),
        *("agent.max_context_length=512", f"{ROLLOUT}.max_num_seqs=32", *more),
    ]


@contextmanager
def fleet_of(model: Path, folder: Path, *more: str) -> Iterator[Fleet]:
    cfg = compose(None, settings(folder, *more))
    made = make_fleet(cfg, str(model), load_tokenizer(str(model)).decode, print, print)
    try:
        yield made
    finally:
        made.close()


def ask(fleet: Fleet, **options: Any) -> list[Completion]:
    sampling = Sampling(max_tokens=10, seed=3, **options)

    async def all_of_them() -> list[Completion]:
        return await asyncio.gather(*(fleet.generate(PROMPT, replace(sampling, key=key)) for key in KEYS))

    return asyncio.run(all_of_them())


def distance(model: Any, completions: list[Completion], temperature: float = 1.0) -> float:
    """How far the servers' log-probabilities are from transformers', at most."""
    found = 0.0
    for done in completions:
        ids = torch.tensor([[*PROMPT, *done.ids]])
        with torch.no_grad():
            logits = model(input_ids=ids).logits[0, len(PROMPT) - 1 : -1].float() / temperature
        right = logits.log_softmax(-1).gather(-1, torch.tensor(done.ids)[:, None])[:, 0]
        found = max(found, float((right - torch.tensor(done.logprobs)).abs().max()))
    return found


def moved(model: Any, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=generator) * p.std() * 0.2)
    return model


@pytest.mark.parametrize("tied", [True, False])
def test_servers_and_learner_agree_after_each_sync(tied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_tiny(tmp_path / "model")
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    if not tied:
        model.config.tie_word_embeddings = False
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone() * 1.1)
        model.save_pretrained(tmp_path / "model")
    assert ("lm_head.weight" in dict(model.named_parameters())) is not tied
    with fleet_of(tmp_path / "model", tmp_path / "run") as fleet:
        for version in range(3):
            fleet.take_weights(version, moved(model, version).named_parameters())
            done = ask(fleet)
            assert {c.version for c in done} == {version}
            assert distance(model, done) < 1e-4
            assert distance(model, ask(fleet, temperature=0.6), 0.6) < 1e-4
        assert len({c.ids for c in ask(fleet)}) > 1
        assert [c.ids for c in ask(fleet)] == [c.ids for c in ask(fleet)]
        alone = asyncio.run(fleet.generate(PROMPT, Sampling(max_tokens=10, seed=3, key=KEYS[5])))
        assert alone.ids == ask(fleet)[5].ids
        control = vllm_client.VllmClient._control

        async def without_reset(self: Any, path: str, *rest: Any) -> dict[str, Any]:
            return {"success": True} if path.startswith("/reset") else await control(self, path, *rest)

        with monkeypatch.context() as patched:  # pausing clears as well
            patched.setattr(vllm_client.VllmClient, "_control", without_reset)
            patched.setattr(vllm_client, "PAUSE", "/pause?mode=abort&clear_cache=false")
            fleet.take_weights(3, moved(model, 3).named_parameters())
            assert distance(model, ask(fleet)) > 1e-3  # old prefixes under a new version: what the reset is for
        fleet.take_weights(4, moved(model, 4).named_parameters())
        assert distance(model, ask(fleet)) < 1e-4
        fleet.members.servers[0].sleeps = True  # on a CPU vLLM keeps the memory, but the engine sleeps and wakes
        fleet.free()
        assert asleep(fleet)
        fleet.restore()
        assert not asleep(fleet)
        assert distance(model, ask(fleet)) < 1e-4
        fleet.free()
        fleet.restore()
        fleet.take_weights(5, moved(model, 5).named_parameters())
        assert distance(model, ask(fleet)) < 1e-4
        assert fleet.statistics().taken_out == 0


def test_weights_by_broadcast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two servers in one group; hand-overs that break off in the middle; a server that hangs in one."""
    save_tiny(tmp_path / "model")
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    two = [f"{ROLLOUT}.weight_sync=broadcast", f"{ROLLOUT}.num_servers=2"]
    with fleet_of(tmp_path / "model", tmp_path / "run", *two) as fleet:
        for version in range(3):
            fleet.take_weights(version, moved(model, version).named_parameters())
            done = ask(fleet)
            assert {c.version for c in done} == {version}
            assert distance(model, done) < 1e-4
        assert fleet.statistics().taken_out == 0
        first, second = fleet.members.servers
        assert first.client is not None
        wait: Any = fleet._wait
        wait(first.client.begin())  # as of a trainer that is killed then
        left = wait(first.client.begin())
        fleet.take_weights(3, moved(model, 3).named_parameters())
        assert distance(model, ask(fleet)) < 1e-4
        wait(first.client.begin())
        with pytest.raises(ServerFailed, match="another hand-over of weights has begun since"):
            wait(first.client.update(left, {"folder": "", "files": []}, 30.0))
        monkeypatch.setattr(vllm_client, "CONTROL_S", 20.0)
        monkeypatch.setattr(weight_broadcast, "OPERATION_S", 10.0)
        assert isinstance(second.process, OwnServer)
        os.killpg(second.process.group, signal.SIGSTOP)
        fleet.take_weights(4, moved(model, 4).named_parameters())
        assert (first.ready, second.ready) == (True, False)
        assert distance(model, ask(fleet)) < 1e-4
        assert until(lambda: second.ready, 300)
        done = ask(fleet)
        assert {c.version for c in done} == {4}
        assert distance(model, done) < 1e-4
        fleet.take_weights(5, moved(model, 5).named_parameters())
        assert distance(model, ask(fleet)) < 1e-4
        assert fleet.statistics().taken_out == 1
    assert list((tmp_path / "run").rglob("*.safetensors")) == []


@pytest.mark.parametrize("way", ["files", "broadcast"])
def test_a_server_of_two_workers(way: str, tmp_path: Path) -> None:
    """Tensor parallelism: each worker verifies or receives the weights, and keeps its part of them."""
    save_tiny(tmp_path / "model")
    model: Any = AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    two = [f"{ROLLOUT}.tensor_model_parallel_size=2", f"{ROLLOUT}.weight_sync={way}"]
    with fleet_of(tmp_path / "model", tmp_path / "run", *two) as fleet:
        for version in range(2):
            fleet.take_weights(version, moved(model, version).named_parameters())
            done = ask(fleet)
            assert {c.version for c in done} == {version}
            assert distance(model, done) < 1e-4
        client = fleet.members.servers[0].client
        assert client is not None
        assert (client.workers, fleet.statistics().taken_out) == (2, 0)


def asleep(fleet: Fleet) -> bool:
    return bool(httpx.get(f"{fleet.members.servers[0].url}/is_sleeping").json()["is_sleeping"])


def test_vllm_on_a_cpu_has_no_sleep_mode(tmp_path: Path) -> None:
    """Why servers on a CPU are never asked to sleep."""
    save_tiny(tmp_path / "model")
    command = [os.environ["RECOLLECT_VLLM_PYTHON"], "-m", "vllm.entrypoints.openai.api_server", "--enable-sleep-mode"]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    model = ["--model", str(tmp_path / "model"), "--host", "127.0.0.1"]
    done = subprocess.run([*command, *model], capture_output=True, text=True, timeout=300, check=False, env=env)
    assert done.returncode
    assert "Sleep mode is not supported on current platform" in done.stderr


SHORT = [
    *("trainer.total_training_steps=4", "trainer.save_freq=1", "trainer.val_before_train=False", "trainer.threads=1"),
    *("data.train_batch_size=4", f"{ROLLOUT}.n=4", "data.needle.chunks=2", "data.needle.start_chunks=2"),
    *("evaluation.lengths=[1]", "evaluation.tasks=[8]", "data.val_max_samples=8", f"{ROLLOUT}.num_servers=2"),
]


def train(folder: Path, *more: str, on_step: Any = None) -> tuple[TrainRun, Any]:
    run = TrainRun(compose(None, settings(folder, *SHORT, *more)), Console(), on_step)
    return run, run.fit()


def left_behind() -> set[str]:
    """Shared memory of the kind that vLLM makes and no process uses."""
    used = {name for process in Path("/proc").glob("[0-9]*") for name in shared_memory([int(process.name)])}
    return {p.name for p in Path("/dev/shm").glob("psm_*")} - used


def killing_a_rank(monkeypatch: pytest.MonkeyPatch, after: int) -> list[int]:
    """Kill the second rank when so many passes of updates are done, once; the list then has its process."""
    plain, passes, killed = RanksLearner.update, itertools.count(), []

    def update(self: RanksLearner, *given: Any, **named: Any) -> Any:
        shown = self._watcher

        def kill(done: int, count: int) -> None:
            if next(passes) == after:
                killed.append(self.ranks.ranks.members[1].process.pid)
                os.kill(killed[0], signal.SIGKILL)
            if shown is not None:
                shown(done, count)

        self.watch(kill)
        return plain(self, *given, **named)

    monkeypatch.setattr(RanksLearner, "update", update)
    return killed


def test_servers_and_ranks_that_are_lost_change_no_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = left_behind()
    train(tmp_path / "one-process")
    _, quiet = train(tmp_path / "quiet", "trainer.n_gpus_per_node=2")
    near(tmp_path / "one-process", tmp_path / "quiet", 1e-5)
    groups: list[int] = []
    monkeypatch.setattr(vllm_client, "CONTROL_S", 40.0)
    killed = killing_a_rank(monkeypatch, 2)

    def trouble(row: dict[str, Any]) -> None:
        processes = [member.process for member in run.policy.sampler.members.servers]  # type: ignore[attr-defined]
        groups.extend(p.group for p in processes if isinstance(p, OwnServer))
        if row["step"] == 1:  # the part that computes; the others are left for the keeper
            os.kill(max(members(processes[0].group)), signal.SIGKILL)
        elif row["step"] == 2:
            os.killpg(processes[1].group, signal.SIGSTOP)

    limits = [f"{ROLLOUT}.server_timeout_s=40", f"{ROLLOUT}.server_wait_s=600", "trainer.n_gpus_per_node=2"]
    cfg = compose(None, settings(tmp_path / "rough", *SHORT, *limits))
    run = TrainRun(cfg, Console(), trouble)
    report = run.fit()
    assert killed
    assert run.policy.sampler.statistics().taken_out >= 2  # type: ignore[attr-defined]
    assert report["fidelity"] == quiet["fidelity"] == 1.0
    assert weights(tmp_path / "rough") == weights(tmp_path / "quiet")
    rows = [r for r in RunDirectory(tmp_path / "rough").metrics() if "reward/mean" in r]
    assert all(r["rollout/failures"] == 0 for r in rows)
    assert all(r["actor/logprob_drift"] < 1e-4 for r in rows if "actor/logprob_drift" in r)
    assert [members(group) for group in groups] == [[]] * len(groups)
    assert left_behind() <= before


def test_full_storage_stops_a_run_that_then_goes_on(tmp_path: Path) -> None:
    storage = tmp_path / "shared"
    storage.mkdir()
    size = "size=40m"
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", storage], check=False).returncode:
        pytest.skip("needs the right to mount a small file system")
    given = [f"{ROLLOUT}.server_storage={storage}", f"{ROLLOUT}.num_servers=1", "trainer.total_training_steps=2"]
    try:
        fill = lambda row: (storage / "others").write_bytes(bytes(12 << 20)) and None  # two versions are 25 MB
        with pytest.raises(Unwritten, match=r"could not be written: No space left on device; make room"):
            train(tmp_path / "run", *given, on_step=fill)
        (storage / "others").unlink()
        _, report = train(tmp_path / "run", *given)
        assert report["fidelity"] == 1.0
        assert list(storage.rglob("*.safetensors")) == []
    finally:
        subprocess.run(["umount", storage], check=False)
