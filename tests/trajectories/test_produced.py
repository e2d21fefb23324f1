"""Training rows teach what a step produced: never its prompt, never what it was shown."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.chat.conversation import read_conversation
from recollect.runtime.console import Console
from recollect.trajectories.row_templates import load
from recollect.trajectories.training_rows import conversation, tool_rows
from recollect.trajectories.unify import unify
from recollect.types import BadInput
from recollect.workflows.trajectories.sft_data import Choice, sft_data
from tests.commands import run as run_command
from tests.trajectories.made import texts

QUIET = Console(quiet=True)
DATA = Path(os.environ.get("RECOLLECT_TEST_DATA", Path(__file__).parents[3] / "shared" / "data")) / "videomultiagents"
FILES = sorted(DATA.rglob("*.traj.json"))
needs_files = pytest.mark.skipif(not FILES, reason="no trajectories of VideoMultiAgents")
QUESTION = "Solve the equation 2x + 5 = 13"
SHOWN = {"returncode": 0, "stdout": "4", "stderr": ""}
MATH = {
    "task_id": "m",
    "domain": "math",
    "question": QUESTION,
    "actions": [
        {
            "tool": "reason",
            "input": {"prompt": f"Question: {QUESTION}"},
            "output": "Halve 8.\n```bash\necho 4\n```\n```bash\nls\n```",
        },
        {"tool": "bash", "input": {"command": "echo 4"}, "output": SHOWN},
        {"tool": "finalize", "input": {"context": "Latest command output:\n4"}, "output": "Answer: 4"},
    ],
    "final_answer": "Answer: 4",
}
VIDEO = {
    "task_id": "v",
    "domain": "video",
    "question": "What is poured?",
    "actions": [
        {"tool": "load_context", "input": {"path": "captions.txt"}, "output": "31 chars"},
        {
            "tool": "reason",
            "input": {"prompt": "Question:\nWhat is poured?\n\nVideo context:\n---\nSomebody pours milk.\n---"},
            "output": "Milk is poured.",
        },
        {
            "tool": "reason_hop",
            "input": {"hop": "Where?", "idx": 1, "prompt": "Notes:\n- Milk is poured.\n\nSub-question: Where?"},
            "output": "Into a glass.",
        },
        {"tool": "decompose", "input": {"prompt": "Question:\nWhat is poured?\n\nList parts."}, "output": "1. What"},
    ],
    "final_answer": "milk",
}
TEMPLATES = """
tools:
  reason:
    instruction: "Q: {question}\\nC: {context}\\nN: {notes}\\nThink."
    response_from: action_output
    postprocess: {keep_first_bash_block: true}
  bash:
    instruction: "Q: {question}\\nN: {notes}\\nGive the command."
    response_from: action_input.command
  finalize:
    instruction: "Q: {question}\\nC: {context}\\nAnswer."
    response_from: action_output
    postprocess: {keep_first_bash_block: false}
  load_context:
    instruction: "Load {path}."
    response_from: action_output
"""


def rows_of(source: dict[str, Any], templates: str | None = None) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for tool, row in tool_rows(unify(source), load(templates)):
        found.setdefault(tool, []).append((row["prompt"], row["response"]))
    return found


def trained(source: dict[str, Any]) -> list[str]:
    """What a whole conversation trains on."""
    row = conversation(unify(source), load(None))
    assert row is not None
    return [m.content for m in read_conversation(row, "").messages if m.role == "assistant" and m.trained]


# ---- single tools ----


def test_without_templates_each_tool_learns_what_it_said_or_did() -> None:
    rows = rows_of(MATH)
    assert rows["reason"] == [(f"Question: {QUESTION}", MATH["actions"][0]["output"])]
    assert [r for _, r in rows["bash"]] == ["echo 4"]
    assert rows["finalize"] == [(f"Question: {QUESTION}\n\nLatest command output:\n4", "Answer: 4")]
    rows = rows_of(VIDEO)
    assert [r for _, r in rows["load_context"]] == ["captions.txt"]
    assert [r for _, r in rows["reason"]] == ["Milk is poured."]
    assert "Somebody pours milk." in rows["reason"][0][0]
    assert [r for _, r in rows["reason_hop"]] == ["Into a glass."]
    assert [r for _, r in rows["decompose"]] == ["1. What"]


@pytest.mark.parametrize("given", [f"Question: {QUESTION}", f"Think about: {QUESTION}", "", None])
def test_prompts_that_are_plain_texts(given: Any) -> None:
    source = {**MATH, "actions": [{"tool": "reason", "input": given, "output": "Halve 8."}]}
    assert [r for _, r in rows_of(source)["reason"]] == ["Halve 8."]
    assert trained(source)[0] == "reason: Halve 8."


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ({"tool": "reason", "input": "8 is halved", "output": "ok"}, "8 is halved"),
        ({"tool": "reason", "input": {"thought": "8 is halved"}, "output": "noted"}, "8 is halved"),
        ({"tool": "finalize", "input": "4", "output": "4"}, "4"),
        ({"tool": "finalize", "input": {"answer": "4"}, "output": "submitted"}, "4"),
        ({"tool": "search", "input": "Question: of life", "output": "42"}, "Question: of life"),
        ({"tool": "bash", "input": {"command": "ls"}, "output": "a"}, "ls"),
    ],
)
def test_agents_that_write_the_input_learn_the_input(action: dict[str, Any], said: str) -> None:
    source = {**MATH, "actions": [action], "final_answer": "4"}
    assert [r for _, r in rows_of(source)[action["tool"]]] == [said]
    assert trained(source)[0] == f"{action['tool']}: {said}"


def test_templates_of_another_system(tmp_path: Path) -> None:
    mine = tmp_path / "sft_templates.yaml"
    mine.write_text(TEMPLATES)
    rows = rows_of(MATH, str(mine))
    assert rows["reason"] == [(f"Q: {QUESTION}\nC: \nN: \nThink.", "```bash\necho 4\n```")]
    assert rows["bash"] == [(f"Q: {QUESTION}\nN: {MATH['actions'][0]['output']}\nGive the command.", "echo 4")]
    assert rows["finalize"] == [(f"Q: {QUESTION}\nC: Latest command output:\n4\nAnswer.", "Answer: 4")]
    rows = rows_of(VIDEO, str(mine))
    assert rows["load_context"] == [("Load captions.txt.", "31 chars")]
    assert rows["reason"][0][1] == "Milk is poured."
    assert "Somebody pours milk." in rows["reason"][0][0]
    plain = {**MATH, "actions": [{"tool": "bash", "input": "ls", "output": "a"}]}
    assert rows_of(plain, str(mine))["bash"][0][1] == "ls"
    own = {**MATH, "actions": [{"tool": "reason", "input": "8 is halved", "output": "ok"}]}
    assert rows_of(own, str(mine))["reason"][0][1] == "8 is halved"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tools: {reason: {instruction: x, response_from: prompt}}", "response_from=prompt is unknown"),
        ("tools: {reason: {instruction: x, response_from: 3}}", "response_from=3"),
        ("tools: {reason: {instruction: x, prompt: y}}", "prompt and instruction"),
        ("tools: {reason: {response: x, response_from: action_output}}", "response and response_from"),
        ("tools: {reason: {instruction: x, max_length: 3}}", "max_length is unknown"),
        ("tools: {reason: {instruction: x, postprocess: {strip: true}}}", "postprocess.strip is unknown"),
        ("tools: {reason: {instruction: x, postprocess: {keep_first_bash_block: 1}}}", "true or false"),
        ("tools: {reason: {instruction: x, postprocess: yes}}", "mapping"),
        ("tools: {reason: {instruction: 'x {nobody}'}}", "unknown field"),
        ("tools: {reason: text}", "mapping"),
        ("tools: [reason]", "mapping"),
        ("version: 2\ntools: {}", "version is unknown"),
    ],
)
def test_every_key_of_a_template_file_takes_effect_or_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "t.yaml").write_text(text)
    with pytest.raises(BadInput, match=words):
        load(tmp_path / "t.yaml")


# ---- whole conversations ----


def test_conversations_train_on_nothing_that_was_told_or_shown() -> None:
    said = trained(MATH)
    assert said == [f"reason: {MATH['actions'][0]['output']}", "bash: echo 4", "finalize: Answer: 4"]
    row = conversation(unify(MATH), load(None))
    assert row is not None
    everything = "\n".join(m["content"] for m in row["messages"])
    assert everything.count(QUESTION) == 1
    assert everything.count("Latest command output") == 1
    said = trained(VIDEO)
    assert said[:3] == ["load_context: captions.txt", "reason: Milk is poured.", "reason_hop: Into a glass."]
    assert said[-1] == "finalize: milk"
    row = conversation(unify(VIDEO), load(None))
    assert row is not None
    everything = "\n".join(m["content"] for m in row["messages"] if m["role"] != "assistant")
    assert everything.count("Somebody pours milk.") == 1
    assert "Milk is poured." not in everything


@pytest.mark.parametrize("source", [MATH, VIDEO], ids=["math", "video"])
@pytest.mark.parametrize("syntax", ["line", "openai", "hermes"])
def test_conversations_are_read_back_exactly(source: dict[str, Any], syntax: str, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(f"conversation: {{syntax: {syntax}}}")
    made = unify(source)
    row = conversation(made, load(tmp_path / "t.yaml"))
    assert unify(json.loads(json.dumps(row))) == made


@given(
    st.lists(st.tuples(st.sampled_from(["reason", "decompose", "finalize", "reason_hop"]), texts), max_size=4), texts
)
def test_any_prompted_steps_are_read_back(steps: list[tuple[str, str]], prompt: str) -> None:
    actions = [{"tool": tool, "input": {"prompt": prompt}, "output": said} for tool, said in steps]
    made = unify({**MATH, "actions": actions, "metadata": {"k": 1}})
    row = conversation(made, load(None))
    assert row is not None
    assert unify(json.loads(json.dumps(row))) == made


def test_actions_that_nobody_wrote_are_not_trained_on() -> None:
    nothing = {"tool": "unknown", "input": "", "output": ""}
    empty = {**MATH, "actions": [nothing, nothing], "final_answer": None, "question": None}
    assert conversation(unify(empty), load(None)) is None
    steps = [{"role": "tool", "content": "first"}, {"role": "assistant", "content": "well", "phase": "PLAN"}]
    source = {"task_id": "t", "domain": "swe", "question": "Repair it", "steps": steps}
    assert trained(source) == ["reason: well", "finalize: well"]
    made = unify(source)
    assert unify(conversation(made, load(None))) == made


# ---- the real files ----


@needs_files
@pytest.mark.parametrize("templates", [None, TEMPLATES], ids=["own", "theirs"])
def test_real_files_teach_no_prompt(tmp_path: Path, templates: str | None) -> None:
    if templates is not None:
        (tmp_path / "t.yaml").write_text(templates)
    choice = Choice(str(tmp_path / "t.yaml") if templates else None, val_ratio=0)
    assert sft_data([str(DATA)], tmp_path / "sft", choice, QUIET) == 0
    prompts, said, commands, written = set(), set(), set(), set()
    for file in FILES:
        made = unify(json.loads(file.read_text()))
        said.add(made["final_answer"])
        for action in made["actions"]:
            given = action["input"]
            prompts |= {given["prompt"]} if isinstance(given, dict) and "prompt" in given else set()
            said |= {action["output"]} if isinstance(action["output"], str) else set()
            commands |= {given["command"]} if isinstance(given, dict) and "command" in given else set()
            written |= {given} if isinstance(given, str) else set()
    for tool in ("reason", "decompose", "reason_hop", "finalize"):
        for line in (tmp_path / "sft" / tool / "train.jsonl").read_text().splitlines():
            row = json.loads(line)
            assert row["response"] not in prompts
            assert row["response"].startswith("```bash") or row["response"] in said | written
    bash = [json.loads(line) for line in (tmp_path / "sft" / "bash" / "train.jsonl").read_text().splitlines()]
    assert commands <= {row["response"] for row in bash}
    for line in (tmp_path / "sft" / "conversations" / "train.jsonl").read_text().splitlines():
        for message in json.loads(line)["messages"]:
            if message["role"] == "assistant":
                assert message["content"].partition(": ")[2] not in prompts
                assert not message["content"].startswith(("unknown", "observation"))


@needs_files
def test_the_guides_commands(tmp_path: Path) -> None:
    """The three commands of the guide, as it writes them."""
    raw, unified = DATA / "data" / "raw", tmp_path / "data" / "unified"
    out = unified / "mhqa" / "demo.json"
    run_command("convert", str(raw / "mhqa_demo.traj.json"), "--domain", "mhqa", "--out", str(out))
    assert json.loads(out.read_text())["question"] == "Who wrote The Hobbit?"
    analysis = tmp_path / "data" / "rewards" / "analysis.json"
    words = ["--trajectory_glob", str(raw / "*" / "*.traj.json"), "--output", str(analysis), "--stats"]
    assert "mhqa" in run_command("reward", *words).stdout
    assert json.loads(analysis.read_text())["scored"] == 4
    (tmp_path / "t.yaml").write_text(TEMPLATES)
    words = ["--unified_glob", str(DATA / "data" / "unified" / "*" / "*.json"), "--templates", str(tmp_path / "t.yaml")]
    run_command("sft-data", *words, "--out_dir", str(tmp_path / "data" / "sft"))
    assert (tmp_path / "data" / "sft" / "reason" / "train.jsonl").is_file()
