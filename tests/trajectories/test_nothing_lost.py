"""Every value of a source is in what `recollect convert` makes of it: real files, their neighbours, made-up ones."""

from __future__ import annotations

import html
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.runtime.console import Console
from recollect.trajectories.entities import resolved
from recollect.trajectories.field_names import NotATrajectory
from recollect.trajectories.schema import problem
from recollect.trajectories.unify import unify
from recollect.types import BadInput
from recollect.workflows.trajectories.convert import convert
from tests.trajectories.made import anything, leaves, texts, unified, words

QUIET = Console(quiet=True)
DATA = Path(os.environ.get("RECOLLECT_TEST_DATA", Path(__file__).parents[3] / "shared" / "data")) / "videomultiagents"
FILES = sorted(DATA.rglob("*.traj.json"))
needs_files = pytest.mark.skipif(not FILES, reason="no trajectories of VideoMultiAgents")


def values(value: Any) -> Iterator[Any]:
    """Every text, number and truth value inside a value."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from values(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from values(inner)
    elif value is not None:
        yield value


def missing(source: Any, made: Any) -> list[Any]:
    """What a source says that is not in what was made of it."""
    there = [(type(v) is bool, v) for v in values(made)]
    known = {v for v in there if isinstance(v[1], str)}
    numbers = {v for v in there if not isinstance(v[1], str)}
    lost = []
    for value in values(source):
        if isinstance(value, str):
            if value and (False, value) not in known and (False, html.unescape(value)) not in known:
                lost.append(value)
        elif (type(value) is bool, value) not in numbers:
            lost.append(value)
    return lost


# ---- real files ----


@needs_files
@pytest.mark.parametrize("file", FILES, ids=lambda f: "-".join(f.parts[-3:]))
def test_real_files_are_converted_whole(file: Path, tmp_path: Path) -> None:
    assert convert([str(file)], None, tmp_path / "out.json", QUIET) == 0
    made = json.loads((tmp_path / "out.json").read_text())
    source = json.loads(file.read_text())
    assert missing(source, made) == []
    assert "&quot;" not in (tmp_path / "out.json").read_text()
    assert unify(made) == made
    if "actions" not in source or any(values(source["actions"][0].get("input"))):
        assert made["question"]


@needs_files
def test_the_demo_has_its_question_and_its_answer() -> None:
    made = unify(json.loads((DATA / "data" / "raw" / "mhqa_demo.traj.json").read_text()))
    assert made["question"] == "Who wrote The Hobbit?"
    assert made["final_answer"] == "fallback for: Who wrote The Hobbit?"
    found = '{"docs": [{"title": "Stub BM25", "text": "fallback for: Who wrote The Hobbit?"}]}'
    assert made["actions"][1] == {"step": 2, "tool": "bash", "input": "bm25_search(q,k=5)", "output": found}


# ---- their neighbours ----

PARTS = {"total": 0.8, "completion": 1.0, "efficiency": 0.6, "quality": 0.75, "reasoning": 0.5}
ACTION = {"tool": "reason", "input": {"prompt": "Question: What is 2 + 2?"}, "output": "It is 4."}
BASE = {"task_id": "t-1", "domain": "math", "actions": [ACTION], "final_answer": "4"}
CALL = {"id": "call_9", "type": "function", "function": {"name": "bash", "arguments": '{"command": "echo 4"}'}}
CALLED = [
    {"role": "assistant", "content": None, "tool_calls": [CALL], "turn_id": 3},
    {"role": "tool", "tool_call_id": "call_9", "content": "<returncode>0</returncode><output>4</output>"},
    {"role": "assistant", "content": "It is 4.", "phase": "FINALIZE"},
]
PLANNED = {"role": "assistant", "content": "PLAN: read for: 'What is Ender's Game?'.", "phase": "PLAN", "turn_id": 1}
VARIANTS: dict[str, dict[str, Any]] = {
    "reward object": {**BASE, "question": "q", "reward": PARTS, "success": True, "metadata": {"start_ts": 1.5}},
    "reward object without a total": {**BASE, "question": "q", "reward": {"completion": 0.25, "notes": "low"}},
    "nested reward": {**BASE, "question": "q", "reward": {"total": 0.3, "by": {"judge": [0.1, 0.2]}, "ok": True}},
    "reward list": {**BASE, "question": "q", "reward": [0.1, 0.9]},
    "reward text": {**BASE, "question": "q", "reward": "0.7"},
    "question in the id": {**BASE, "task_id": "What is 2 + 2?"},
    "null question": {**BASE, "question": None, "success": None, "reward": None, "metadata": None},
    "question in a step's prompt": {**BASE, "question": ""},
    "question in a step's field": {**BASE, "actions": [{"tool": "reason", "input": {"question": "Why?"}}]},
    "question of a user step": {"task_id": "u", "domain": "swe", "steps": [{"role": "user", "content": "Fix it"}]},
    "question in quotes": {"task_id": "u", "domain": "mhqa", "steps": [PLANNED], "model_name": "none"},
    "entities": {**BASE, "question": "Is &quot;4 &lt; 5&quot; &amp; true?", "note": ["&#39;x&#39;", "a&nbsp;b"]},
    "records of agents": {
        **{k: v for k, v in BASE.items() if k != "actions"},
        "question": "q",
        "steps": [
            {"action": "bash", "action_input": {"command": "ls"}, "action_output": {"returncode": 0, "stdout": "a"}},
            {"action": "reason", "action_input": "hm", "action_output": None, "thought": "deep", "step": "two"},
            {"action": {"name": "f", "args": {"x": 1}}, "observation": "y", "name": "outer"},
            {"thought": "only a thought"},
            {"role": "assistant", "action": "bash", "action_input": "pwd", "action_output": "/", "turn_id": 7},
        ],
    },
    "tool-call messages": {"task_id": "m", "domain": "math", "question": "q", "messages": CALLED, "reward": PARTS},
    "tool-call steps": {"task_id": "m 1", "domain": "math", "steps": [{"role": "user", "content": "q"}, *CALLED]},
    "parts of a message": {
        "domain": "math",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": "c", "name": "solver", "logprobs": [-0.5]},
        ],
    },
    "nulls and nesting": {
        **BASE,
        "question": "q",
        "success": "true",
        "task_id": 17,
        "env": {"a": [{"b": None, "c": [1, [2.5, False]]}]},
        "actions": [{"tool": None, "input": None, "output": None, "ms": 3}, {**ACTION, "extra": {"deep": [True]}}],
        "metadata": {"env": "x", "parts": "mine"},
        "reward": PARTS,
    },
    "no steps": {"task_id": "t-1", "domain": "math", "question": "q", "success": False, "steps": None},
    "large letters": {**BASE, "question": "q", "domain": "Math"},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_neighbours_of_the_real_files_are_converted_whole(name: str, tmp_path: Path) -> None:
    source = VARIANTS[name]
    for form, text in (("a.json", json.dumps(source)), ("b.jsonl", f"{json.dumps(source)}\n")):
        (tmp_path / form).write_text(text)
        assert convert([str(tmp_path / form)], None, tmp_path / f"out-{form}", QUIET) == 0
        made = json.loads((tmp_path / f"out-{form}").read_text())
        assert missing(source, made) == []
        assert problem(made) is None
        assert unify(made) == made


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("question in the id", "What is 2 + 2?"),
        ("null question", "What is 2 + 2?"),
        ("question in a step's prompt", "What is 2 + 2?"),
        ("question in a step's field", "Why?"),
        ("question of a user step", "Fix it"),
        ("question in quotes", "What is Ender's Game?"),
        ("entities", 'Is "4 < 5" & true?'),
        ("tool-call steps", "q"),
    ],
)
def test_questions_are_found(name: str, question: str) -> None:
    assert unify(VARIANTS[name])["question"] == question


def test_the_total_of_a_reward_is_the_number_and_the_parts_are_parts() -> None:
    made = unify(VARIANTS["reward object"])
    assert (made["reward"], made["success"]) == (0.8, True)
    assert made["metadata"]["parts"] == {k: v for k, v in PARTS.items() if k != "total"}
    assert unify(VARIANTS["reward object without a total"])["reward"] is None
    assert unify(VARIANTS["reward text"])["reward"] == 0.7
    with pytest.raises(NotATrajectory, match="reward is high"):
        unify({**BASE, "question": "q", "reward": "high"})


def test_agents_records_and_calls_are_actions() -> None:
    made = unify(VARIANTS["records of agents"])["actions"]
    assert [(a["tool"], a["input"]) for a in made] == [
        ("bash", {"command": "ls"}),
        ("reason", "hm"),
        ("f", {"x": 1}),
        ("reason", "only a thought"),
        ("bash", "pwd"),
    ]
    assert made[0]["output"] == {"returncode": 0, "stdout": "a"}
    for name in ("tool-call messages", "tool-call steps"):
        made = unify(VARIANTS[name])["actions"]
        assert [(a["tool"], a["input"]) for a in made] == [("bash", {"command": "echo 4"})]


@pytest.mark.parametrize(
    ("task_id", "said"),
    [
        ("Solve 2x+5=13", True),
        ("Who wrote it?", True),
        ("Why?", True),
        ("sample_1.traj", False),
        ("task 12", False),
        ("math-7", False),
        ("Task #3", False),
        ("question number 4", False),
    ],
)
def test_ids_that_are_questions(task_id: str, said: bool) -> None:
    row = {"task_id": task_id, "domain": "math", "question": None, "actions": [], "final_answer": "1"}
    assert unify(row)["question"] == (task_id if said else "")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("{&quot;a&quot;: 1}", '{"a": 1}'),
        ("a &amp;quot; b", "a &quot; b"),
        ("x=1&copy=2 &unknown; &", "x=1&copy=2 &unknown; &"),
        ("cat > i.html\n<p>1 &lt; 2</p>", "cat > i.html\n<p>1 &lt; 2</p>"),
        ("if a < b and c &gt; d:", "if a < b and c > d:"),
    ],
)
def test_entities_are_resolved_once_and_not_inside_html(text: str, meant: str) -> None:
    made = unify({**BASE, "question": "q", "actions": [{"tool": "bash", "input": text, "output": ""}]})
    assert made["actions"][0]["input"] == meant
    assert unify(made) == made


def test_attempts_of_recollect_keep_their_texts() -> None:
    record = {**BASE, "question": "&quot;", "success": None, "reward": None, "metadata": {"turns": []}, "actions": []}
    assert unify(record) == record


# ---- several in one file ----


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([VARIANTS["reward object"], VARIANTS["entities"]]),
        json.dumps({"trajectories": [VARIANTS["reward object"], VARIANTS["entities"]], "run": "r7", "domain": "tau"}),
        json.dumps({"one": VARIANTS["reward object"], "two": VARIANTS["entities"]}),
        f"{json.dumps(VARIANTS['reward object'])}\n{json.dumps(VARIANTS['entities'], indent=1)}",
    ],
    ids=["list", "under a name", "by id", "in a row"],
)
def test_several_trajectories_in_one_file(text: str, tmp_path: Path) -> None:
    (tmp_path / "all.json").write_text(text)
    assert convert([str(tmp_path / "all.json")], None, tmp_path / "out.jsonl", QUIET) == 0
    made = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [m["question"] for m in made] == ["q", 'Is "4 < 5" & true?']
    assert [m["domain"] for m in made] == ["math", "math"]
    source = json.loads(text) if text[0] == "[" or "\n" not in text else [VARIANTS["entities"]]
    assert missing(source, made) == []


def test_objects_that_are_no_trajectories_are_told(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps({"statistics": {"all": {"n": 3}}, "trajectories": [{"total": 1}]}))
    with pytest.raises(BadInput, match=r"x.json, record 1: there is no question"):
        convert([str(tmp_path / "x.json")], None, tmp_path / "out.jsonl", QUIET)


# ---- made up ----

extra = st.dictionaries(words, anything, max_size=2)
steps = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(["assistant", "tool", "user"]),
            "action": words,
            "tool": words,
            "content": anything,
            "action_input": anything,
            "action_output": anything,
            "input": anything,
            "thought": texts,
            "phase": st.sampled_from(["PLAN", "EXEC", "FINALIZE"]),
            "step": leaves,
            "more": anything,
        },
    ),
    max_size=4,
)
rewards = st.none() | st.floats(-1, 1) | st.dictionaries(st.sampled_from([*PARTS, "x"]), anything | st.floats(0, 1))


@given(
    extra,
    st.sampled_from(["steps", "actions", "trajectory", "messages"]),
    steps,
    rewards,
    anything,
    st.none() | texts,
    st.none() | texts,
)
def test_made_up_records_lose_nothing(
    more: Any, name: str, made_steps: Any, reward: Any, metadata: Any, question: Any, task_id: Any
) -> None:
    row = {**more, name: made_steps, "reward": reward, "metadata": metadata, "question": question, "task_id": task_id}
    row = json.loads(json.dumps({**row, "domain": "mhqa"}))
    try:
        made = unify(row, name="n")
    except NotATrajectory:
        return
    assert problem(made) is None
    assert missing(resolved(row), made) == []
    assert unify(json.loads(json.dumps(made))) == made


@given(unified)
def test_unified_records_lose_nothing(record: dict[str, Any]) -> None:
    made = unify(record)
    assert missing(resolved(record), made) == []
    assert unify(made) == made
