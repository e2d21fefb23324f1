"""The schedule of sampling ahead: which version samples what is a function of the step, whatever takes how long."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import recollect
from recollect.config.compose import compose
from recollect.config.staleness import overlaps
from recollect.runtime.console import Console
from recollect.runtime.event_loop import TimedRuns
from recollect.serve.arbor.job_shelf import JobShelf
from recollect.training.rl.ahead import Ahead
from recollect.training.rl.annotate import annotate
from recollect.training.rl.gather import Gathered, TooManyFailures, WrongVersion
from recollect.training.rl.overlap import Overlapped
from recollect.types import BadInput, Completion, Group, Score, Task, Trajectory, Turn
from recollect.workflows.dry_run.dry_run import dry_run

KINDS = [Ahead, Overlapped]


class Sampler:
    """Has the weights of a version, which is also their value. It must not get others while it samples."""

    def __init__(self) -> None:
        self.version, self.busy, self.taken = 0, False, []  # type: ignore[var-annotated]

    def take_weights(self, version: int, weights: Any) -> None:
        assert not self.busy
        ((_, weight),) = list(weights)
        assert weight.item() == version
        self.version = version
        self.taken.append(version)

    def statistics(self) -> Any:
        return SimpleNamespace(prefill_seconds=0.0, decode_seconds=0.0, outside=True, gpu_seconds=None)


class Learner:
    """One number that goes up by one with every update."""

    def __init__(self) -> None:
        self.weight = torch.zeros(())

    def sync(self, sampler: Any, version: int) -> None:
        sampler.take_weights(version, [("w", self.weight)])


class Gatherer:
    """Says which version sampled which batch; how long that takes is drawn anew each time."""

    def __init__(self, sampler: Sampler, pause: Any, taken: Any = lambda step: 1, wrong: int | None = None) -> None:
        self.sampler, self.pause, self.taken, self.wrong = sampler, pause, taken, wrong
        self.seen: list[tuple[int, int, int]] = []
        self.run: Any = lambda work: (asyncio.run(work), 0.0)

    async def _sample(self) -> int:
        version = self.sampler.version
        await asyncio.sleep(self.pause())
        assert version == self.sampler.version
        return version

    def gather(self, step: int, position: int) -> Gathered:
        self.sampler.busy = True
        try:
            version, _ = self.run(self._sample())
        finally:
            self.sampler.busy = False
        if step == self.wrong:
            version += 1
        if self.wrong == -step:
            raise TooManyFailures(f"in step {step}")
        self.seen.append((step, position, version))
        turn = Turn("agent", (1,), Completion((2,), (-1.0,), "stop", version, ""))
        group = Group(Task(str(step), "q"), [Trajectory(str(step), 0, [turn], score=Score(1.0))])
        return Gathered([group], [group], batches=self.taken(step))


class Run:
    """The steps of a run, as `Reinforce` and `TrainRun` make them."""

    def __init__(self, kind: type[Ahead], staleness: int, total: int, seed: int = 0, **more: Any) -> None:
        rng = random.Random(seed)
        self.pause = lambda: rng.choice([0.0, 0.001, 0.005])
        self.sampler, self.learner = Sampler(), Learner()
        sync = lambda version: self.learner.sync(self.sampler, version)
        policy: Any = SimpleNamespace(sampler=self.sampler, learner=self.learner, sync=sync)
        self.gatherer = Gatherer(self.sampler, self.pause, **more)
        self.ahead = kind(self.gatherer, policy, staleness, total)  # type: ignore[arg-type]
        self.policy, self.total, self.done, self.batches = policy, total, 0, 0
        self.trained: list[tuple[int, int | None]] = []

    def step(self) -> None:
        made = self.ahead.gather(self.done, self.batches)
        time.sleep(self.pause())
        assert self.learner.weight.item() == self.done
        self.learner.weight += 1
        if not made.goes_on:
            self.policy.sync(self.done + 1)
        self.trained.append((int(made.groups[0].task.id), made.version))
        self.batches += made.batches
        self.done += 1

    def steps(self, until: int | None = None) -> None:
        while self.done < (self.total if until is None else until):
            self.step()


def expected(staleness: int, total: int) -> list[tuple[int, int]]:
    return [(k, max(0, k - staleness)) for k in range(total)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("staleness", [1, 2, 3, 16])
@pytest.mark.parametrize("seed", range(3))
def test_the_schedule_is_a_function_of_the_step(kind: type[Ahead], staleness: int, seed: int) -> None:
    taken = lambda step: 1 + step % 3  # batches of tasks, as with dynamic sampling
    run = Run(kind, staleness, 12, seed, taken=taken)
    run.steps()
    assert run.trained == expected(staleness, 12)
    positions = [sum(map(taken, range(k))) for k in range(12)]
    assert run.gatherer.seen == [(k, p, v) for (k, v), p in zip(expected(staleness, 12), positions, strict=True)]
    run.ahead.finish(12)
    assert run.sampler.version == 12
    run.ahead.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("staleness", [1, 3])
def test_a_run_goes_on_with_what_was_begun(kind: type[Ahead], staleness: int) -> None:
    for stop in range(8):
        first = Run(kind, staleness, 8)
        first.steps(stop)
        started = dict(first.ahead.settled())
        first.ahead.close()
        assert sorted(started) == list(range(stop, min(8, stop + staleness) if stop else 0))
        second = Run(kind, staleness, 8, 1)
        second.done, second.batches, second.learner.weight = stop, first.batches, first.learner.weight.clone()
        second.policy.sync(stop)
        second.ahead.ready = started
        second.steps()
        assert first.trained + second.trained == expected(staleness, 8)
        second.ahead.close()


@pytest.mark.parametrize("kind", KINDS)
def test_for_a_validation_the_sampler_is_idle_and_has_the_newest_weights(kind: type[Ahead]) -> None:
    run = Run(kind, 2, 9)
    for k in range(1, 9):
        run.steps(k)
        if k % 3 == 0:
            run.ahead.catch_up(k)
            assert (run.sampler.busy, run.sampler.version) == (False, k)
    run.steps()
    assert run.trained == expected(2, 9)
    run.ahead.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_completion_of_another_version_is_an_error(kind: type[Ahead]) -> None:
    run = Run(kind, 2, 9, wrong=5)
    with pytest.raises(WrongVersion, match="5 was sampled by version 4 of the weights, not by 3; it is not trained on"):
        run.steps()
    assert run.done == (3 if kind is Ahead else 5)  # where they take turns it is noticed at once
    run.ahead.close()


def test_what_goes_wrong_in_the_thread_is_raised_when_its_batch_is_due() -> None:
    run = Run(Overlapped, 1, 9, wrong=-4)
    with pytest.raises(TooManyFailures, match="in step 4"):
        run.steps()
    assert run.done == 4
    with pytest.raises(TooManyFailures):
        run.ahead.settled()  # nothing is saved without it
    run.ahead.close()


def test_a_rollout_under_way_is_dropped() -> None:
    run = Run(Overlapped, 1, 9)
    run.steps(2)
    run.ahead.settled()
    run.gatherer.pause = lambda: 600.0
    run.step()
    start = time.monotonic()
    run.ahead.finish(3)
    assert time.monotonic() - start < 30
    assert run.sampler.version == 3


def test_runs_that_are_cancelled_begin_no_more() -> None:
    runs = TimedRuns()
    assert runs.run(asyncio.sleep(0, "done"))[0] == "done"
    runs.cancel()
    with pytest.raises(asyncio.CancelledError):
        runs.run(asyncio.sleep(600))


def test_settings_that_cannot_be(tmp_path: Path) -> None:
    for settings, said in (
        (["trainer.max_staleness=17"], "trainer.max_staleness=17 must be from 0 to 16"),
        (["trainer.max_staleness=-1"], "trainer.max_staleness=-1 must be from 0 to 16"),
        (["trainer.partial_rollout=True"], "trainer.partial_rollout=True: which turn .* set False"),
        (
            ["trainer.max_staleness=1", "data.offline_files=[runs/a]"],
            "max_staleness=1: data.offline_files are learnt from without sampling",
        ),
    ):
        with pytest.raises(BadInput, match=said):
            compose("needle", settings)
    with pytest.raises(BadInput, match="max_staleness=1: clients say when their jobs sample; leave it out"):
        JobShelf(tmp_path, ["trainer.max_staleness=1"]).check()


def test_what_older_weights_sampled_is_always_compared_with_them() -> None:
    def of(*settings: str) -> tuple[bool | None, str | None]:
        algorithm = compose("needle", list(settings)).algorithm
        return algorithm.bypass_mode, algorithm.rollout_is

    ahead = "trainer.max_staleness=1"
    assert of() == (None, None)
    assert of(ahead) == of(ahead, "algorithm.rollout_is=null") == (True, None)
    assert of(ahead, "algorithm.rollout_is=sequence") == (None, "sequence")
    assert of(ahead, "algorithm.bypass_mode=false") == (False, "token")
    assert of(ahead, "actor_rollout_ref.actor.policy_loss.loss_mode=reinforce") == (False, "token")
    assert of("algorithm.rollout_correction.bypass_mode=true") == (True, None)


def test_the_old_policy_of_what_older_weights_sampled_is_the_sampler() -> None:
    asked: list[str] = []

    class Says:
        def logprobs(self, batch: Any) -> str:
            asked.append("learner")
            return "the learner's"

    batch: Any = SimpleNamespace(sampler_logprobs_E="the sampler's", updates=lambda size, epochs: 2)
    old = lambda *settings: annotate(compose("needle", list(settings)), Says(), None, None, batch).old  # type: ignore[arg-type]
    assert old() == old("trainer.max_staleness=1", "algorithm.bypass_mode=false") == "the learner's"
    assert len(asked) == 2
    assert old("trainer.max_staleness=1") == old("algorithm.bypass_mode=true") == "the sampler's"
    assert len(asked) == 2  # the learner computes nothing for it


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [1, 2])
def test_a_run_that_samples_ahead_learns(ahead: int, tmp_path: Path) -> None:
    """With a weight that is capped at 2 beside the loss instead, this recipe forgets everything by step 12."""
    settings = [f"trainer.max_staleness={ahead}", "trainer.save_freq=0", "evaluation.lengths=[1]"]
    report = recollect.train("needle", settings=settings, out=tmp_path / "run", quiet=True)
    assert report["held_out"]["rl"] >= 0.9


def test_sampling_overlaps_wherever_something_else_computes() -> None:
    of = lambda *settings: overlaps(compose("needle", ["trainer.max_staleness=1", *settings]))
    assert not of()
    assert of("trainer.n_gpus_per_node=2")
    assert of("trainer.nnodes=2")  # one rank on each of two nodes
    assert of("actor_rollout_ref.rollout.gpus=[1]")  # one GPU trains and another samples
    assert not of("actor_rollout_ref.rollout.gpus=[1]", "trainer.gpus=[1]")


def test_the_dry_run_says_which_weights_sample_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*more: str) -> tuple[dict[str, Any], str]:
        cfg = compose("needle", [f"trainer.default_local_dir={tmp_path / 'run'}", "trainer.device=cpu", *more])
        found = dry_run(cfg, Console())["sampling_ahead"]
        return found, " ".join(capsys.readouterr().out.split())

    found, text = said()
    assert found == {"max_staleness": 0, "overlaps": False}
    assert "max_staleness" not in text
    found, text = said("trainer.max_staleness=2")
    assert found == {"max_staleness": 2, "overlaps": False}
    assert "max(0, k - 2), and the loss compares with it (algorithm.bypass_mode=True); sampling and updates" in text
    found, text = said("trainer.max_staleness=2", "trainer.n_gpus_per_node=2")
    assert found == {"max_staleness": 2, "overlaps": True}
    assert "sampling goes on while the learner updates" in text
