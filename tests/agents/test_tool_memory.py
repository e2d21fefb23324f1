"""The agent that edits its memory through tools: phases, limits, positions, and a record of what changed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.chat import Renderer
from recollect.config.compose import compose
from recollect.policies.scripted import Scripted
from recollect.types import Sampling, Task, Trajectory

QUESTIONS = [
    {"question": "What does mira hold?", "answer": "2", "position": 1},
    {"question": "What does mira hold now?", "answer": "5"},
]
SESSIONS = [{"date": "day 1", "text": "mira holds 2."}, {"date": "day 2", "text": "mira holds 5."}]


def attempt(
    renderer: Renderer, respond: Callable[[str], str], task: Task | None = None, *settings: str, n: int = 1
) -> list[Trajectory]:
    cfg = compose(
        "needle",
        [
            *("agent.agent_type=tool_memory", "agent.tool_parser=compact", "agent.reward_name=memory_qa"),
            *("memory.style=plain", "data.max_response_length=200", *settings),
        ],
    )
    collector = Collector(cfg, {"*": Binding(Scripted(renderer, respond), renderer)})
    task = task or Task("t", "", SESSIONS, ("2",), "ledger", {"questions": QUESTIONS})
    (group,) = asyncio.run(collector.collect([task], n, Sampling(max_tokens=200), "k"))
    return group.trajectories


def clerk(prompt: str) -> str:
    """Notes what a section says, and answers with what it looks up."""
    said = prompt.rsplit("key_retrieve mira", 1)
    if "Section:" in prompt:
        value = re.findall(r"holds (\d)", prompt)[0]
        if "Added" in prompt or "Updated" in prompt:
            return "done"
        return f"{'update' if 'Notes: mira' in prompt else 'add'} mira: {value}"
    if len(said) == 1:
        return "key_retrieve mira"
    return rf"\boxed{{{re.findall(r'mira: (.)', said[1])[0]}}}"


def test_memory_is_kept_and_a_question_is_answered_as_of_its_position(renderer: Renderer) -> None:
    (done,) = attempt(renderer, clerk)
    assert done.failure is None
    assert done.answers == [r"\boxed{2}", r"\boxed{5}"]
    assert done.answer.splitlines() == [r"1. \boxed{2}", r"2. \boxed{5}"]
    assert done.score is not None
    assert done.score.total == 1.0
    assert [(t.role, t.question) for t in done.turns] == [
        *[("memory", 0)] * 4,
        *[("qa", 1)] * 2,
        *[("qa", 2)] * 2,
    ]
    assert done.notes == ["+ mira: 2", "~ mira: 5"]
    edits = [(e["chunk"], e["tool"], e["before"], e["after"]) for e in done.events if "after" in e]
    assert edits == [(1, "memory_add", None, "2"), (2, "memory_update", "2", "5")]


def test_the_question_is_not_shown_while_reading_and_the_document_not_while_answering(renderer: Renderer) -> None:
    (done,) = attempt(renderer, clerk)
    for turn in done.turns:
        text = renderer.decode(turn.prompt_ids)
        assert ("Question" in text) == (turn.role == "qa")
        assert ("Section" in text) == (turn.role == "memory")


def test_tools_are_those_of_the_phase(renderer: Renderer) -> None:
    seen: list[str] = []

    def meddler(prompt: str) -> str:
        seen.append(prompt)
        if "There is no tool" in prompt:
            return "done"
        name = "memory_bm25_retrieve" if "Section:" in prompt else "memory_add"
        return f'<tool_call>{{"name": "{name}", "arguments": {{"title": "a", "content": "b"}}}}</tool_call>'

    (done,) = attempt(renderer, meddler, None, "agent.tool_parser=hermes")
    assert done.tool_calls["unknown"] == 4
    assert not any(e["useful"] for e in done.events)


def test_parallel_calls_turns_and_responses_are_bounded(renderer: Renderer) -> None:
    def eager(prompt: str) -> str:
        if "Section:" not in prompt:
            return r"\boxed{0}"
        return "\n".join(f"add n{len(prompt)}x{i}: long" for i in range(6)) + "\nkey_retrieve none"

    limits = ("memory.max_calls=4", "memory.max_length=20", "agent.max_turns=3")
    (done,) = attempt(renderer, eager, None, *limits)
    reading = [t for t in done.turns if t.role == "memory"]
    assert len(reading) == 2 * 3
    assert sum("after" in e for e in done.events) == 2 * 3 * 4
    results = re.findall(r"<\|tool\|>(.*?)<\|end\|>", renderer.tokenizer.decode(list(reading[2].prompt_ids)), re.DOTALL)
    assert len(results) == 14
    assert max(map(len, results)) <= 20


def test_the_budget_is_told_and_kept(renderer: Renderer) -> None:
    def writer(prompt: str) -> str:
        if "Section:" not in prompt:
            return r"\boxed{0}"
        return "done" if "Added" in prompt or "full" in prompt else "add big: One two three. Four five six."

    budget = len(renderer.encode("big: One two three.\n")) + 3
    (done,) = attempt(renderer, writer, None, f"memory.budget={budget}")
    said = [renderer.decode(t.prompt_ids) for t in done.turns]
    assert any("was cut" in text and f"of {budget} tokens used" in text for text in said)
    assert done.events[0]["after"] == "One two three."


def test_searches_look_in_notes_or_in_what_was_read_by_then(renderer: Renderer) -> None:
    def searcher(prompt: str) -> str:
        if "Section:" in prompt:
            return "done" if "Added" in prompt else f"add n{len(prompt)}: green {len(prompt)}"
        found = prompt.rsplit("bm25_retrieve holds", 1)
        return "bm25_retrieve holds" if len(found) == 1 else rf"\boxed{{{found[1].count('holds')}}}"

    (done,) = attempt(renderer, searcher, None, "memory.search_in=source")
    assert done.answers == [r"\boxed{1}", r"\boxed{2}"]
    (done,) = attempt(renderer, searcher)
    assert done.answers == [r"\boxed{0}", r"\boxed{0}"]


def test_attempts_share_nothing(renderer: Renderer) -> None:
    alone = attempt(renderer, clerk)[0]
    for done in attempt(renderer, clerk, n=4):
        assert (done.answers, done.events) == (alone.answers, alone.events)


@pytest.mark.parametrize("context", ["mira holds 2. mira holds 5.", ["mira holds 2.", "mira holds 5."]])
def test_documents_are_text_or_chunks(renderer: Renderer, context: Any) -> None:
    task = Task("t", "What does mira hold?", context, ("5",))
    (done,) = attempt(renderer, clerk, task, "memory.chunk_size=6")
    assert done.answer == r"\boxed{5}"
    assert done.score is not None
    assert done.score.total == 1.0


def test_a_failing_policy_is_named(renderer: Renderer) -> None:
    def broken(prompt: str) -> str:
        if "Question" in prompt:
            raise ConnectionError("gone")
        return clerk(prompt)

    (done,) = attempt(renderer, broken)
    assert done.failure is not None
    assert (done.failure.kind, "gone" in done.failure.message) == ("policy", True)


def test_core_text_and_titles_are_shown_up_to_their_limits(renderer: Renderer) -> None:
    prompts: list[str] = []

    def writer(prompt: str) -> str:
        prompts.append(prompt)
        return "done" if "Section:" not in prompt or "Added" in prompt else "add core: mira kolu tani\nadd note: 1"

    attempt(renderer, writer, None, "memory.core_length=2", "memory.titles_length=3")
    asked = [p for p in prompts if "Question" in p]
    assert all("Memory: tani" in p and "Notes: note" in p for p in asked)


def test_guide_names_of_the_agent() -> None:
    for name in ("tool_mem_agent", "tool_mem_agent_twostage"):
        assert compose("needle", [f"agent.agent_type={name}"]).agent.agent_type == "tool_memory"


@pytest.mark.parametrize("search_in", ["notes", "source"])
def test_searching_by_meaning(renderer: Renderer, tmp_path: Path, search_in: str) -> None:
    file = tmp_path / "colours.py"
    file.write_text("def embed(texts):\n    return [[float('2' in t), float('5' in t), 0.1] for t in texts]\n")

    def searcher(prompt: str) -> str:
        if "Section:" in prompt:
            return "done" if "Added" in prompt else f"add n{re.findall(r'holds (.)', prompt)[0]}: noted"
        found = prompt.rsplit("embedding_retrieve which has 5", 1)
        return "embedding_retrieve which has 5" if len(found) == 1 else rf"\boxed{{{'5' in found[1]}}}"

    settings = ("memory.search=[embedding]", f"search.embedding_model={file}:embed", "memory.top_k=1")
    (done,) = attempt(renderer, searcher, None, *settings, f"memory.search_in={search_in}")
    assert done.failure is None
    assert done.answers == [r"\boxed{False}", r"\boxed{True}"]  # the first was asked before 5 was read
    assert [e["useful"] for e in done.events if e["question"]] == [True, True]


@pytest.mark.parametrize("agent", ["concat", "rag"])
def test_baselines_answer_every_question_from_what_was_there_then(renderer: Renderer, agent: str) -> None:
    def reader(prompt: str) -> str:
        return rf"\boxed{{{re.findall(r'holds (.)', prompt)[-1]}}}"

    settings = ("agent.agent_type=" + agent, "recurrent.memory.config.style=plain", "agent.tool_parser=null")
    (done,) = attempt(renderer, reader, None, *settings)
    assert done.failure is None
    assert done.answers == [r"\boxed{2}", r"\boxed{5}"]
    assert [(t.role, t.question) for t in done.turns] == [("qa", 1), ("qa", 2)]


def test_the_baseline_without_memory_keeps_to_its_window(renderer: Renderer) -> None:
    text = " ".join(f"mira holds {i}." for i in range(2000))
    task = Task("t", "What does mira hold?", text, ("1",))
    settings = ("agent.agent_type=concat", "recurrent.memory.config.style=plain", "data.max_prompt_length=120")
    (done,) = attempt(renderer, lambda prompt: "x", task, *settings)
    prompt = renderer.decode(done.turns[0].prompt_ids)
    assert len(done.turns[0].prompt_ids) <= 120
    assert "mira holds 0." in prompt
    assert "holds 1999." in prompt
