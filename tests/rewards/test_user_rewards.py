"""Rewards that users write: found by file and module, called with what they ask for."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.chat import Renderer
from recollect.config import Config
from recollect.rewards import find_reward
from recollect.rewards.arguments import check_names
from recollect.rewards.scoring import as_score
from recollect.runs.directory import rows_of
from recollect.types import BadInput, Group, Score, Task, Trajectory
from tests.standin import Standin, asks_once, collect, kinds

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
    row = next(iter(rows_of([Group(Task("t", "q"), [Trajectory("t", 0, score=score)])])))
    assert json.loads(json.dumps(row))["parts"] == {"format": 0.5}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("length_penalty(limit=abc)", r"length_penalty\(limit=abc\): limit is a whole number"),
        ("length_penalty(limit=1.5)", "limit is a whole number"),
        ("tool_use(waste=true)", "waste is a number"),
        ("code_reward(partial=2)", "partial is true or false"),
        ("trajectory(domain=foo)", r"trajectory\(domain=foo\): the domain foo is unknown; known: mhqa"),
        ("trajectory(domain=math,weights=my.yaml)", r"weights=my.yaml\): .*my.yaml"),
        ("qa_em*0.5+trajectory(weights=7)", "weights is a text"),
    ],
)
def test_options_that_cannot_work_are_refused_by_name(name: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        find_reward(name)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("length_penalty(limit=512)", {"limit": 512}),
        ("tool_use(waste=1)", {"waste": 1}),
        ("code_reward(partial=false)", {"partial": False}),
        ("trajectory(domain=math)", {"domain": "math"}),
    ],
)
def test_options_that_work_are_taken(name: str, options: dict[str, Any]) -> None:
    bound: Any = find_reward(name)
    assert options.items() <= bound.keywords.items()


def test_a_reward_that_asks_for_what_no_task_has_is_refused(user_file: Path) -> None:
    tasks = [Task("a", "q"), Task("b", "q", fields={"level": 3})]
    for name in (f"{user_file}:wants_more", f"qa_em*0.5+{user_file}:wants_more"):
        with pytest.raises(BadInput, match=r"agent\.reward_name: the reward wants nowhere; there are .*level"):
            check_names(find_reward(name), tasks)
    check_names(find_reward(f"{user_file}:by_name"), tasks)  # one row may have what others lack
