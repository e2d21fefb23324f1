"""Several nodes of a Ray cluster: ranks here, servers there, and the weights of one process.

A cluster takes seconds to start, so that one test does everything that needs one.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from recollect.config.compose import compose
from recollect.dist.process_keeper import members
from recollect.runtime.console import Console
from recollect.samplers.fleet.fleet import Fleet
from recollect.samplers.fleet.server_process import OwnServer
from recollect.training.learner.ranks.ranks_learner import RanksLearner
from recollect.training.train_run import TrainRun
from recollect.types import BadInput
from recollect.workflows.dry_run.dry_run import dry_run
from tests.dist.clusters import cluster
from tests.samplers.fleet.standin_vllm import python_with_vllm
from tests.samplers.fleet.test_training import ROLLOUT, SHORT, near, work
from tests.waiting import until

pytest.importorskip("ray")
pytestmark = [pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc"), pytest.mark.timeout(600)]
APART = ["trainer.nnodes=2", f"{ROLLOUT}.nnodes=1", f"{ROLLOUT}.n_gpus_per_node=2", "trainer.node_wait_s=60"]


def vllm(folder: Path) -> list[str]:
    limits = [f"{ROLLOUT}.server_wait_s=120", f"{ROLLOUT}.server_timeout_s=60"]
    return [f"{ROLLOUT}.name=vllm", f"{ROLLOUT}.server_python={python_with_vllm(folder)}", *limits]


def processes(run: TrainRun) -> tuple[list[int], list[int]]:
    """The processes of the ranks, and the groups of the servers."""
    learner, fleet = run.policy.learner, run.policy.sampler
    assert isinstance(learner, RanksLearner)
    assert isinstance(fleet, Fleet)
    servers = [member.process for member in fleet.members.servers]
    return [m.process.pid for m in learner.ranks.ranks.members], [s.group for s in servers if isinstance(s, OwnServer)]


def test_a_run_on_three_nodes(small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work(tmp_path / "alone", small_model).fit()
    with cluster(1, 1, 2):
        refusals(small_model, tmp_path, monkeypatch)
        layout(small_model, tmp_path)
        seen: list[tuple[list[int], list[int]]] = []

        def trouble(row: dict[str, Any]) -> None:
            seen.append(processes(run))
            if row["step"] == 1:
                os.kill(seen[0][0][1], signal.SIGKILL)  # a rank
                os.killpg(seen[0][1][0], signal.SIGKILL)  # a server

        run = work(tmp_path / "spread", small_model, *vllm(tmp_path), *APART, on_step=trouble)
        assert run.fit()["fidelity"] == 1.0
        assert len(seen[0][0]) == len(seen[0][1]) == 2
        assert not set(seen[0][0]) & set(seen[-1][0])  # all ranks were started again
        everything = [group for ranks, servers in seen for group in (*ranks, *servers)]
        assert until(lambda: not any(members(group) for group in everything))
    near(tmp_path / "spread", tmp_path / "alone", 1e-5)


def layout(model: Path, folder: Path) -> None:
    """What the dry run says, which starts nothing."""
    cfg = compose(None, settings(model, folder / "none", *vllm(folder), *APART))
    found = dry_run(cfg, Console(quiet=True))
    assert [share["runs"] for share in found["nodes"]] == [("rank 0",), ("rank 1",), ("server 0", "server 1")]
    assert all(0 < share["need"] < share["have"] for share in found["nodes"])
    assert found["ranks"]["nodes"] == 2
    together = dry_run(
        compose(None, settings(model, folder / "none", *vllm(folder), "trainer.nnodes=2")), Console(True)
    )
    assert [share["runs"] for share in together["nodes"]] == [("rank 0", "server 0"), ("rank 1", "server 1")]
    assert not (folder / "none").exists()


def settings(model: Path, run: Path, *more: str) -> list[str]:
    return [*SHORT, f"actor_rollout_ref.model.path={model}", f"trainer.default_local_dir={run}", *more]


def refusals(model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be is said in a line before anything is started or written."""
    here = Path.cwd()
    monkeypatch.chdir(folder)
    for more, words in {
        ("trainer.nnodes=4",): r"needs 4 nodes, 4 with 1 CPUs each .*; the Ray cluster has .* with 2, .* with 1, ",
        ("trainer.nnodes=2", "trainer.n_gpus_per_node=2"): r"needs 2 nodes, 2 with 2 CPUs each",
        ("trainer.nnodes=2", "trainer.default_local_dir=/proc/self/cwd/run"): r"does not see /proc/self/cwd",
        ("trainer.nnodes=2", "actor_rollout_ref.model.path=/proc/self/cwd/model"): r"does not see it; name a folder",
        ("trainer.nnodes=2", "trainer.resume_mode=resume_path", "trainer.resume_from_path=/proc/self/cwd/alone"): (
            r"resume_from_path=/proc/self/cwd/alone: .* does not see it; name a folder that all nodes share"
        ),
    }.items():
        (folder / "model").symlink_to(model) if not (folder / "model").exists() else None
        cfg = compose(None, settings(model, folder / "none", *more))
        for refuse in (lambda cfg=cfg: TrainRun(cfg, Console(quiet=True)), lambda cfg=cfg: dry_run(cfg, Console(True))):
            with pytest.raises(BadInput, match=words):
                refuse()
    monkeypatch.chdir(here)
    assert not (folder / "none").exists()
