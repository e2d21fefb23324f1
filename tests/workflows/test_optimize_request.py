"""`recollect optimize`: what is refused first, and which tasks it works on."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from recollect.config.compose import compose
from recollect.sources.task_stream import held_out
from recollect.types import BadInput, Task
from recollect.workflows.optimize import optimize_request
from recollect.workflows.optimize.optimize_request import (
    OptimizeRequest,
    acting_models,
    can_optimize,
    optimized_tasks,
    refuse_request,
    single_questions,
)

ASKED = OptimizeRequest("simba", 100, Path("out"), num_train=3, num_val=2)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimize_request, "find_spec", lambda name: object())


@pytest.mark.usefixtures("installed")
def test_what_cannot_work_is_refused(tmp_path: Path) -> None:
    cfg = compose("needle", [])
    refuse_request(ASKED, cfg)
    for asked, message in [
        (replace(ASKED, optimizer="copro"), "--optimizer copro is unknown; known: miprov2, simba, gepa"),
        (replace(ASKED, calls=0), "--calls 0 must be positive"),
        (replace(ASKED, num_train=0), "--num-train 0 must be positive"),
        (replace(ASKED, threads=-1), "--threads -1 must be positive"),
    ]:
        with pytest.raises(BadInput, match=message):
            refuse_request(asked, cfg)
    with pytest.raises(BadInput, match="cannot be optimised; those of recurrent, chat, conversation_qa can"):
        refuse_request(ASKED, compose("arithmetic", []))
    file = tmp_path / "p.json"
    file.write_text(json.dumps({"prompts": {"answer": "{question} {memory}"}}))
    with pytest.raises(BadInput, match="answer is a template"):
        refuse_request(ASKED, compose("needle", [f"agent.prompts={file}"]))


@pytest.mark.skipif(find_spec("dspy") is not None, reason="DSPy is installed")
def test_without_dspy_it_says_what_to_install() -> None:
    with pytest.raises(BadInput, match=r"--optimizer simba needs dspy: pip install 'recollect-rl\[dspy\]'"):
        refuse_request(ASKED, compose("needle", []))


def test_tasks_are_training_tasks_and_each_is_there_once() -> None:
    cfg = compose("needle", [])
    train, val = optimized_tasks(cfg, ASKED)
    assert (len(train), len(val)) == (3, 2)
    ids = {t.id for t in [*train, *val]}
    assert len(ids) == 5
    assert not ids & {t.id for t in held_out(cfg, 1, 64)}
    assert optimized_tasks(cfg, ASKED) == (train, val)


def test_more_tasks_than_there_are_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(
        "".join(json.dumps({"question": f"{n}?", "context": "x", "answer": str(n)}) + "\n" for n in range(4))
    )
    cfg = compose("needle", [f"data.train_files=[{file}]", "data.train_batch_size=2"])
    with pytest.raises(BadInput, match="are more than the 4 training questions"):
        optimized_tasks(cfg, ASKED)


def test_a_conversation_becomes_a_task_for_each_question() -> None:
    rows = [{"question": "a?", "answer": "1", "evidence": ["D1:1"]}, {"question": "b?", "answer": "2"}]
    made = single_questions(Task("c", "a?", ["text"], fields={"questions": rows}))
    assert [(t.id, t.question, t.answers, t.fields["questions"]) for t in made] == [
        ("c#1", "a?", ("1",), rows[:1]),
        ("c#2", "b?", ("2",), rows[1:]),
    ]


def test_which_agents_can_be_optimised() -> None:
    assert can_optimize(compose("needle", []))
    assert not can_optimize(compose("ledger", []))


def test_who_plays_the_agent() -> None:
    cfg = compose("locomo", ["size=cpu"])
    url, other = "http://127.0.0.1:9/v1", "http://127.0.0.1:10/v1"
    served = acting_models(url, [], cfg)  # an address plays every role, and no model is loaded beside it
    assert (served.path, served.roles) == (None, {"memory": url, "qa": url})
    assert acting_models(url, [f"qa={other}"], cfg).roles == {"memory": url, "qa": other}
    both = acting_models(None, [f"memory={url}", f"qa={other}"], cfg)
    assert (both.path, both.players) == (None, {"memory": url, "qa": other})
    assert acting_models(None, [f"qa={url}"], cfg).path == "tiny"
    assert acting_models("tiny", [f"memory={url}", f"qa={url}"], cfg).path == "tiny"
