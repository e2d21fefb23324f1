"""Training with servers: the weights of a run in one process, whatever happens to the servers."""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from recollect.config.compose import compose
from recollect.dist.place import RankPlace
from recollect.dist.process_keeper import members
from recollect.files.output import Unwritten
from recollect.policies.endpoint import EndpointGone
from recollect.runs.directory import RunDirectory
from recollect.runtime.console import Console
from recollect.samplers.fleet import members as fleet_members
from recollect.samplers.fleet.fleet import Fleet
from recollect.samplers.fleet.server_process import OwnServer
from recollect.training.learner.trained_model import TrainedModel
from recollect.training.train_run import TrainRun
from recollect.types import BadInput
from tests.dist.forked import forking
from tests.samplers.fleet.standin_vllm import StandIn, python_with_vllm, serving
from tests.waiting import until

ROLLOUT = "actor_rollout_ref.rollout"
SHORT = [
    *("trainer.total_training_steps=3", "trainer.save_freq=1", "trainer.val_before_train=False", "trainer.threads=1"),
    *("data.train_batch_size=2", f"{ROLLOUT}.n=4", "data.needle.chunks=2", "data.needle.start_chunks=2"),
    *("evaluation.lengths=[1]", "evaluation.tasks=[2]", "data.val_max_samples=2", "trainer.device=cpu"),
    *(f"{ROLLOUT}.dtype=float32", "actor_rollout_ref.actor.dtype=float32", "agent.max_context_length=1024"),
    *("algorithm.adv_estimator=rloo", "actor_rollout_ref.actor.entropy_coeff=0.01"),  # something to learn in every step
]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_members, "PAUSE_S", 0.05)


def work(folder: Path, model: Path, *settings: str, on_step: Any = None) -> TrainRun:
    path = f"actor_rollout_ref.model.path={model}"
    cfg = compose(None, [*SHORT, path, f"trainer.default_local_dir={folder}", *settings])
    return TrainRun(cfg, Console(quiet=True), on_step)


def newest(folder: Path) -> Path:
    return max((folder / "checkpoints").glob("step-*"), key=lambda p: int(p.name[5:]))


def weights(folder: Path) -> str:
    return hashlib.sha256((newest(folder) / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def whole(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any], Path]:
    """The weights, the report and the folder of a run in one process."""
    folder = tmp_path_factory.mktemp("whole") / "engine"
    report = work(folder, small_model).fit()
    return weights(folder), report, folder


Whole = tuple[str, dict[str, Any], Path]


def served(urls: list[str]) -> list[str]:
    return [f"{ROLLOUT}.name=vllm", f"{ROLLOUT}.server_addresses=[{','.join(urls)}]", f"{ROLLOUT}.server_wait_s=1"]


def test_the_weights_of_a_run_in_one_process(whole: Whole, small_model: Path, tmp_path: Path) -> None:
    """Servers that fail, say a wrong version or lose their weights change nothing."""
    first, second = StandIn(small_model), StandIn(small_model)

    def trouble(row: dict[str, Any]) -> None:
        if row["step"] == 1:
            first.fails_after = first.answered + 2
        else:
            first.fails_after, second.label_said = None, "0-of-another-run"

    with serving(first, second) as urls:
        run = work(tmp_path / "served", small_model, *served(urls), on_step=trouble)
        found = run.fit()
    assert weights(tmp_path / "served") == whole[0]
    assert found["fidelity"] == whole[1]["fidelity"] == 1.0
    assert found["held_out"] == whole[1]["held_out"]
    fleet = run.policy.sampler
    assert isinstance(fleet, Fleet)
    assert fleet.statistics().taken_out >= 2
    rows = [r for r in RunDirectory(tmp_path / "served").metrics() if "reward/mean" in r]
    assert all(r["rollout/failures"] == 0 for r in rows)
    assert all(r["actor/logprob_drift"] < 1e-4 for r in rows if "actor/logprob_drift" in r)
    for row in rows:
        parts = [row[f"time/rollout/{name}"] for name in ("prefill", "decode", "waiting", "agents")]
        assert sum(parts) == pytest.approx(row["time/rollout"], rel=0.2, abs=0.05)
    assert [p.name for p in (tmp_path / "served" / "servers").rglob("*")] == []  # weights are gone


def test_a_run_whose_servers_are_gone_stops_saved_and_goes_on(whole: Whole, small_model: Path, tmp_path: Path) -> None:
    server = StandIn(small_model)
    stop = lambda row: setattr(server, "hangs", True)
    gone = pytest.raises(EndpointGone, match=r"no vLLM server was back .* saved at step 1, the same command goes on")
    with serving(server) as urls, gone:
        work(tmp_path / "run", small_model, *served(urls), f"{ROLLOUT}.server_timeout_s=3", on_step=stop).fit()
    with serving(StandIn(small_model), StandIn(small_model)) as urls:  # others, elsewhere
        work(tmp_path / "run", small_model, *served(urls)).fit()
    assert weights(tmp_path / "run") == whole[0]


def test_full_storage_stops_the_run_with_one_line(
    whole: Whole, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = tmp_path / "shared"
    sync = os.fsync

    def full(descriptor: int) -> None:
        if str(storage) in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(28, os.strerror(28))
        sync(descriptor)

    with serving(StandIn(small_model)) as urls:
        given = [*served(urls), f"{ROLLOUT}.server_storage={storage}"]
        fill = lambda row: monkeypatch.setattr(os, "fsync", full) if row["step"] == 1 else None
        with pytest.raises(Unwritten, match=r"shared.* could not be written: No space left on device; make room"):
            work(tmp_path / "run", small_model, *given, on_step=fill).fit()
        monkeypatch.undo()
        work(tmp_path / "run", small_model, *given).fit()
    assert weights(tmp_path / "run") == whole[0]


def in_each_update(run: TrainRun, monkeypatch: pytest.MonkeyPatch, do: Callable[[int], None]) -> None:
    """Call ``do`` with the number of each update that begins."""
    plain, number = run.policy.learner.update, itertools.count(1)

    def update(*given: Any, **named: Any) -> Any:
        do(next(number))
        return plain(*given, **named)

    monkeypatch.setattr(run.policy.learner, "update", update)


def test_servers_that_sleep_in_updates_change_no_weight(
    whole: Whole, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = StandIn(small_model), StandIn(small_model)
    seen: list[tuple[bool, bool]] = []
    with serving(first, second) as urls:
        run = work(tmp_path / "run", small_model, *served(urls))
        run.policy.sampler.members.servers[0].sleeps = True  # type: ignore[attr-defined]
        in_each_update(run, monkeypatch, lambda number: seen.append((bool(first.asleep), bool(second.asleep))))
        assert run.fit()["fidelity"] == 1.0
    assert seen == [(True, False)] * 3
    assert not first.asleep
    assert weights(tmp_path / "run") == whole[0]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_servers_that_are_killed_and_stopped_asleep_are_replaced(
    whole: Whole, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.samplers.fleet.vllm_client.CONTROL_S", 5.0)
    given = [f"{ROLLOUT}.name=vllm", f"{ROLLOUT}.num_servers=2", f"{ROLLOUT}.server_wait_s=120"]
    run = work(tmp_path / "run", small_model, *given, f"{ROLLOUT}.server_python={python_with_vllm(tmp_path)}")
    fleet = run.policy.sampler
    assert isinstance(fleet, Fleet)
    for member in fleet.members.servers:
        member.sleeps = True
    groups: list[int] = []

    def trouble(number: int) -> None:
        assert not fleet.members.ready()
        processes = [member.process for member in fleet.members.servers]
        groups.extend(p.group for p in processes if isinstance(p, OwnServer))
        if number < 3:
            os.killpg(groups[-2], signal.SIGKILL if number == 1 else signal.SIGSTOP)

    in_each_update(run, monkeypatch, trouble)
    try:
        assert run.fit()["fidelity"] == 1.0
    finally:
        assert [members(group) for group in dict.fromkeys(groups)] == [[] for _ in dict.fromkeys(groups)]
    assert fleet.statistics().taken_out == 2
    assert weights(tmp_path / "run") == whole[0]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
def test_servers_of_the_run_are_killed_and_stopped(
    whole: Whole, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real processes: one is killed, then one is stopped past its deadline; both are replaced, and none is left."""

    seen: list[int] = []

    def trouble(row: dict[str, Any]) -> None:
        processes = [member.process for member in run.policy.sampler.members.servers]  # type: ignore[attr-defined]
        seen.extend(p.group for p in processes if isinstance(p, OwnServer))
        if row["step"] == 1:
            os.killpg(processes[0].group, signal.SIGKILL)
        elif row["step"] == 2:
            os.killpg(processes[1].group, signal.SIGSTOP)

    given = [
        f"{ROLLOUT}.name=vllm",
        f"{ROLLOUT}.num_servers=2",
        f"{ROLLOUT}.server_python={python_with_vllm(tmp_path)}",
    ]
    limits = [f"{ROLLOUT}.server_timeout_s=5", f"{ROLLOUT}.server_wait_s=120"]
    monkeypatch.setattr("recollect.samplers.fleet.vllm_client.CONTROL_S", 5.0)
    run = work(tmp_path / "run", small_model, *given, *limits, on_step=trouble)
    try:
        assert run.fit()["fidelity"] == 1.0
    finally:
        assert [members(group) for group in dict.fromkeys(seen)] == [[] for _ in dict.fromkeys(seen)]
    assert weights(tmp_path / "run") == whole[0]
    assert run.policy.sampler.statistics().taken_out >= 2  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
@pytest.mark.parametrize(
    ("kind", "ranks"),
    [(signal.SIGINT, 1), (signal.SIGTERM, 1), (signal.SIGKILL, 1), (signal.SIGINT, 2), (signal.SIGKILL, 2)],
)
def test_a_run_that_is_ended_leaves_no_process(kind: int, ranks: int, small_model: Path, tmp_path: Path) -> None:
    folder, long = tmp_path / "run", [s for s in SHORT if "total_training_steps" not in s]
    given = [f"{ROLLOUT}.name=vllm", f"{ROLLOUT}.server_python={python_with_vllm(tmp_path)}", "data.needle.chunks=8"]
    words = [*long, *given, f"actor_rollout_ref.model.path={small_model}", f"trainer.default_local_dir={folder}"]
    words += ["trainer.total_training_steps=500", f"trainer.n_gpus_per_node={ranks}"]
    command = [sys.executable, "-m", "recollect", "train", *words]
    with (tmp_path / "said").open("w") as said:
        run = subprocess.Popen(command, stdout=said, stderr=said, start_new_session=True)
    try:
        assert until(lambda: (folder / "metrics.jsonl").is_file() or run.poll() is not None)
        assert run.poll() is None, (tmp_path / "said").read_text()
        keepers = [int(p.parent.name) for p in Path("/proc").glob("[0-9]*/cmdline") if _is_keeper(p, str(folder))]
        groups = [int(p.parent.name) for k in keepers for p in Path("/proc").glob("[0-9]*/status") if _child(p, k)]
        assert groups
        learners = [int(p.parent.name) for p in Path("/proc").glob("[0-9]*/status") if _child(p, run.pid)]
        learners = [pid for pid in learners if "rank_process" in Path(f"/proc/{pid}/cmdline").read_text()]
        assert len(learners) == (ranks if ranks > 1 else 0)
        os.kill(run.pid, kind)
        assert until(lambda: run.poll() is not None)
        assert until(lambda: not any(members(group) for group in groups))
        assert until(lambda: not any(Path(f"/proc/{process}").exists() for process in [*keepers, *learners]))
        if kind == signal.SIGINT:
            assert "interrupted and saved" in (tmp_path / "said").read_text()
            assert not (folder / "servers" / "weights").exists()
    finally:
        run.kill()
        run.wait()


def _is_keeper(cmdline: Path, folder: str) -> bool:
    try:
        words = cmdline.read_bytes().decode()
    except OSError:
        return False
    return "process_keeper.py" in words and folder in words


def _child(status: Path, parent: int) -> bool:
    try:
        return f"PPid:\t{parent}\n" in status.read_text()
    except OSError:
        return False


def near(one: Path, other: Path, far: float) -> None:
    """The weights of two runs are no farther apart."""
    mine, theirs = (load_file(newest(folder) / "model.safetensors") for folder in (one, other))
    torch.testing.assert_close(mine, theirs, rtol=far, atol=far)


def test_ranks_learn_while_servers_sample(
    whole: Whole, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights of one process; and with a rank lost in an update and servers in sampling the very same."""
    dying, lost = tmp_path / "dying", tmp_path / "lost"

    def once(place: RankPlace) -> None:
        plain = TrainedModel.accumulate

        def accumulate(*given: Any) -> float:
            if place.rank == 1 and dying.exists() and not lost.exists():
                lost.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return plain(*given)

        monkeypatch.setattr(TrainedModel, "accumulate", accumulate)  # in the rank's own process

    forking(monkeypatch, once)
    first, second = StandIn(small_model), StandIn(small_model)

    def trouble(row: dict[str, Any]) -> None:
        dying.touch()
        if row["step"] == 1:
            first.fails_after = first.answered + 2
        else:
            first.fails_after, second.label_said = None, "0-of-another-run"

    with serving(first, second) as urls:
        given = [*served(urls), "trainer.n_gpus_per_node=2"]
        quiet = work(tmp_path / "quiet", small_model, *given).fit()
        first.label = second.label = "none"
        run = work(tmp_path / "troubled", small_model, *given, on_step=trouble)
        troubled = run.fit()
    assert lost.exists()
    near(tmp_path / "quiet", whole[2], 1e-5)
    assert weights(tmp_path / "troubled") == weights(tmp_path / "quiet")
    assert quiet["fidelity"] == troubled["fidelity"] == 1.0
    assert quiet["held_out"] == troubled["held_out"] == whole[1]["held_out"]
    fleet = run.policy.sampler
    assert isinstance(fleet, Fleet)
    assert fleet.statistics().taken_out >= 2
    for name in ("quiet", "troubled"):
        rows = [r for r in RunDirectory(tmp_path / name).metrics() if "reward/mean" in r]
        assert all(r["rollout/failures"] == 0 and r.get("actor/logprob_drift", 0) < 1e-4 for r in rows)
        assert list((tmp_path / name / "servers").rglob("*")) == []


def test_a_python_without_vllm_is_refused(small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"server_python=.* has no vLLM; run: .* -m pip install vllm"):
        work(tmp_path / "a", small_model, f"{ROLLOUT}.name=vllm", f"{ROLLOUT}.server_python={sys.executable}")
    with pytest.raises(BadInput, match=r"server_python=/none/python cannot be run"):
        work(tmp_path / "b", small_model, f"{ROLLOUT}.name=vllm", f"{ROLLOUT}.server_python=/none/python")
    assert not (tmp_path / "a").exists()
