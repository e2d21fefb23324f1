"""Runs that sample ahead of their weights: the same numbers in turn, beside ranks and with servers, killed or not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from recollect.config.compose import compose
from recollect.packing.batch import build_batch
from recollect.policies.endpoint import EndpointGone
from recollect.runs.directory import RunDirectory
from recollect.runtime.console import Console
from recollect.samplers.fleet.fleet import Fleet
from recollect.samplers.fleet.members import ServersGone
from recollect.training.interrupt import Interrupted
from recollect.training.learner.ranks.ranks_learner import RanksLearner
from recollect.training.learner.trained_model import TrainedModel
from recollect.training.rl.gather import Gatherer, WrongVersion
from recollect.training.rl.overlap import Overlapped
from recollect.training.rl.started import read_started
from recollect.training.train_run import TrainRun
from recollect.trajectories.stored_rows import read_trajectories
from recollect.types import BadInput
from tests.dist.forked import forking
from tests.samplers.fleet.standin_vllm import COMPUTING, StandIn, serving
from tests.training.test_resume import assert_same, command, kill_often, weights

ROLLOUT = "actor_rollout_ref.rollout"
ALONE = ["trainer.device=cpu", f"{ROLLOUT}.dtype=float32", "actor_rollout_ref.actor.dtype=float32"]
SHORT = [
    *("trainer.total_training_steps=5", "trainer.save_freq=2", "trainer.val_before_train=False", *ALONE),
    *("data.val_max_samples=4", "evaluation.tasks=[2]", "agent.max_context_length=1024"),
]


def settings(out: Path, model: Path, *more: str) -> list[str]:
    """A short run whose rewards vary, so that every step changes the weights."""
    return command(out, model, *SHORT, *more)[2:]


def work(out: Path, model: Path, *more: str, on_step: Any = None) -> TrainRun:
    return TrainRun(compose("needle", settings(out, model, *more)), Console(quiet=True), on_step)


def trajectories(run: Path) -> list[list[dict[str, Any]]]:
    """The stored attempts of each step."""
    return [list(read_trajectories(path)) for path in sorted((run / "trajectories").glob("step-*.zst"))]


def versions(run: Path) -> list[set[int]]:
    """The versions that sampled each step's batch."""
    return [{turn["version"] for row in rows for turn in row["turns"]} for rows in trajectories(run)]


def steps(run: Path) -> list[dict[str, Any]]:
    return [row for row in RunDirectory(run).metrics() if "reward/mean" in row]


@pytest.mark.parametrize(("staleness", "weighed"), [(1, False), (2, True)])
def test_in_one_process(staleness: int, weighed: bool, tmp_path: Path, small_model: Path) -> None:
    more = ["algorithm.rollout_is=token"] if weighed else []
    report = work(tmp_path / "run", small_model, f"trainer.max_staleness={staleness}", *more).fit()
    assert versions(tmp_path / "run") == [{max(0, k - staleness)} for k in range(5)]
    rows = steps(tmp_path / "run")
    assert [row["rollout/staleness"] for row in rows] == [min(k, staleness) for k in range(5)]
    assert all((row.get("actor/importance", 0) > 0) is weighed for row in rows if row["actor/policy_loss"])
    assert all(row["time/wait_for_rollout"] <= row["time/total"] for row in rows)
    assert report["fidelity"] == 1.0


def test_synchronous_steps_are_what_they_were(tmp_path: Path, small_model: Path) -> None:
    """Without staleness nothing is weighed, nothing is kept, and no metric comes on top."""
    run = work(tmp_path / "run", small_model)
    run.fit()
    assert run.ahead is None
    assert versions(tmp_path / "run") == [{k} for k in range(5)]
    new = {"rollout/staleness", "time/wait_for_rollout", "time/wait_for_update", "actor/importance"}
    assert not any(new & row.keys() for row in steps(tmp_path / "run"))
    assert not list((tmp_path / "run").rglob("started*"))


@pytest.fixture
def in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for servers compute in threads of this process, where attention has one plan at a time."""
    for name in ("accumulate", "measure"):
        plain = getattr(TrainedModel, name)

        def alone(*given: Any, plain: Any = plain, **named: Any) -> Any:
            with COMPUTING:
                return plain(*given, **named)

        monkeypatch.setattr(TrainedModel, name, alone)


@pytest.fixture
def urls(small_model: Path) -> Iterator[list[str]]:
    with serving(StandIn(small_model), StandIn(small_model)) as found:
        yield found


def served(urls: list[str]) -> list[str]:
    return [f"{ROLLOUT}.name=vllm", f"{ROLLOUT}.server_addresses=[{','.join(urls)}]", f"{ROLLOUT}.server_wait_s=1"]


def same(one: Path, two: Path, far: float = 0.0, last: int = 5) -> None:
    """The same attempts, and weights that are no farther apart.

    Log-probabilities of servers depend in their last bits on what else they compute at the moment.
    """
    mine, theirs = weights(one, f"step-{last}"), weights(two, f"step-{last}")
    torch.testing.assert_close(mine, theirs, rtol=far, atol=far)
    bare = lambda run: [[[t["ids"] for t in row["turns"]] for row in rows] for rows in trajectories(run)]
    assert bare(one) == bare(two)


NEAR = 1e-5
BOTH = {
    "one": ["trainer.max_staleness=1"],
    "two": ["trainer.max_staleness=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2"],
    "filter": ["trainer.max_staleness=1", "algorithm.filter_groups.enable=true", f"{ROLLOUT}.n=2"],
    "remax": ["trainer.max_staleness=1", "algorithm.adv_estimator=remax"],
    "best": ["trainer.max_staleness=2", "trainer.test_freq=1", "trainer.best_metric=val/needle/accuracy"],
    "sft": ["trainer.max_staleness=1", "sft.steps=2", "sft.batch_size=4", "actor_rollout_ref.actor.use_kl_loss=true"],
}

CASES = [pytest.param(name, marks=() if name in ("one", "two") else (pytest.mark.slow,)) for name in BOTH]


@pytest.mark.usefixtures("in_turns")
@pytest.mark.parametrize("case", CASES)
def test_servers_that_sample_beside_the_updates_change_nothing(
    case: str, tmp_path: Path, small_model: Path, urls: list[str]
) -> None:
    alone = work(tmp_path / "alone", small_model, *BOTH[case]).fit()
    run = work(tmp_path / "served", small_model, *BOTH[case], *served(urls))
    assert isinstance(run.ahead, Overlapped)
    assert isinstance(run.policy.sampler, Fleet)
    report = run.fit()
    same(tmp_path / "alone", tmp_path / "served", NEAR)
    ahead = int(BOTH[case][0][-1])
    assert versions(tmp_path / "served") == [{max(0, k - ahead)} for k in range(5)]
    for key in ("held_out", "fidelity", "trained_tokens", "best"):
        assert alone[key] == report[key], key
    assert report["fidelity"] == 1.0
    assert "rollout" not in {thread.name for thread in threading.enumerate()}


# ---- runs that end on the way ----


def test_killed_at_any_moment(tmp_path: Path, small_model: Path) -> None:
    """In one process: the batches of two later steps are in every checkpoint."""
    ahead = ["trainer.max_staleness=2", "actor_rollout_ref.actor.ppo_mini_batch_size=2", "trainer.save_freq=2"]
    make = lambda out: command(out, small_model, *ahead, "trainer.total_training_steps=6", "evaluation.tasks=[2]")
    kill_often(tmp_path, make, ["token", "update", "rename"], 3, 0.9)
    assert_same(tmp_path / "whole", tmp_path / "killed", 6)
    assert trajectories(tmp_path / "whole") == trajectories(tmp_path / "killed")
    assert versions(tmp_path / "killed") == [{max(0, k - 2)} for k in range(6)]


class Crash(Exception):
    """Ends a run in the middle."""


def crashing(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, at: int) -> None:
    """Let the ``at``-th call of a method raise."""
    plain, seen = getattr(owner, name), [0]

    def call(*given: Any, **named: Any) -> Any:
        seen[0] += 1
        if seen[0] == at:
            raise Crash(f"{name} {at}")
        return plain(*given, **named)

    monkeypatch.setattr(owner, name, call)


RANKS = ["trainer.n_gpus_per_node=2"]


@pytest.mark.parametrize(
    "more",
    [
        ["trainer.max_staleness=1"],
        pytest.param(
            ["trainer.test_freq=2", "algorithm.adv_estimator=gae", "trainer.max_staleness=3"], marks=pytest.mark.slow
        ),
    ],
)
def test_the_engine_samples_while_ranks_learn(
    more: list[str], tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a fixed role of this process; and the same when the run ends on the way, wherever that is."""
    forking(monkeypatch)
    roles = [*more, f"roles.qa=frozen:{small_model}"]
    work(tmp_path / "alone", small_model, *roles).fit()
    whole = work(tmp_path / "whole", small_model, *roles, *RANKS)
    assert isinstance(whole.ahead, Overlapped)
    assert whole.fit()["fidelity"] == 1.0
    same(tmp_path / "alone", tmp_path / "whole", NEAR)
    ahead = int(more[-1][-1])
    trained = [
        {t["version"] for r in rows for t in r["turns"] if t["trainable"]} for rows in trajectories(tmp_path / "whole")
    ]
    assert trained == [{max(0, k - ahead)} for k in range(5)]
    moments = ((Gatherer, "gather", 4), (RanksLearner, "update", 2), (RunDirectory, "log", 2))
    for owner, name, at in moments[:ahead]:
        with monkeypatch.context() as patched:
            crashing(patched, owner, name, at)
            with pytest.raises(Crash):
                work(tmp_path / "killed", small_model, *roles, *RANKS).fit()
    stopping = work(tmp_path / "killed", small_model, *roles, *RANKS)
    stopping.on_step = lambda row: setattr(stopping.stop, "made", True)  # as Ctrl-C does
    with pytest.raises(Interrupted):
        stopping.fit()
    work(tmp_path / "killed", small_model, *roles, *RANKS).fit()
    same(tmp_path / "whole", tmp_path / "killed")
    assert trajectories(tmp_path / "whole") == trajectories(tmp_path / "killed")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_while_ranks_learn(tmp_path: Path, small_model: Path) -> None:
    ahead = ["trainer.max_staleness=2", "trainer.n_gpus_per_node=2", "trainer.save_freq=1", *ALONE]
    make = lambda out: command(out, small_model, *ahead, "trainer.total_training_steps=6", "evaluation.tasks=[2]")
    kill_often(tmp_path, make, ["token", "rename", "row", "token"], 3, 0.5)
    assert_same(tmp_path / "whole", tmp_path / "killed", 6)
    assert trajectories(tmp_path / "whole") == trajectories(tmp_path / "killed")


@pytest.mark.usefixtures("in_turns")
def test_servers_that_are_gone_let_the_run_go_on_from_a_checkpoint(
    tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.samplers.fleet.members.PAUSE_S", 0.05)
    more = ["trainer.max_staleness=1"]
    work(tmp_path / "alone", small_model, *more).fit()
    server = StandIn(small_model)
    stop = lambda row: setattr(server, "hangs", row["step"] >= 3)
    more = [*more, f"{ROLLOUT}.server_timeout_s=3"]
    monkeypatch.setattr("recollect.samplers.fleet.vllm_client.CONTROL_S", 3.0)
    gone = EndpointGone, ServersGone  # it hangs in sampling, or when it is given new weights
    with serving(server) as found, pytest.raises(gone, match="the same command goes on from the newest checkpoint"):
        work(tmp_path / "run", small_model, *more, *served(found), on_step=stop).fit()
    assert (tmp_path / "run" / "checkpoints" / "step-2" / "started.jsonl.zst").is_file()
    with serving(StandIn(small_model)) as found:
        work(tmp_path / "run", small_model, *more, *served(found)).fit()
    same(tmp_path / "alone", tmp_path / "run", NEAR)


def test_a_run_that_stops_early_drops_what_was_begun(
    tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forking(monkeypatch)
    run = work(tmp_path / "run", small_model, "trainer.max_staleness=1", *RANKS, on_step=lambda row: row["step"] < 2)
    report = run.fit()
    assert (report["steps"], report["stopped"]) == (2, "on_step said so")
    assert run.policy.sampler.version == 2
    assert not (tmp_path / "run" / "checkpoints" / "step-2" / "started.jsonl.zst").exists()


def test_a_run_from_another_ones_checkpoint_begins_the_schedule_anew(tmp_path: Path, small_model: Path) -> None:
    work(tmp_path / "first", small_model, "trainer.max_staleness=2").fit()
    source = tmp_path / "first" / "checkpoints" / "step-2"
    assert (source / "started.jsonl.zst").is_file()
    resume = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={source}"]
    work(tmp_path / "second", small_model, "trainer.max_staleness=1", *resume).fit()
    assert versions(tmp_path / "second") == [{2}, {2}, {3}]


# ---- nothing of a wrong version is trained on ----


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_completion_of_a_wrong_version_is_never_trained_on(
    staleness: int, tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = work(tmp_path / "run", small_model, f"trainer.max_staleness={staleness}")
    sampler = run.policy.sampler
    generate, seen = sampler.generate, [0]

    async def wrong(*given: Any, **named: Any) -> Any:
        done = await generate(*given, **named)
        seen[0] += sampler.version == 2
        return replace(done, version=1) if seen[0] == 7 else done

    monkeypatch.setattr(sampler, "generate", wrong)
    with pytest.raises(WrongVersion, match="was sampled by version 1 of the weights, not by 2; it is not trained on"):
        run.fit()
    assert run.progress.step == 2


def test_a_stored_batch_of_a_wrong_version_is_not_trained_on_either(tmp_path: Path, small_model: Path) -> None:
    run = work(tmp_path / "run", small_model, "trainer.max_staleness=2", on_step=lambda row: row["step"] < 99)
    run.on_step = lambda row: setattr(run.stop, "made", row["step"] == 3)
    with pytest.raises(Interrupted):
        run.fit()
    again = work(tmp_path / "run", small_model, "trainer.max_staleness=2")
    assert again.ahead is not None
    read = again._load_progress

    def spoilt() -> bool:
        found = read()
        turn = again.ahead.ready[3].groups[0].trajectories[0].turns[0]  # type: ignore[union-attr]
        turn.completion = replace(turn.completion, version=3)
        return found

    again._load_progress = spoilt  # type: ignore[method-assign]
    with pytest.raises(WrongVersion, match="by version 3 of the weights, not by 1"):
        again.fit()
    assert again.progress.step == 3


def test_started_batches_come_back_as_they_were(tmp_path: Path, small_model: Path) -> None:
    """Every number that trains, to the bit."""
    run = work(tmp_path / "run", small_model, "trainer.max_staleness=2", "algorithm.adv_estimator=remax")
    run.on_step = lambda row: setattr(run.stop, "made", row["step"] == 2)
    with pytest.raises(Interrupted):
        run.fit()
    assert run.ahead is not None
    found = read_started(tmp_path / "run" / "checkpoints" / "step-2", 2)
    assert list(found) == [2, 3]
    for step, made in run.ahead.ready.items():
        other = found[step]
        assert (made.greedy, made.batches, made.version) == (other.greedy, other.batches, other.version)
        mine, theirs = build_batch(made.groups)[0], build_batch(other.groups)[0]
        for name in ("sampler_logprobs_E", "trajectories_E", "groups_E", "roles_E", "questions_E"):
            assert (getattr(mine, name) == getattr(theirs, name)).all()
        assert all((a == b).all() for a, b in zip(mine.sequences, theirs.sequences, strict=True))
        assert [t.score for g in made.sampled for t in g.trajectories] == [
            t.score for g in other.sampled for t in g.trajectories
        ]
    with pytest.raises(BadInput, match="the checkpoint is of step 3"):
        read_started(tmp_path / "run" / "checkpoints" / "step-2", 3)
