"""Every format becomes the same unified trajectory, and nothing in it is lost on the way to training rows and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.trajectories.field_names import NotATrajectory
from recollect.trajectories.formats.steps import called, shown
from recollect.trajectories.row_templates import Templates, load
from recollect.trajectories.schema import json_schema, problem
from recollect.trajectories.training_rows import conversation
from recollect.trajectories.unify import unify
from tests.trajectories.made import anything, as_openai, as_sharegpt, texts, unified, words

ACTIONS = {
    "task_id": "t1",
    "domain": "mhqa",
    "question": "Who?",
    "actions": [{"step": 1, "tool": "search", "input": "x", "output": "y"}],
    "final_answer": "Ann",
    "success": True,
    "reward": 0.5,
    "metadata": {"seed": 1},
}


# ---- the schema ----


@given(unified)
def test_the_quick_check_accepts_what_the_schema_accepts(record: dict[str, Any]) -> None:
    assert problem(record) is None


@given(unified, st.sampled_from([*json_schema()["required"], "extra"]), anything, st.booleans())
def test_the_quick_check_is_the_schema(record: dict[str, Any], field: str, value: Any, drop: bool) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    changed = {k: v for k, v in record.items() if not drop or k != field}
    if not drop:
        changed[field] = value
    # JSON Schema takes 1.0 for an integer and True for no number; the check differs in neither
    assert (problem(changed) is None) == jsonschema.Draft202012Validator(json_schema()).is_valid(changed)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"domain": "chess"}, "domain 'chess' is unknown"),
        ({"actions": [1]}, "action 1"),
        ({"actions": [{"step": 1.5, "tool": "x", "input": "", "output": ""}]}, "whole number"),
        ({"actions": [{"step": 1, "tool": "", "input": "", "output": ""}]}, "tool"),
        ({"reward": float("nan")}, "reward is nan"),
        ({"reward": True}, "reward has to be a number"),
        ({"success": "yes"}, "success"),
        ({"metadata": []}, "metadata"),
        ({"task_id": ""}, "task_id"),
    ],
)
def test_what_does_not_fit_is_told(change: dict[str, Any], words: str) -> None:
    assert words in (problem({**ACTIONS, **change}) or "")


# ---- one format after another ----


def test_a_unified_record_stays_as_it_is() -> None:
    assert unify(ACTIONS) == ACTIONS


@pytest.mark.parametrize("key", ["task", "question", "problem", "prompt", "query", "instruction", "title"])
def test_every_name_of_the_question(key: str) -> None:
    row = {**{k: v for k, v in ACTIONS.items() if k != "question"}, key: "Who?"}
    assert unify(row) == ACTIONS


@pytest.mark.parametrize("key", ["final_answer", "final", "answer", "solution", "result", "completion"])
def test_every_name_of_the_answer(key: str) -> None:
    assert unify({**{k: v for k, v in ACTIONS.items() if k != "final_answer"}, key: "Ann"}) == ACTIONS


@pytest.mark.parametrize("key", ["actions", "steps", "tool_calls", "calls"])
@pytest.mark.parametrize("tool", ["tool", "name", "type"])
@pytest.mark.parametrize("given_as", ["input", "args", "request"])
@pytest.mark.parametrize("output", ["output", "response"])
def test_every_name_of_an_action(key: str, tool: str, given_as: str, output: str) -> None:
    row = {k: v for k, v in ACTIONS.items() if k != "actions"}
    assert unify({**row, key: [{tool: "search", given_as: "x", output: "y"}]}) == ACTIONS


def test_other_fields_become_metadata_and_none_is_lost() -> None:
    row = {**ACTIONS, "title": "T", "env": {"a": 1}, "seed": 9}
    row["actions"] = [{**ACTIONS["actions"][0], "ms": 12, "name": "n"}]
    made = unify(row)
    assert made["metadata"] == {
        "seed": 1,
        "record.seed": 9,
        "title": "T",
        "env": {"a": 1},
        "action_fields": {"0": {"ms": 12, "name": "n"}},
    }


STEPS = {
    "run_id": "r",
    "domain": "swe",
    "task_id": "t",
    "env": {"question": "Repair it."},
    "start_time": 1,
    "end_time": 2,
    "success": True,
    "stop_reason": "done",
    "steps": [
        {"role": "assistant", "content": "Look first.", "phase": "PLAN", "turn_id": 0},
        {"role": "assistant", "content": "Run:\n```bash\nls -la\n```", "phase": "EXEC", "turn_id": 1},
        {"role": "tool", "content": "<returncode>2</returncode><output>a\nb</output>", "phase": "EXEC", "turn_id": 1},
        {"role": "assistant", "content": "echo x > f", "phase": "WRITE", "turn_id": 2},
        {"role": "tool", "content": "<returncode>0</returncode>\n<output></output>", "phase": "WRITE", "turn_id": 2},
        {"role": "assistant", "content": "It works.", "phase": "FINALIZE", "turn_id": 3},
    ],
}


def test_steps_lose_nothing() -> None:
    made = unify(STEPS)
    assert made["question"] == "Repair it."
    assert made["actions"] == [
        {"step": 1, "tool": "reason", "input": "Look first.", "output": ""},
        {"step": 2, "tool": "bash", "input": "ls -la", "output": "a\nb"},
        {"step": 3, "tool": "write", "input": "echo x > f", "output": ""},
        {"step": 4, "tool": "finalize", "input": "It works.", "output": ""},
    ]
    assert (made["final_answer"], made["success"], made["task_id"]) == ("It works.", True, "t")
    about = made["metadata"]
    assert {k: about[k] for k in ("run_id", "start_time", "end_time", "stop_reason", "env")} == {
        k: STEPS[k] for k in ("run_id", "start_time", "end_time", "stop_reason", "env")
    }
    assert about["steps"] == STEPS["steps"]


STEP = st.fixed_dictionaries(
    {"role": st.sampled_from(["assistant", "tool"]), "content": texts, "turn_id": st.integers(0, 9)},
    optional={"phase": st.sampled_from(["PLAN", "WRITE", "EXEC", "FINALIZE"]), "time": st.integers()},
)


@given(st.lists(STEP, min_size=1, max_size=6), st.integers(-300, 300))
def test_every_text_of_every_step_is_somewhere(steps: list[dict[str, Any]], code: int) -> None:
    steps = [
        {**s, "content": f"<returncode>{code}</returncode><output>{s['content']}</output>"}
        if s["role"] == "tool"
        else s
        for s in steps
    ]
    made = unify({"domain": "swe", "task_id": "t", "steps": steps, "success": None})
    assert made["metadata"]["steps"] == steps


@pytest.mark.parametrize(
    ("content", "phase", "call"),
    [
        ("```python\nprint(1)\n```", "EXEC", ("python", "print(1)")),
        ('{"tool": "search", "input": "x"}', "EXEC", ("search", "x")),
        ('<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>', "", ("f", {"a": 1})),
        ('Thought: t\nAction: search\nAction Input: {"q": 1}', "PLAN", ("search", {"q": 1})),
        ("well", "", ("reason", "well")),
        ("```bash\nls\n```", "FINALIZE", ("finalize", "```bash\nls\n```")),
    ],
)
def test_what_an_assistant_wrote(content: str, phase: str, call: tuple[str, Any]) -> None:
    assert called(content, phase) == call


def test_tool_output() -> None:
    assert shown("<returncode>-1</returncode><output>x</output>y</output>") == ("x</output>y", -1)
    assert shown("plain") == ("plain", None)


def test_chat_with_words_between_calls_and_users_who_reply() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "get", "arguments": '{"id": 1}'}}
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Cancel it."},
        {"role": "assistant", "content": "Which one?"},
        {"role": "user", "content": "The first."},
        {"role": "assistant", "content": "I look.", "tool_calls": [call, {**call, "id": "b"}]},
        {"role": "tool", "tool_call_id": "b", "content": "two"},
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        {"role": "assistant", "content": "Done."},
    ]
    made = unify({"messages": messages, "tools": [{"type": "function"}]}, "tau", "name")
    assert [(a["tool"], a["input"], a["output"]) for a in made["actions"]] == [
        ("respond", "Which one?", "The first."),
        ("reason", "I look.", ""),
        ("get", {"id": 1}, "one"),
        ("get", {"id": 1}, "two"),
    ]
    assert (made["question"], made["final_answer"], made["task_id"]) == ("Cancel it.", "Done.", "name")
    assert made["metadata"] == {"tools": [{"type": "function"}], "system": "Be kind.", "messages": messages}


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([], "object"),
        ({}, "no question"),
        ({"question": "x"}, "neither actions nor an answer"),
        ({"question": "x", "actions": 3}, "no list"),
        ({"question": "x", "actions": [{"other": 1}]}, "names no tool"),
        ({"question": "x", "answer": "y"}, "domain"),
        ({"question": "x", "answer": "y", "domain": "chess"}, "chess"),
        ({"messages": [{"content": "x"}], "domain": "mhqa"}, "no role"),
        ({"messages": [], "domain": "mhqa"}, "nobody asks"),
        ({"question": "x", "answer": "y", "domain": "mhqa", "success": "maybe"}, "success"),
        ({"steps": [{"role": 1}], "question": "q", "domain": "mhqa"}, "role"),
    ],
)
def test_records_that_are_none(row: Any, words: str) -> None:
    with pytest.raises(NotATrajectory, match=words):
        unify(row)


@given(anything)
def test_no_value_crashes_the_reader(value: Any) -> None:
    for row in (value, {"question": "q", "actions": value}, {"messages": value}, {"steps": value, "question": value}):
        try:
            made = unify(row, "mhqa", "n")
        except NotATrajectory:
            continue
        assert problem(made) is None


# ---- round trips ----

TEMPLATES = {name: load(None) for name in ("line",)}


def with_syntax(syntax: str) -> Templates:
    own = load(None)
    return Templates(own.tools, "Be {domain}.", "Q: {asked}", syntax, "<{output}>", own.final)


@pytest.mark.parametrize(
    "templates", [load(None), with_syntax("openai"), with_syntax("hermes")], ids=lambda t: t.syntax
)
@given(record=unified)
def test_unified_to_training_rows_and_back(templates: Templates, record: dict[str, Any]) -> None:
    row = conversation(record, templates)
    if row is None:
        assert not record["actions"]
        assert record["final_answer"] is None
        return
    assert unify(json.loads(json.dumps(row))) == record


@pytest.mark.parametrize("write", [as_openai, as_sharegpt])
@given(record=unified, replaced=st.lists(texts, min_size=6, max_size=6), answer=texts, question=words)
def test_other_formats_to_training_rows_and_back(
    write: Any, record: Any, replaced: list[str], answer: str, question: str
) -> None:
    named = [
        {**a, "step": i, "output": text}
        for i, (a, text) in enumerate(zip(record["actions"], replaced, strict=False), 1)
    ]
    record = {**record, "question": question, "actions": named, "final_answer": answer, "metadata": {}}
    written = json.loads(json.dumps(write(record)))
    made = unify(written)
    record["metadata"] = {name: written[name] for name in ("messages", "conversations") if name in written}
    assert made == record
    row = conversation(made, load(None))
    assert row is not None
    assert unify(json.loads(json.dumps(row))) == record


@given(st.lists(STEP, min_size=1, max_size=6))
def test_steps_to_training_rows_and_back(steps: list[dict[str, Any]]) -> None:
    made = unify({"domain": "swe", "task_id": "t", "steps": steps, "question": "q"})
    row = conversation(made, load(None))
    if row is None:
        assert all(s["role"] == "tool" for s in steps)
        return
    assert unify(json.loads(json.dumps(row))) == made


@given(words)
def test_a_stored_trajectory_keeps_its_turns(word: str) -> None:
    row = {
        "task_id": "a",
        "sample": 2,
        "source": "math",
        "question": word,
        "answers": ["1"],
        "answer": "1",
        "stop": "answered",
        "reward": 1.0,
        "parts": {},
        "failure": None,
        "notes": [],
        "turns": [{"role": "agent", "prompt_ids": [1], "ids": [2], "logprobs": [-0.5], "text": word}],
        "actions": [{"tool": "python", "input": {"code": word}, "output": "1", "outcome": "ok"}],
        "success": None,
    }
    made = unify(row)
    assert (made["task_id"], made["domain"], made["success"], made["final_answer"]) == ("a#2", "math", True, "1")
    assert made["metadata"]["turns"] == row["turns"]
    assert made["metadata"]["answers"] == ["1"]
    assert made["actions"] == [{"step": 1, "tool": "python", "input": {"code": word}, "output": "1"}]
    back = conversation(made, load(None))
    assert back is not None
    assert unify(json.loads(json.dumps(back))) == made
