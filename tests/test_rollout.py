"""Collecting trajectories: groups, keys, rewards, and failures that stay their own."""

from __future__ import annotations

import asyncio
import json
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recollect.algos.batch import build_batch
from recollect.algos.samples import trajectory_samples
from recollect.chat import Renderer
from recollect.config import Config
from recollect.rewards.call import as_score
from recollect.rollout import Collector, failures, first_failure
from recollect.run import trajectory_rows
from recollect.session import Binding, Conversation, Session
from recollect.types import BadInput, Completion, Group, Message, Sampling, Score, Task, Trajectory, Turn

Say = Callable[[str, int], str]


class Standin:
    """A policy that says what a function of the prompt and the request's number says, and records what it was asked."""

    version = 3

    def __init__(self, renderer: Renderer, say: Say = lambda prompt, number: "ok", delay: float = 0.0) -> None:
        self.renderer, self.say, self.delay = renderer, say, delay
        self.requests: list[Sampling] = []
        self.prompts: list[list[int]] = []
        self.running = self.most = 0

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        self.requests.append(sampling)
        self.prompts.append(list(prompt_ids))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.delay)
            text = self.say(self.renderer.decode(prompt_ids), len(self.requests) - 1)
        finally:
            self.running -= 1
        ids = (*self.renderer.encode(text), self.renderer.stop_ids[-1])
        return Completion(ids, tuple(-0.1 * (i + 1) for i in range(len(ids))), "stop", self.version, text)


@pytest.fixture(scope="module")
def renderer(tokenizer: Any) -> Renderer:
    return Renderer(tokenizer)


async def asks_once(task: Task, session: Session, cfg: Config) -> str:
    return (await session.generate(task.question)).text


def collector(policy: Any, renderer: Renderer, agent: Any = asks_once, reward: Any = None, **options: Any) -> Collector:
    cfg = Config()
    for key, value in options.items():
        setattr(cfg.agent, key, value)
    made = Collector(cfg, {"*": Binding(policy, renderer)})
    made.agent = agent
    if reward is not None:
        made.reward, made.builtin_reward = reward, False
    return made


def collect(made: Collector, tasks: int = 1, n: int = 3, key: str = "step-0") -> list[Group]:
    rows = [
        Task(f"t{i}", f"q{i}", f"document {i}", ("ok",), fields={"level": i, "answer": "shadow"}) for i in range(tasks)
    ]
    return asyncio.run(made.collect(rows, n, Sampling(seed=7, max_tokens=20), key))


def kinds(groups: Sequence[Group]) -> list[str | None]:
    return [t.failure.kind if t.failure else None for g in groups for t in g.trajectories]


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
    assert (turn.role, turn.trainable, turn.temperature, turn.completion.version) == ("agent", True, 1.0, 3)


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


async def asks_three_times(task: Task, session: Session, cfg: Config) -> str:
    for i in range(2):
        await session.generate(f"{task.question} {i}", max_tokens=5, stop=["."])
    return (await session.generate("end", role="qa")).text


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


def second_of_three(action: Callable[[], Any]) -> Callable[[Task, Session, Config], Any]:
    """An agent whose second attempt does something else."""

    async def agent(task: Task, session: Session, cfg: Config) -> str:
        if session.trajectory.sample == 1:
            await action()
        return (await session.generate(task.question)).text

    return agent


async def hangs() -> None:
    await asyncio.sleep(60)


async def crashes() -> None:
    raise KeyError("lost")


async def times_out_by_itself() -> None:
    raise TimeoutError("the tool's own deadline")


async def is_cancelled_inside() -> None:
    inner = asyncio.ensure_future(asyncio.sleep(60))
    inner.cancel()
    await inner


def test_a_timeout_is_a_failure_of_its_own(renderer: Renderer) -> None:
    start = time.monotonic()
    groups = collect(collector(Standin(renderer), renderer, second_of_three(hangs), timeout_s=0.1))
    assert time.monotonic() - start < 5
    assert kinds(groups) == [None, "timeout", None]
    failed = groups[0].trajectories[1]
    assert failed.failure is not None
    assert "0.1 s" in failed.failure.message
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
        await asyncio.sleep(0.05)
        assert policy.running == 4
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

    groups = collect(collector(Standin(renderer), renderer, reward=slow, reward_timeout_s=0.1))
    assert kinds(groups) == [None, "reward", None]
    assert "0.1 s" in groups[0].trajectories[1].failure.message  # type: ignore[union-attr]


def test_a_plain_reward_that_hangs_does_not_hold_up_the_step(renderer: Renderer) -> None:
    hang = on_second(lambda: time.sleep(2.5) or 1.0)
    start = time.monotonic()
    groups = collect(collector(Standin(renderer), renderer, reward=hang, reward_timeout_s=0.1))
    assert kinds(groups) == [None, "reward", None]
    assert time.monotonic() - start < 2


def test_the_deadline_of_a_reward_starts_when_the_reward_does(renderer: Renderer) -> None:
    """Many plain rewards wait for a thread; that is not their own time."""
    groups = collect(
        collector(Standin(renderer), renderer, reward=lambda answer: time.sleep(0.1) or 1.0, reward_timeout_s=0.3),
        n=60,
    )
    assert failures(groups) == {}


# ---- rewards that users write ----

USER_REWARDS = """
    def by_name(answer, level, task, bonus=0.5):
        return (answer == task.answers[0]) + level + bonus

    def by_kwargs(answer, **everything):
        assert {"task", "trajectory", "level"} <= set(everything)
        return {"reward": len(answer), "format": 1, "flag": True, "note": "text"}

    async def later(answer, trajectory):
        import asyncio
        await asyncio.sleep(0)
        return trajectory.sample

    def wants_more(answer, nowhere):
        return 1.0

    class Judge:
        async def __call__(self, answer):
            return 0.25

    judge = Judge()
    NUMBER = 3
"""


@pytest.fixture
def user_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "my_own_rewards.py"
    path.write_text(textwrap.dedent(USER_REWARDS))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "my_own_rewards", raising=False)
    return path


def with_reward(name: str, renderer: Renderer) -> Collector:
    cfg = Config()
    cfg.agent.reward_name = name
    made = Collector(cfg, {"*": Binding(Standin(renderer), renderer)})
    made.agent = asks_once
    return made


@pytest.mark.parametrize("place", ["file", "module"])
def test_user_rewards_by_file_and_module(place: str, user_file: Path, renderer: Renderer) -> None:
    source = str(user_file) if place == "file" else "my_own_rewards"
    scores = lambda name: [[t.score for t in g.trajectories] for g in collect(with_reward(name, renderer), 2, 2)]
    assert scores(f"{source}:by_name") == [[Score(1.5)] * 2, [Score(2.5)] * 2]
    assert scores(f"{source}:by_kwargs") == [[Score(2.0, {"format": 1.0, "flag": 1.0})] * 2] * 2
    assert scores(f"{source}:later") == [[Score(0.0), Score(1.0)]] * 2


def test_a_reward_object_with_an_async_call(user_file: Path, renderer: Renderer) -> None:
    groups = collect(with_reward(f"{user_file}:judge", renderer))
    assert [t.failure for t in groups[0].trajectories] == [None] * 3
    assert [t.reward for t in groups[0].trajectories] == [0.25] * 3


def test_a_reward_that_asks_for_an_unknown_field_fails_by_name(user_file: Path, renderer: Renderer) -> None:
    groups = collect(with_reward(f"{user_file}:wants_more", renderer))
    assert kinds(groups) == ["reward"] * 3
    assert "nowhere" in groups[0].trajectories[0].failure.message  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("boxed_me", "did you mean boxed_em"),
        ("nothing_like_it_at_all", "known: .*boxed_em"),
        ("no_such_module_here:f", "no_such_module_here cannot be imported"),
        ("/no/such/file.py:f", "no file /no/such/file.py"),
        ("{file}:gone", "no function gone"),
        ("{file}:NUMBER", "no function NUMBER"),
        ("{broken}:f", "failed to load: SyntaxError"),
        ("broken_module:f", "broken_module"),
        (":f", "agent.reward_name"),
    ],
)
def test_rewards_that_cannot_be_found(name: str, words: str, user_file: Path, renderer: Renderer) -> None:
    for stem in ("broken", "broken_module"):
        (user_file.parent / f"{stem}.py").write_text("def f(:\n")
    name = name.format(file=user_file, broken=user_file.parent / "broken.py")
    with pytest.raises(BadInput, match=words) as caught:
        with_reward(name, renderer)
    assert "agent.reward_name" in str(caught.value)


def test_scores_are_plain_numbers(tmp_path: Path) -> None:
    """Whatever kind of number a reward returns, it can be written to the run directory."""
    for value in (np.float32(0.5), np.float64(0.5), {"reward": np.float32(0.5)}, Score(np.float32(0.5)), 0.5):
        score = as_score(value)
        assert type(score.total) is float
        assert score.total == 0.5
    assert as_score(True) == Score(1.0)
    assert as_score({"reward": 1, "format": np.float32(0.5), "count": np.int64(2)}).parts == {"format": 0.5, "count": 2}
    score = as_score(Score(1.0, {"format": np.float32(0.5)}))  # type: ignore[dict-item]
    row = next(iter(trajectory_rows([Group(Task("t", "q"), [Trajectory("t", 0, score=score)])])))
    assert json.loads(json.dumps(row))["parts"] == {"format": 0.5}


# ---- from turns to training sequences ----


def counted(prompt: str, number: int) -> str:
    return f"reply {number}"


async def converses(task: Task, session: Session, cfg: Config) -> str:
    talk = Conversation([Message("system", "Be brief."), Message("user", task.question)])
    for observation in ("mira holds 472.", "kolu holds 1."):
        await session.generate(talk)
        talk.add(Message("tool", observation))
    return (await session.generate(talk)).text


def test_a_conversation_is_one_sequence(renderer: Renderer) -> None:
    policy = Standin(renderer, counted)
    trajectory = collect(collector(policy, renderer, converses), n=1)[0].trajectories[0]
    assert len(trajectory.turns) == 3
    (sample,) = trajectory_samples(trajectory, 4, 2)
    assert (sample.trajectory, sample.group) == (4, 2)
    last = trajectory.turns[-1]
    assert sample.ids == [*last.prompt_ids, *last.completion.ids]
    chosen = [i for i, m in zip(sample.ids, sample.mask, strict=True) if m]
    assert chosen == [i for t in trajectory.turns for i in t.completion.ids]
    logprobs = [p for p, m in zip(sample.logprobs, sample.mask, strict=True) if m]
    assert logprobs == [p for t in trajectory.turns for p in t.completion.logprobs]
    assert {p for p, m in zip(sample.logprobs, sample.mask, strict=True) if not m} == {0.0}
    assert all(r.keep for r in policy.requests)
    shown = renderer.tokenizer.decode(sample.ids)
    assert shown.startswith("<|system|>Be brief.<|end|><|user|>q0<|end|><|assistant|>reply 0<|end|><|tool|>mira holds")
    assert shown.endswith("<|assistant|>reply 2<|end|>")


def test_fresh_contexts_are_several_sequences(renderer: Renderer) -> None:
    trajectory = collect(collector(Standin(renderer, counted), renderer, asks_three_times), n=1)[0].trajectories[0]
    samples = trajectory_samples(trajectory, 0, 0)
    assert len(samples) == 3
    for sample, turn in zip(samples, trajectory.turns, strict=True):
        assert sample.ids == [*turn.prompt_ids, *turn.completion.ids]
        assert sample.mask == [False] * len(turn.prompt_ids) + [True] * len(turn.completion.ids)


async def two_roles(task: Task, session: Session, cfg: Config) -> str:
    talk = Conversation([Message("user", task.question)])
    await session.generate(talk, role="memory")
    talk.add(Message("user", "and?"))
    await session.generate(talk, role="qa")
    return (await session.generate("alone", role="qa")).text


def test_turns_of_other_policies_carry_no_loss(renderer: Renderer) -> None:
    policy, frozen = Standin(renderer, counted), Standin(renderer, lambda prompt, number: "frozen")
    made = collector(policy, renderer, two_roles)
    made.roles["qa"] = Binding(frozen, renderer, trainable=False)
    trajectory = collect(made, n=1)[0].trajectories[0]
    assert [t.trainable for t in trajectory.turns] == [True, False, False]
    assert len(policy.requests) == 1
    (sample,) = trajectory_samples(trajectory, 0, 0)  # the turn in a context of its own has nothing to train
    chosen = [i for i, m in zip(sample.ids, sample.mask, strict=True) if m]
    assert chosen == list(trajectory.turns[0].completion.ids)
    assert len(sample.ids) == len(trajectory.turns[1].prompt_ids) + len(trajectory.turns[1].completion.ids)


def turn(prompt: Sequence[int], ids: Sequence[int], trainable: bool = True, temperature: float = 1.0) -> Turn:
    logprobs = (-0.5,) * len(ids) if trainable else ()
    return Turn("agent", tuple(prompt), Completion(tuple(ids), logprobs, "stop", 0, ""), trainable, temperature)


def test_the_prefix_rule() -> None:
    samples = lambda *turns: [s.ids for s in trajectory_samples(Trajectory("t", 0, list(turns)), 0, 0)]
    assert samples(turn([1, 2], [3]), turn([1, 2, 3, 4], [5])) == [[1, 2, 3, 4, 5]]
    assert samples(turn([1, 2], [3]), turn([1, 2, 3], [5])) == [[1, 2, 3, 5]]
    assert samples(turn([1, 2], [3]), turn([1, 2, 9, 4], [5])) == [[1, 2, 3], [1, 2, 9, 4, 5]]
    assert samples(turn([1, 2], [3, 4]), turn([1, 2, 3], [5])) == [[1, 2, 3, 4], [1, 2, 3, 5]]
    assert samples(turn([1], [2]), turn([1, 2], [3], temperature=0.5)) == [[1, 2], [1, 2, 3]]
    assert samples(turn([1], [2], trainable=False), turn([7], [8])) == [[7, 8]]


def test_a_trained_turn_without_logprobs_is_refused() -> None:
    silent = turn([1], [2, 3], trainable=False)
    silent.trainable = True
    trajectory = Trajectory("t9", 0, [silent], score=Score(1.0))
    with pytest.raises(ValueError, match=r"role agent of t9 .*log-probabilities"):
        trajectory_samples(trajectory, 0, 0)
    with pytest.raises(ValueError, match="log-probabilities"):
        build_batch([Group(Task("t9", "q"), [trajectory])])
    (sample,) = trajectory_samples(trajectory, 0, 0, supervised=True)
    assert sample.mask == [False, True, True]


def test_failed_trajectories_are_left_out_of_the_batch(renderer: Renderer) -> None:
    groups = collect(
        collector(Standin(renderer), renderer, second_of_three(crashes), reward=lambda answer: 1.0), tasks=2
    )
    batch, trajectories = build_batch(groups)
    assert [t.reward for t in trajectories] == [1.0] * 4
    assert [batch.groups_E[batch.trajectories_E == t].tolist()[0] for t in range(4)] == [0, 0, 1, 1]
    assert sorted(set(batch.trajectories_E.tolist())) == [0, 1, 2, 3]
