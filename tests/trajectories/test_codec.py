"""What a run stores is what it had: every field, for every attempt, and in the files of earlier versions."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.data.questions import questions_of, stored_questions
from recollect.registries import DOMAINS
from recollect.runs.directory import dump, rows_of
from recollect.trajectories.codec import DECIMALS, decode, encode
from recollect.trajectories.stored_rows import trajectory_rows
from recollect.trajectories.unify import unify
from recollect.types import (
    Action,
    BadInput,
    Completion,
    Failure,
    Group,
    Score,
    Task,
    Trajectory,
    Turn,
)

OLD_RUN = Path(__file__).parent / "old_run"
NOT_STORED = {"Trajectory": {"world"}, "Completion": {"message"}, "Task": {"context", "fields", "place", "images"}}
IN_FILES = {"images"}  # of a turn, which tests/trajectories/test_stored_images.py stores

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = words.filter(bool)
numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | numbers | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
ids = st.lists(st.integers(0, 2**31 - 1), max_size=4).map(tuple)
logprobs = st.lists(st.floats(-50, 0).map(lambda p: round(p, DECIMALS)), max_size=4).map(tuple)
completions = st.builds(
    Completion, ids, logprobs, st.sampled_from(["stop", "length"]), st.integers(-1, 99), words, message=st.none()
)
turns = st.builds(Turn, words, ids, completions, st.booleans(), st.floats(0, 2), st.integers(0, 9))
named = st.dictionaries(words, numbers, max_size=2)
scores = st.builds(Score, numbers, named, named, st.lists(numbers, max_size=3).map(tuple))
kinds = st.sampled_from(["timeout", "agent", "policy", "endpoint", "tools", "reward"])
actions = st.builds(Action, words, anything, words, names, st.integers(0, 9))
trajectories = st.builds(
    Trajectory,
    task_id=words,
    sample=st.integers(0, 9),
    turns=st.lists(turns, max_size=2),
    answer=words,
    stop=words,
    score=st.none() | scores,
    failure=st.none() | st.builds(Failure, kinds, words),
    notes=st.lists(words, max_size=2),
    tool_calls=st.dictionaries(words, st.integers(0, 9), max_size=2),
    tool_reward=numbers,
    actions=st.lists(actions, max_size=2),
    success=st.none() | st.booleans(),
    world=st.none(),
    answers=st.lists(words, max_size=2),
    events=st.lists(st.dictionaries(words, anything, max_size=2), max_size=2),
)
tasks = st.builds(Task, id=words, question=words, answers=st.lists(words, max_size=2).map(tuple), source=names)


def through_a_file(row: dict[str, Any]) -> dict[str, Any]:
    return json.loads(dump(row))  # type: ignore[no-any-return]


@given(tasks, trajectories)
def test_an_attempt_comes_back_as_it_was(task: Task, made: Trajectory) -> None:
    made.task_id = task.id
    again, back = decode(through_a_file(encode(task, made)), "here")
    assert back == made
    assert [a.turn for a in back.actions] == [a.turn for a in made.actions]  # which equality leaves out
    assert again == replace(task, fields={})


def test_the_property_speaks_of_every_field() -> None:
    """A field that is added to a carrier is stored, or named in NOT_STORED."""
    done = Completion((1,), (-0.5,), "length", 7, "text", {"m": 1})
    turn = Turn("memory", (4,), done, False, 0.5, 2)
    score, failure = Score(0.5, {"a": 1.0}, {"qa": 2.0}, (3.0, 4.0)), Failure("agent", "why")
    full = Trajectory(
        *("t", 3, [turn], "answer", "stop", score, failure, ["note"], {"ok": 1}, 0.25),
        *([Action("tool", {"a": 1}, "out", "timeout", 5)], True, object(), ["x"], [{"question": 1}]),
    )
    task = Task("t", "q", "document", ("a",), "src", {"questions": [{"question": "q", "answer": "a"}]}, "row 3")
    again, back = decode(through_a_file(encode(task, full)), "here")
    pairs = [(task, again), (full, back), (turn, back.turns[0]), (done, back.turns[0].completion)]
    pairs += [(score, back.score), (failure, back.failure), (full.actions[0], back.actions[0])]
    for before, after in pairs:
        kind = type(before)
        empty = {f.name for f in fields(before) if not getattr(before, f.name) and f.name != "trainable"} - IN_FILES
        assert not empty, f"{kind.__name__}: {empty} is not tried"
        nested = {"turns", "completion"}
        for field in fields(before):
            if field.name not in NOT_STORED.get(kind.__name__, set()) | nested:
                assert getattr(after, field.name) == getattr(before, field.name), f"{kind.__name__}.{field.name}"


@given(st.lists(st.floats(-80, 0), max_size=4).map(tuple))
def test_logprobs_keep_six_decimals(given: tuple[float, ...]) -> None:
    turn = Turn("agent", (1,), Completion((2,) * len(given), given, "stop", 0, ""))
    _, back = decode(through_a_file(encode(Task("t", "q"), Trajectory("t", 0, [turn]))), "here")
    assert all(abs(a - b) <= 5.1e-7 for a, b in zip(back.turns[0].completion.logprobs, given, strict=True))


def test_what_is_not_finite_comes_back_as_nan() -> None:
    turn = Turn("agent", (1,), Completion((2, 3), (-math.inf, -1.0), "stop", 0, ""))
    made = Trajectory("t", 0, [turn], score=Score(1.0, {"part": math.nan}))
    _, back = decode(through_a_file(encode(Task("t", "q"), made)), "here")
    assert math.isnan(back.turns[0].completion.logprobs[0])
    assert back.score is not None
    assert math.isnan(back.score.parts["part"])


def test_the_questions_of_a_task_come_back() -> None:
    rows = [{"question": "one?", "answer": ["1", "I"]}, {"question": "two?", "answer": "2", "position": 3}]
    task = Task("t", "one?", "document", ("1",), "book", {"questions": [*rows, {**rows[0], "data_source": "other"}]})
    (row,) = rows_of([Group(task, [Trajectory("t", 0, answers=["a", "b", "c"])])])
    again, _ = decode(through_a_file(row), "here")
    assert questions_of(again) == questions_of(task)
    assert stored_questions(again) == stored_questions(task)


@given(st.sampled_from(list(DOMAINS)), trajectories)
def test_a_unified_attempt_keeps_what_training_needs(domain: str, made: Trajectory) -> None:
    made.task_id = made.task_id or "t"
    task = Task(made.task_id, "q", answers=("a",), source=domain)
    again, back = decode(through_a_file(unify(through_a_file(encode(task, made)))), "here")
    assert (again.id or "0", again.question, again.answers, again.source) == (task.id or "0", "q", ("a",), domain)
    assert (back.turns, back.score, back.failure) == (made.turns, made.score, made.failure)
    assert (back.sample, back.answer, back.answers, back.events) == (
        made.sample,
        made.answer,
        made.answers,
        made.events,
    )


# ---- files of earlier versions ----


def test_files_of_earlier_versions_read_as_they_did() -> None:
    """Three versions: without questions, with a turn's question as `is_final`, and before rewards of questions."""
    read = [(place, *decode(row, place)) for place, row in trajectory_rows([str(OLD_RUN)])]
    first, second, third = ([r for r in read if f"step-00000{i}" in r[0]] for i in (1, 2, 3))
    ((_, task, made),) = first
    assert (task, made.score, made.notes) == (Task("t", "q?", None, ("a",)), Score(1.0, {"f1": 1.0}), ["n"])
    assert made.turns[0] == Turn(
        "agent", (5, 6, 7), Completion((20, 21, 22), (-1.0, -0.25, -0.5), "stop", 3, "agent 0 0"), True, 0.75
    )
    assert [(t, m) for _, t, m in second] == [(t, m) for _, t, m in third]
    for i, (_, task, made) in enumerate(second[:2]):
        assert [(t.role, t.question, t.trainable) for t in made.turns] == [
            *(("memory", 0, True), ("memory", 0, False), ("qa", 1, True), ("qa", 2, True))
        ]
        assert (made.sample, made.score, made.answers) == (i, Score(0.5 * i, {"answer": 0.5 * i}), ["a", "b"])
        assert made.actions == [Action("add", {"text": "x"}, "done"), Action("", "what", "no such tool", "unknown")]
        assert (made.tool_calls, made.tool_reward, made.events) == (
            {"ok": 2, "add": 2},
            0.25,
            [{"tool": "add", "question": 0}],
        )
        assert [(q.text, q.answers, q.position) for q in questions_of(task)] == [
            ("one?", ("1",), None),
            ("two?", ("2",), 1),
        ]
    assert second[2][2].failure == Failure("timeout", "late")
    assert not second[2][2].valid


# ---- what is no stored attempt ----

GOOD = encode(Task("t", "q"), Trajectory("t", 0, [Turn("agent", (1,), Completion((2,), (-1.0,), "stop", 0, "x"))]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"turns": [{"ids": [1], "role": "a"}]}, "lacks prompt_ids"),
        ({"turns": [{"ids": [1], "prompt_ids": [1]}]}, "lacks role"),
        ({"turns": [{"ids": ["a"], "prompt_ids": [1], "role": "a"}]}, "not a trajectory"),
        ({"turns": [{"ids": [-1], "prompt_ids": [1], "role": "a"}]}, "a token id is negative"),
        ({"turns": [{"ids": [2**70], "prompt_ids": [1], "role": "a"}]}, "not a trajectory"),
        ({"turns": [{"ids": [1], "prompt_ids": 7, "role": "a"}]}, "not a trajectory"),
        ({"turns": [{"ids": [1], "prompt_ids": [1], "role": "a", "logprobs": ["x"]}]}, "not a trajectory"),
        ({"reward": "high"}, "reward has to be a number or null, not 'high'"),
        ({"reward": 1.0, "question_rewards": 5}, "not a trajectory"),
        ({"reward": 1.0, "role_rewards": [1]}, "not a trajectory"),
        ({"failure": "it broke"}, "not a trajectory"),
        ({"actions": [{"input": 1, "output": 2}]}, "lacks tool"),
        ({"asked": [{"answers": []}]}, "lacks question"),
        ({"tool_calls": [1]}, "not a trajectory"),
    ],
)
def test_a_row_that_is_none_is_refused_with_its_place(change: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInput, match="file, line 3: ") as raised:
        decode({**GOOD, **change}, "file, line 3")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
