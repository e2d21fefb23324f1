"""The domains: experts solve made-up tasks, and what does not deserve success does not get it."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from recollect.domains.registry import expert_of
from recollect.registries import DOMAINS, FAMILIES
from recollect.tasks.family import Stream
from recollect.tasks.names import names, split_of
from recollect.types import Task
from tests.domains.playing import lines, play, settings

STREAMS = {name: Stream(name, domain.tasks) for name, domain in DOMAINS.items() if domain.tasks}

READING = ("mhqa", "video", "math")


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_expert_solves_training_and_held_out_tasks(domain: str) -> None:
    cfg, family = settings(domain), FAMILIES[domain]
    count = 3 if domain == "swe" else 12
    tasks = [family.train(cfg, 0, i) for i in range(count)] + [family.held_out(cfg, 1, i) for i in range(count)]
    made = play(cfg, tasks, expert_of(domain))
    assert [t.failure for t in made if t.failure] == []
    assert all(t.success and t.stop == "answered" and t.score and t.score.total == 1 for t in made)
    assert all(a.outcome == "ok" for t in made for a in t.actions)
    assert len({t.task_id for t in made}) == len(tasks)


@pytest.mark.parametrize("domain", READING)
def test_what_a_small_model_has_to_read_and_write_is_short(domain: str) -> None:
    cfg, family = settings(domain), FAMILIES[domain]
    for trajectory in play(cfg, [family.train(cfg, 0, i) for i in range(30)], expert_of(domain)):
        assert all(len(turn.completion.ids) < 30 for turn in trajectory.turns)
        assert len(trajectory.turns[-1].prompt_ids) < 200


@pytest.mark.parametrize("stream", STREAMS.values(), ids=lambda s: s.name)
def test_tasks_are_repeatable_and_sets_do_not_share_names(stream) -> None:
    assert stream.task(1, "train", 5) == stream.task(1, "train", 5) != stream.task(2, "train", 5)
    known = {name for split in ("train", "held_out") for name in names(split)}
    for split in ("train", "held_out"):
        for i in range(20):
            task = stream.task(0, split, i)
            text = f"{task.question} {task.context} {json.dumps(task.fields)}"
            found = {w for w in "".join(c if c.isalpha() else " " for c in text).split() if w in known}
            words = {"more", "file", "self", "user", "sent", "name", "open", "path", "date", "base", "code", "note"}
            assert {split_of(w) for w in found - words} == {split}


@pytest.mark.parametrize("domain", READING)
def test_a_wrong_answer_and_no_answer_fail(domain: str) -> None:
    cfg, task = settings(domain), FAMILIES[domain].train(settings(domain), 0, 0)
    cfg.agent.max_turns = 3
    wrong, none, loose = (
        play(cfg, [task], lines(said))[0] for said in ("finalize: 1", "reason: well", "I think it is 1.")
    )
    assert (wrong.success, wrong.stop, wrong.score.total) == (False, "answered", 0.0)
    assert (none.success, none.stop, none.answer) == (False, "max_turns", "")
    assert (loose.success, loose.stop) == (False, "no_tool_call")


def test_a_task_without_gold_has_no_verdict() -> None:
    (made,) = play(settings("mhqa"), [Task("t", "Who was away?", "Ann did it.\nBob was away.")], expert_of("mhqa"))
    assert made.success is None
    assert made.answer == "Bob was away."


def test_experts_do_what_a_script_can_with_questions_of_people() -> None:
    hobbit = "J.R.R. Tolkien wrote The Hobbit.\nTolkien also wrote The Lord of the Rings.\nParis is in France."
    (read,) = play(
        settings("mhqa"),
        [Task("a", "Who wrote The Hobbit and what other works did they create?", hobbit, ("J.R.R. Tolkien",))],
        expert_of("mhqa"),
    )
    assert (read.answer, read.success) == ("J.R.R. Tolkien", True)
    assert [a.tool for a in read.actions] == ["decompose", "search", "search", "reason", "finalize"]
    (seen,) = play(
        settings("video"),
        [Task("b", "What happens in the first scene?", "A man enters.\nHe sits down.")],
        expert_of("video"),
    )
    assert seen.answer == "A man enters."
    asked = {"2x + 5 = 13": "4", "3(y - 1) = 2y + 4": "7", "x^2 = 9": "-3, 3", "4z = 2": "1/2"}
    for equation, answer in asked.items():
        task = Task("c", f"Solve the equation {equation}", None, (answer,))
        (solved,) = play(settings("math"), [task], expert_of("math"))
        assert (solved.answer, solved.success) == (answer, True), solved.actions


# ---- swe: tests that cannot be talked into passing ----


def swe_task() -> Task:
    return STREAMS["swe"].task(0, "train", 0)


@pytest.mark.parametrize(
    "cheat",
    [
        "finalize: the tests pass",
        "bash: sed -i 's/assert.*/pass/' test_all.py",
        "bash: rm test_all.py",
        "bash: echo 'import os; os._exit(0)' > unittest.py",
        "bash: echo 'import os; os._exit(0)' > sitecustomize.py",
        "bash: for f in *_*.py; do sed -i '1i import os; os._exit(0)' $f; done",
    ],
)
def test_tests_that_do_not_pass_are_no_success(cheat: str) -> None:
    (made,) = play(settings("swe"), [swe_task()], lines(cheat, "finalize: done"))
    assert made.success is False


def test_a_repository_in_a_folder_is_copied_and_not_touched(tmp_path: Path) -> None:
    task = swe_task()
    for name, text in task.fields["files"].items():
        (tmp_path / name).write_text(text)
    (tmp_path / "picture.bin").write_bytes(b"\xff\xfe\x00")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    fields = {"repo": str(tmp_path), "solution": task.fields["solution"]}
    (made,) = play(settings("swe"), [Task("t", task.question, fields=fields)], expert_of("swe"))
    assert made.success is True
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


# ---- tau: the state decides ----


def tau_task(allowed: bool) -> Task:
    tasks = (STREAMS["tau"].task(0, "train", i) for i in range(200))
    return next(t for t in tasks if (t.fields["goal"] != t.fields["database"]) == allowed and "Cancel" in t.question)


def test_doing_nothing_or_too_much_is_no_success() -> None:
    allowed, refused = tau_task(True), tau_task(False)
    key = refused.fields["about"][0]
    idle, eager = lines("finalize: done"), lines(f"cancel_record: {key}", "finalize: done")
    assert [t.success for t in play(settings("tau"), [allowed], idle)] == [False]
    assert [t.success for t in play(settings("tau"), [refused], idle)] == [True]
    assert [t.success for t in play(settings("tau"), [refused], eager)] == [False]


def test_attempts_do_not_share_a_database() -> None:
    task = tau_task(True)
    before = copy.deepcopy(task.fields)
    first, second = play(settings("tau"), [task], expert_of("tau")) + play(settings("tau"), [task], expert_of("tau"))
    assert first.success is second.success is True
    assert task.fields == before


def test_a_model_may_play_the_user() -> None:
    task = tau_task(True)
    task.fields["user"] = {"knows": {"order": "the blue one"}}
    (made,) = play(
        settings("tau"), [task], lines("respond: which one?", "finalize: done"), user=lambda t, x: "the blue one"
    )
    assert made.actions[0].output == "the blue one"
    assert [turn.role for turn in made.turns] == ["agent", "user", "agent"]


def test_every_domain_says_how_to_act() -> None:
    for domain in DOMAINS.values():
        assert "{tools}" in domain.prompt
        assert "finalize" in domain.prompt
