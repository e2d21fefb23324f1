"""Collecting trajectories: groups, keys, and failures that stay their own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from recollect.agents.rollout import failures, first_failure
from recollect.agents.session import Session
from recollect.chat import Renderer
from recollect.config import Config
from recollect.runtime.threads import Slots
from recollect.types import Message, Sampling, Score, Task, Trajectory, Turn
from tests.standin import Standin, asks_three_times, collect, collector, crashes, kinds, second_of_three
from tests.waiting import LONG

# ---- groups, limits, keys ----


def test_groups_of_n_in_order(renderer: Renderer) -> None:
    done: list[Trajectory] = []
    made = collector(Standin(renderer), renderer, reward=lambda answer: answer == "ok")
    made.on_done = done.append
    groups = collect(made, tasks=3, n=4)
    assert [g.task.id for g in groups] == ["t0", "t1", "t2"]
    assert [[t.sample for t in g.trajectories] for g in groups] == [[0, 1, 2, 3]] * 3
    assert all(t.task_id == g.task.id for g in groups for t in g.trajectories)
    assert all(t.valid and t.reward == 1.0 and t.stop == "answered" and t.answer == "ok" for t in done)
    assert len(done) == 12
    turn = groups[1].trajectories[2].turns[0]
    assert list(turn.prompt_ids) == renderer.prompt([Message("user", "q1")])
    assert turn.prompt_ids.itemsize == 4  # a long document's prompts hold all of it
    assert (turn.role, turn.trainable, turn.temperature, turn.completion.version) == ("agent", True, 1.0, 3)


def test_running_a_collection_writes_out_no_ids(renderer: Renderer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 and 3.12 make a text of what asyncio.run returns: of a batch of long prompts that takes a while."""
    written: list[Turn] = []
    monkeypatch.setattr(Turn, "__repr__", lambda turn: written.append(turn) or "turn")
    groups = collect(collector(Standin(renderer), renderer), tasks=2, n=2)
    assert "t1" in repr(groups)
    assert not written


def test_the_concurrency_limit_is_kept_and_used(renderer: Renderer) -> None:
    policy = Standin(renderer, delay=0.005)
    collect(collector(policy, renderer, max_concurrency=3), tasks=4, n=5)
    assert policy.most == 3
    assert len(policy.requests) == 20


def test_more_rewards_than_threads_in_one_collection_after_another(renderer: Renderer) -> None:
    """Each collection has an event loop of its own; a crowd at the rewards in one must not spoil the next."""
    made = collector(Standin(renderer), renderer, reward=lambda answer: time.sleep(0.002) or 1.0, max_concurrency=4)
    for key in ("step-0", "step-1"):
        groups = collect(made, tasks=50, n=2, key=key)
        assert all(t.valid for g in groups for t in g.trajectories)


def test_keys_are_unique_and_the_same_in_every_run(renderer: Renderer) -> None:
    runs = []
    for concurrency in (100, 1, 4):
        policy = Standin(renderer)
        collect(collector(policy, renderer, asks_three_times, max_concurrency=concurrency), tasks=4, n=3)
        keys = [r.key for r in policy.requests]
        assert len(set(keys)) == len(keys) == 36
        runs.append(set(keys))
    assert runs[0] == runs[1] == runs[2]
    assert "step-0/t2/1/0" in runs[0]
    other = Standin(renderer)
    collect(collector(other, renderer, asks_three_times), tasks=4, key="step-1")
    assert runs[0].isdisjoint(r.key for r in other.requests)


def test_generations_side_by_side_have_keys_of_their_own(renderer: Renderer) -> None:
    """With one key, they would draw the same noise."""

    async def side_by_side(task: Task, session: Session, cfg: Config) -> str:
        await asyncio.gather(*(session.generate("same") for _ in range(3)))
        return (await session.generate("end")).text

    policy = Standin(renderer)
    collect(collector(policy, renderer, side_by_side), n=2)
    assert len({r.key for r in policy.requests}) == len(policy.requests) == 8


def test_sampling_settings_reach_the_policy(renderer: Renderer) -> None:
    policy = Standin(renderer)
    collect(collector(policy, renderer, asks_three_times), n=1)
    first, _, last = policy.requests
    assert (first.max_tokens, first.stop, first.seed, first.keep) == (5, (".",), 7, False)
    assert (last.max_tokens, last.stop, last.stop_ids) == (20, (), renderer.stop_ids)


# ---- failures ----


async def hangs() -> None:
    await asyncio.sleep(60)


async def times_out_by_itself() -> None:
    raise TimeoutError("the tool's own deadline")


async def is_cancelled_inside() -> None:
    inner = asyncio.ensure_future(asyncio.sleep(60))
    inner.cancel()
    await inner


def test_a_timeout_is_a_failure_of_its_own(renderer: Renderer) -> None:
    start = time.monotonic()
    groups = collect(collector(Standin(renderer), renderer, second_of_three(hangs), timeout_s=0.5))
    assert time.monotonic() - start < 30  # it would take 60
    assert kinds(groups) == [None, "timeout", None]
    failed = groups[0].trajectories[1]
    assert failed.failure is not None
    assert "0.5 s" in failed.failure.message
    assert (failed.stop, failed.score, failed.valid) == ("failed", None, False)
    assert [t.reward for t in groups[0].trajectories if t.valid] == [0.0, 0.0]  # boxed_em of a plain "ok"


def test_a_slow_policy_runs_into_the_deadline(renderer: Renderer) -> None:
    assert kinds(collect(collector(Standin(renderer, delay=60), renderer, timeout_s=0.05), n=2)) == ["timeout"] * 2


def test_an_exception_in_the_agent(renderer: Renderer) -> None:
    groups = collect(collector(Standin(renderer), renderer, second_of_three(crashes)))
    assert kinds(groups) == [None, "agent", None]
    assert groups[0].trajectories[1].failure.message == "KeyError: 'lost'"  # type: ignore[union-attr]


def failing(prompt: str, number: int) -> str:
    if number == 1:
        raise ConnectionError("endpoint gone")
    return "ok"


def test_an_exception_in_the_policy(renderer: Renderer) -> None:
    groups = collect(collector(Standin(renderer, failing), renderer, max_concurrency=1))
    assert kinds(groups) == [None, "policy", None]
    assert groups[0].trajectories[1].failure.message == "ConnectionError: endpoint gone"  # type: ignore[union-attr]
    assert failures(groups) == {"policy": 1}
    assert first_failure(groups) == "policy: ConnectionError: endpoint gone"


def test_an_agent_may_survive_its_policy_and_then_fail_by_itself(renderer: Renderer) -> None:
    async def survives(task: Task, session: Session, cfg: Config) -> str:
        try:
            await session.generate("q")
        except ConnectionError:
            raise KeyError("my own mistake") from None
        return "ok"

    groups = collect(collector(Standin(renderer, failing), renderer, survives, max_concurrency=1))
    assert kinds(groups) == [None, "agent", None]


def test_a_timeout_error_within_the_deadline_is_not_the_deadline(renderer: Renderer) -> None:
    groups = collect(collector(Standin(renderer), renderer, second_of_three(times_out_by_itself)))
    assert kinds(groups) == [None, "agent", None]
    assert "own deadline" in groups[0].trajectories[1].failure.message  # type: ignore[union-attr]


def test_something_cancelled_inside_one_agent_leaves_the_others_alone(renderer: Renderer) -> None:
    groups = collect(collector(Standin(renderer), renderer, second_of_three(is_cancelled_inside)))
    assert [k is None for k in kinds(groups)] == [True, False, True]


def test_cancelling_a_collection_stops_all_of_it(renderer: Renderer) -> None:
    policy = Standin(renderer, delay=60)
    made = collector(policy, renderer)

    async def go() -> None:
        job = asyncio.create_task(made.collect([Task("t", "q")], 4, Sampling(), "k"))
        async with asyncio.timeout(LONG):
            while policy.running < 4:
                await asyncio.sleep(0.005)
        job.cancel()
        with pytest.raises(asyncio.CancelledError):
            await job
        assert policy.running == 0

    asyncio.run(go())


def on_second(action: Callable[[], Any]) -> Callable[..., Any]:
    def reward(answer: str, trajectory: Trajectory) -> Any:
        return action() if trajectory.sample == 1 else 1.0

    return reward


def boom() -> float:
    raise RuntimeError("judge down")


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (boom, "RuntimeError: judge down"),
        (lambda: float("nan"), "nan"),
        (lambda: float("inf"), "inf"),
        (lambda: None, "NoneType"),
        (lambda: "high", "high"),
        (lambda: {"score": 1.0}, "without 'reward'"),
        (lambda: {"reward": float("nan")}, "nan"),
        (lambda: Score(float("-inf")), "inf"),
    ],
)
def test_a_reward_that_cannot_be_used(action: Callable[[], Any], words: str, renderer: Renderer) -> None:
    groups = collect(collector(Standin(renderer), renderer, reward=on_second(action)))
    assert kinds(groups) == [None, "reward", None]
    failed = groups[0].trajectories[1]
    assert words in failed.failure.message  # type: ignore[union-attr]
    assert not failed.valid
    assert failed.answer == "ok"  # what the agent did is kept


def test_a_reward_that_takes_too_long(renderer: Renderer) -> None:
    async def slow(answer: str, trajectory: Trajectory) -> float:
        if trajectory.sample == 1:
            await asyncio.sleep(60)
        return 1.0

    groups = collect(collector(Standin(renderer), renderer, reward=slow, reward_timeout_s=0.5))
    assert kinds(groups) == [None, "reward", None]
    assert "0.5 s" in groups[0].trajectories[1].failure.message  # type: ignore[union-attr]


def test_a_plain_reward_that_hangs_does_not_hold_up_the_step(renderer: Renderer) -> None:
    hang = on_second(lambda: time.sleep(LONG) or 1.0)
    start = time.monotonic()
    groups = collect(collector(Standin(renderer), renderer, reward=hang, reward_timeout_s=0.5))
    assert kinds(groups) == [None, "reward", None]
    assert time.monotonic() - start < LONG / 2


def test_the_deadline_of_a_reward_starts_when_the_reward_does(renderer: Renderer) -> None:
    """Many plain rewards wait for a thread; that is not their own time."""
    made = collector(Standin(renderer), renderer, reward=lambda answer: time.sleep(0.1) or 1.0, reward_timeout_s=1.0)
    made.scoring = Slots(2)
    start = time.monotonic()
    assert failures(collect(made, n=30)) == {}
    assert time.monotonic() - start > 1.0  # the last ones have waited longer than their deadline
