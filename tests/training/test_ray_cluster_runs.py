"""A Ray cluster of three nodes on this machine, ranks that learn on it, and real vLLM servers that sample.

`make test-cluster` makes an environment for vLLM and names its Python.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recollect.config.compose import compose
from recollect.dist.process_keeper import members
from recollect.runs.directory import RunDirectory
from recollect.runtime.console import Console
from recollect.samplers.fleet.fleet import Fleet
from recollect.training.learner.ranks.ranks_learner import RanksLearner
from recollect.training.train_run import TrainRun
from tests.dist.clusters import add, cluster
from tests.samplers.fleet.test_training import weights
from tests.samplers.fleet.test_vllm_servers import killing_a_rank, left_behind
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]
ROLLOUT = "actor_rollout_ref.rollout"
MARK = "RECOLLECT_TEST_CLUSTER"  # in the environment of every process of a test's cluster


def alone(folder: Path) -> list[str]:
    """Settings of a run in one process."""
    numbers = [f"{ROLLOUT}.dtype=float32", "actor_rollout_ref.actor.dtype=float32", "trainer.device=cpu"]
    return [*numbers, "agent.max_context_length=512", "trainer.threads=1", f"trainer.default_local_dir={folder}"]


def spread(folder: Path) -> list[str]:
    """The same on the cluster: a rank on each of two nodes."""
    vllm = [f"{ROLLOUT}.name=vllm", f"{ROLLOUT}.server_python={os.environ['RECOLLECT_VLLM_PYTHON']}"]
    limits = [f"{ROLLOUT}.server_timeout_s=120", f"{ROLLOUT}.server_wait_s=600", "trainer.node_wait_s=120"]
    return [*alone(folder), *vllm, *limits, f"{ROLLOUT}.max_num_seqs=64", "trainer.nnodes=2"]


def run_of(settings: list[str], on_step: Any = None) -> TrainRun:
    return TrainRun(compose(None, settings), Console(), on_step)


def servers(run: TrainRun) -> list[int]:
    """The process groups of the servers."""
    fleet = run.policy.sampler
    assert isinstance(fleet, Fleet)
    return [member.process.group for member in fleet.members.servers]  # type: ignore[union-attr]


# ---- the embedded default ----

TWELVE = [
    *("trainer.total_training_steps=12", "trainer.val_before_train=False", "trainer.save_freq=0"),
    *("evaluation.lengths=[1]", "evaluation.tasks=[128]", "data.val_max_samples=128"),
]


def test_the_embedded_default_is_learnt_on_three_nodes(tmp_path: Path) -> None:
    """Two nodes learn, one samples with two servers; success is that of one process."""
    start = time.monotonic()
    one = run_of([*alone(tmp_path / "one"), *TWELVE]).fit()
    took = time.monotonic() - start
    apart = [f"{ROLLOUT}.nnodes=1", f"{ROLLOUT}.n_gpus_per_node=2"]
    with cluster(1, 1, 2):
        run = run_of([*spread(tmp_path / "three"), *TWELVE, *apart])
        three = run.fit()
        assert len(servers(run)) == 2
    rows = [row for row in RunDirectory(tmp_path / "three").metrics() if "reward/mean" in row]
    syncs = [row["time/sync"] for row in rows]
    fleet = run.policy.sampler
    assert isinstance(fleet, Fleet)
    print(f"\none process: {one['held_out']['rl']:.3f} held out, {took:.0f} s in all")
    print(f"three nodes: {three['held_out']['rl']:.3f} held out, {three['seconds']['total']:.0f} s in all")
    print(f"a sync: {sum(syncs) / len(syncs):.2f} s, {fleet.statistics().sync_bytes / 2**20:.1f} MiB")
    assert one["held_out"]["rl"] >= 0.8
    assert three["held_out"]["rl"] >= 0.8
    assert one["fidelity"] == three["fidelity"] == 1.0
    assert len(rows) == 12
    assert all(row["rollout/failures"] == 0 and row.get("actor/logprob_drift", 0) < 1e-4 for row in rows)


# ---- what is lost comes back ----

FIVE = [
    *("trainer.total_training_steps=5", "trainer.val_before_train=False", "trainer.save_freq=1"),
    *("data.train_batch_size=4", f"{ROLLOUT}.n=4", "data.needle.chunks=2", "data.needle.start_chunks=2"),
    *("evaluation.lengths=[1]", "evaluation.tasks=[8]", "data.val_max_samples=8"),
]


def marked(words: str) -> list[int]:
    """Processes of the cluster whose command line has some words."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            mine = f"{MARK}={os.environ[MARK]}\0".encode() in (place / "environ").read_bytes()
            if mine and words in (place / "cmdline").read_bytes().decode(errors="replace"):
                found.append(int(place.name))
        except OSError:
            continue
    return found


def killed_driver(settings: list[str], folder: Path) -> None:
    """Start a run as a program, kill it after a step, and see everything of it end."""
    command = [sys.executable, "-m", "recollect", "train", *settings]
    with (folder.parent / "said").open("w") as said:
        driver = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
    try:
        steps = lambda: (folder / "checkpoints" / "step-1").is_dir() or driver.poll() is not None
        assert until(steps, 400)
        assert driver.poll() is None, (folder.parent / "said").read_text()
        assert len(marked("recollect.dist.rank_process")) >= 2
        assert len(marked(str(folder / "servers"))) >= 2
    finally:
        driver.kill()
        driver.wait()
    assert until(lambda: not marked("recollect.dist.rank_process") and not marked(str(folder / "servers")))


def while_sampling(run: TrainRun, do: Callable[[], None]) -> None:
    """Do something as soon as a completion is under way."""

    def wait() -> None:
        if until(lambda: run.policy.sampler.statistics().decoding > 2):
            do()

    threading.Thread(target=wait, daemon=True).start()


def node_of(run: TrainRun, made: Any, number: int) -> Any:
    """The node of the cluster on which one of the run's is."""
    import ray

    assert run.policy.nodes is not None
    host = run.policy.nodes.learners[number].actor
    name = ray.get(host.__ray_call__.remote(lambda self: __import__("ray").get_runtime_context().get_node_id()))
    return next(node for node in made.worker_nodes if node.node_id == name)


def test_what_is_lost_comes_back_and_changes_no_weight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver, an engine while it samples, a rank while it updates, a node with a rank and a server."""
    before = left_behind()
    monkeypatch.setenv(MARK, str(tmp_path))
    groups: list[int] = []
    with cluster(1, 1) as made:
        assert run_of([*spread(tmp_path / "quiet"), *FIVE]).fit()["fidelity"] == 1.0
        settings = [*spread(tmp_path / "rough"), *FIVE]
        killed_driver(settings, tmp_path / "rough")
        killed = killing_a_rank(monkeypatch, 2)
        said: list[int] = []

        def trouble(row: dict[str, Any]) -> None:
            groups.extend(servers(run))
            if row["step"] == 3:
                while_sampling(run, lambda: os.kill(max(members(servers(run)[0])), signal.SIGKILL))
            elif row["step"] == 4:
                add(made, 1)
                made.remove_node(node_of(run, made, 1), allow_graceful=False)
            said.append(int(row["step"]))

        run = run_of(settings, trouble)
        report = run.fit()
        fleet = run.policy.sampler
        assert isinstance(fleet, Fleet)
        assert isinstance(run.policy.learner, RanksLearner)
        assert said[0] <= 3, "the driver was killed early enough"
        assert killed
        assert fleet.statistics().taken_out >= 2
        assert report["fidelity"] == 1.0
    assert weights(tmp_path / "rough") == weights(tmp_path / "quiet")
    rows = [row for row in RunDirectory(tmp_path / "rough").metrics() if "reward/mean" in row]
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    assert all(row["rollout/failures"] == 0 for row in rows)
    assert until(lambda: not any(members(group) for group in groups))
    assert not marked("recollect.dist.rank_process")
    assert left_behind() <= before
