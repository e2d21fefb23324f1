"""Calling rewards: what they ask for, one by one and together, sums, and names with weights."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from recollect.config.compose import compose
from recollect.config.reward_terms import Term, needs_answers, parse
from recollect.rewards import REWARDS, find_reward, marks_of, reward
from recollect.rewards.scoring import call, call_batch, score_groups
from recollect.types import BadInput, Failure, Group, Score, Task, Trajectory
from tests.rewards.attempts import attempt, task
from tests.waiting import LONG


def run(function: Any, *texts: str, **fields: Any) -> Score:
    return asyncio.run(call(function, task("gold", **fields), attempt(*texts, answer="said")))


def test_names_and_nothing_else() -> None:
    seen: dict[str, Any] = {}

    def mine(answer, golden_answers, level, task, trajectory, missing=7):  # type: ignore[no-untyped-def]
        seen.update(locals())
        return True

    assert run(mine, "first", "last", level=3, other=1) == Score(1.0)
    assert (seen["answer"], seen["golden_answers"]) == ("said", ["gold"])
    assert (seen["level"], seen["missing"]) == (3, 7)
    assert (seen["task"].id, seen["trajectory"].answer) == ("t", "said")


def test_kwargs_get_everything() -> None:
    seen: dict[str, Any] = {}

    def everything(answer, **kwargs):  # type: ignore[no-untyped-def]
        seen.update(kwargs)
        return {"reward": 0.5, "words": 2, "note": "text"}

    assert run(everything, "x", level=3, answer="shadowed") == Score(0.5, {"words": 2.0})
    assert {"question", "context", "golden_answers", "task", "trajectory", "level"} <= seen.keys()
    assert "final_response" not in seen, "who reads it unnamed would compare the agent with itself"


def test_a_name_that_is_not_there_is_said() -> None:
    with pytest.raises(ValueError, match=r"wants depth; there are .*level"):
        run(lambda answer, depth: 1, level=3)


def test_plain_functions_run_in_threads_and_side_by_side() -> None:
    gate = threading.Barrier(4, timeout=LONG)

    def waits(answer: str) -> float:
        gate.wait()  # passes only when four are here at once
        return 1.0

    async def four() -> list[Score]:
        return list(await asyncio.gather(*(call(waits, task("g"), attempt("x")) for _ in range(4))))

    assert asyncio.run(four()) == [Score(1.0)] * 4


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_deadline(kind: str) -> None:
    async def sleeps(answer: str) -> float:
        await asyncio.sleep(30)
        return 1.0

    function: Any = sleeps if kind == "async" else lambda answer: time.sleep(30)
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(call(function, task("g"), attempt("x"), timeout=0.2))
    assert time.monotonic() - start < 20  # it would take 30


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "text", {}, []], ids=repr)
def test_no_number_is_no_reward(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        run(lambda answer: value)


# ---- many trajectories at once ----


def longest(trajectories: list[Trajectory], level: list[int]) -> list[float]:
    most = max(len(t.answer) for t in trajectories)
    assert len(level) == len(trajectories)
    return [float(len(t.answer) == most) for t in trajectories]


def groups(*answers: tuple[str, ...]) -> list[Group]:
    made = []
    for i, said in enumerate(answers):
        one = Task(f"t{i}", "q", answers=("gold",), fields={"level": i})
        made.append(Group(one, [Trajectory(one.id, j, answer=a) for j, a in enumerate(said)]))
    return made


def scored(function: Any, made: list[Group], timeout: float | None = None) -> list[list[float | None]]:
    asyncio.run(score_groups(function, made, timeout))
    return [[t.score.total if t.score else None for t in g.trajectories] for g in made]


def test_a_batch_and_a_group() -> None:
    assert marks_of(longest).level == "batch"
    assert scored(longest, groups(("a", "bb"), ("ccc", "d"))) == [[0, 0], [1, 0]]
    try:
        by_group = reward("longest_of_group", level="group")(
            lambda trajectories: longest(trajectories, [0] * len(trajectories))
        )
        assert scored(by_group, groups(("a", "bb"), ("ccc", "d"))) == [[0, 1], [1, 0]]
        mixed = [g.task for g in groups((), ())]
        scores = asyncio.run(
            call_batch(by_group, [mixed[0], mixed[1], mixed[0]], [attempt("aa"), attempt("b"), attempt("a")])
        )
        assert [s.total for s in scores] == [1, 1, 0]
    finally:
        del REWARDS["longest_of_group"]


def test_failed_trajectories_are_left_out() -> None:
    made = groups(("a", "much longer"))
    made[0].trajectories[1].failure = Failure("timeout", "late")
    assert scored(longest, made) == [[1, None]]


@pytest.mark.parametrize("bad", [lambda trajectories: [1.0], lambda trajectories: 1.0, lambda trajectories: 1 / 0])
def test_what_goes_wrong_is_a_failure_of_all_it_covers(bad: Any) -> None:
    made = groups(("a", "b"), ("c",))
    assert scored(bad, made) == [[None, None], [None]]
    assert {t.failure.kind for g in made for t in g.trajectories if t.failure} == {"reward"}
    assert all(t.stop == "failed" for g in made for t in g.trajectories)


def test_a_late_batch_reward() -> None:
    made = groups(("a",))
    assert scored(lambda trajectories: time.sleep(0.3), made, 0.1) == [[None]]
    assert made[0].trajectories[0].failure is not None
    assert "0.1 s" in made[0].trajectories[0].failure.message


# ---- names ----


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f1", [Term("f1")]),
        ("[f1]", [Term("f1")]),
        ("[qa_f1_reward*0.8,format*0.2]", [Term("qa_f1_reward", 0.8), Term("format", 0.2)]),
        (" qa_f1_reward * 0.8 + 0.2*format ", [Term("qa_f1_reward", 0.8), Term("format", 0.2)]),
        ("f1*1e-1+em*-2", [Term("f1", 0.1), Term("em", -2.0)]),
        ("f1*1e+1+em*+2", [Term("f1", 10.0), Term("em", 2.0)]),
        ("pack.mod:f*0.5,a/b.py:g", [Term("pack.mod:f", 0.5), Term("a/b.py:g")]),
        (
            "[length_penalty(limit=512, buffer=64)*0.1,code_reward(partial=False)]",
            [
                Term("length_penalty", 0.1, (("limit", 512), ("buffer", 64))),
                Term("code_reward", 1.0, (("partial", False),)),
            ],
        ),
    ],
)
def test_parse(text: str, expected: list[Term]) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "f1*",
        "*f1",
        "f1*x",
        "2*f1*3",
        "f1,,em",
        "f1*0.5,f1*0.5",
        "f1(limit)",
        "f1*1e999",
        "nothing*0.5",
        "format(shape=2)",
        "tool_use(answer=2)",
    ],
)
def test_texts_that_name_no_reward(text: str) -> None:
    with pytest.raises(BadInput, match=r"agent\.reward_name"):
        find_reward(text)


def test_a_weighted_sum(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("async def half(answer):\n    return {'reward': 0.5, 'size': len(answer)}\n")
    total = find_reward(f"[em*2, {tmp_path}/mine.py:half*-1, f1*0]")
    score = asyncio.run(call(total, task("gold"), attempt("x", answer="gold"), plain=True))
    assert score == Score(1.5, {"em": 1.0, "half": 0.5, "half/size": 4.0, "f1": 1.0})
    assert find_reward("f1") is REWARDS["f1"]
    assert asyncio.run(call(find_reward("f1*0.5"), task("gold"), attempt("gold"))).total == 0.5


def test_rewards_of_single_roles_are_added_too(tmp_path: Path) -> None:
    text = "from recollect.types import Score\ndef by_role(answer):\n    return Score(1.0, {}, {'memory': 3.0})\n"
    (tmp_path / "roles.py").write_text(text)
    total = find_reward(f"em*0.5+{tmp_path}/roles.py:by_role*2")
    score = asyncio.run(call(total, task("gold"), attempt("gold")))
    assert (score.total, score.roles) == (2.5, {"memory": 6.5})


def test_options_are_bound() -> None:
    penalty = find_reward("length_penalty(limit=4,buffer=2)")
    assert [asyncio.run(call(penalty, task(), attempt("x", ids=n), plain=True)).total for n in (2, 3, 4, 9)] == [
        0,
        -0.5,
        -1,
        -1,
    ]


def test_a_sum_with_a_part_that_looks_at_all(tmp_path: Path) -> None:
    (tmp_path / "many.py").write_text(
        "def first(trajectories):\n    return [float(i == 0) for i in range(len(trajectories))]\n"
    )
    total = find_reward(f"em*0.5+{tmp_path}/many.py:first")
    assert marks_of(total).level == "batch"
    made = groups(("gold", "x"), ("gold",))
    assert scored(total, made) == [[1.5, 0], [0.5]]
    assert made[0].trajectories[0].score == Score(1.5, {"em": 1.0, "first": 1.0})
    with pytest.raises(ValueError, match="call_batch"):
        asyncio.run(call(total, made[0].task, made[0].trajectories[0]))


def test_one_broken_part_is_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def bad(answer):\n    raise KeyError('x')\n")
    with pytest.raises(KeyError):
        asyncio.run(call(find_reward(f"em+{tmp_path}/bad.py:bad"), task("gold"), attempt("gold")))


def test_which_rewards_need_an_answer_in_the_data() -> None:
    assert [needs_answers(t) for t in ("f1", "[format*0.5,math_equal]", "code_reward", "format+tool_use", "m:f")] == [
        True,
        True,
        False,
        False,
        False,
    ]


def test_registering() -> None:
    try:

        @reward
        def my_own(answer: str) -> float:
            return 1.0

        assert REWARDS["my_own"] is my_own
        assert find_reward("my_own") is my_own
        reward("f1")(my_own)
        assert find_reward("f1") is not my_own, "a name of ours stays ours"
    finally:
        REWARDS.pop("my_own", None)


def test_the_configuration_takes_sums(tmp_path: Path) -> None:
    text = "[qa_f1_reward*0.8,format*0.2]"
    assert compose(None, [f"agent.reward_name={text}"]).agent.reward_name == text
    assert compose(None, [f"agent.reward_name='{text}'"]).agent.reward_name == text
    assert (
        compose(None, ["agent.reward_name=qa_f1_reward*0.8+format*0.2"]).agent.reward_name
        == "qa_f1_reward*0.8+format*0.2"
    )
    with_options = "agent.reward_name=[length_penalty(limit=5)*0.5,f1]"
    assert parse(compose(None, [with_options]).agent.reward_name)[0].options == (("limit", 5),)
    recipe = tmp_path / "r.yaml"
    recipe.write_text("agent:\n  reward_name: [qa_f1_reward*0.8, format*0.2]\n")
    assert compose(str(recipe), []).agent.reward_name == text


def test_one_value_that_is_no_number_fails_its_own_trajectory_alone() -> None:
    @reward(level="group")
    def ranks(trajectories):  # type: ignore[no-untyped-def]
        return [1.0, float("nan"), "text"][: len(trajectories)]

    group = Group(task("gold"), [attempt("a", answer="a") for _ in range(3)])
    asyncio.run(score_groups(ranks, [group]))
    assert [t.valid for t in group.trajectories] == [True, False, False]
    assert group.trajectories[0].score == Score(1.0)
    assert {t.failure.kind for t in group.trajectories[1:] if t.failure} == {"reward"}
