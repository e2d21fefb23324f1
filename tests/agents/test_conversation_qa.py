"""The agent over conversations: what it keeps, within which budget, and what a question is shown of it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.agents.window import check_window
from recollect.chat import Renderer
from recollect.config import Config
from recollect.config.compose import compose
from recollect.config.startup_messages import startup_messages
from recollect.data.locomo import read_locomo
from recollect.data.task_rows import tasks_of
from recollect.eval.items import item_of
from recollect.policies.scripted import Scripted
from recollect.types import BadInput, Sampling, Task, Trajectory
from tests.data.conversations import conversation, write

BASE = ("agent.agent_type=conversation_qa", "agent.reward_name=memory_qa", "memory.scores=[locomo_f1]")


def settings(*more: str) -> Config:
    return compose("needle", [*BASE, "memory.style=plain", "data.max_response_length=64", *more])


def task_of(tmp_path: Path, cfg: Config) -> Task:
    (talk,) = read_locomo(write(tmp_path / "c.json", conversation()))
    (task,) = tasks_of(cfg, [("c.json", talk.task("conv-1", talk.questions))])
    return task


def attempt(renderer: Renderer, cfg: Config, task: Task, respond: Callable[[str], str], n: int = 1) -> list[Trajectory]:
    collector = Collector(cfg, {"*": Binding(Scripted(renderer, respond), renderer)})
    (group,) = asyncio.run(collector.collect([task], n, Sampling(max_tokens=64), "k"))
    return group.trajectories


def shown(renderer: Renderer, done: Trajectory) -> list[str]:
    return [renderer.decode(turn.prompt_ids) for turn in done.turns]


def test_a_question_is_shown_the_turns_that_are_found_with_their_dates(renderer: Renderer, tmp_path: Path) -> None:
    cfg = settings("conversation.top_k=1")
    (done,) = attempt(renderer, cfg, task_of(tmp_path, cfg), lambda prompt: "7 May 2023")
    assert done.failure is None
    assert [turn.role for turn in done.turns] == ["qa"] * 5
    second = shown(renderer, done)[1]
    assert "8 May 2023: Ana: I went to a pottery class yesterday [7 May 2023]" in second
    assert "bakery" not in second
    assert done.score is not None
    assert done.score.questions[2] == 1.0
    assert done.score.questions[0] == pytest.approx(sum(done.score.questions[1:]) / 5)
    item = item_of(task_of(tmp_path, cfg), done)
    assert [row["category"] for row in item.questions] == [1, 2, 3, 4, 5]
    right = {
        "locomo_f1": 1.0,
        "set_f1": 1.0,
        "refused": 0.0,
        "evidence_recall": 1.0,
        "earned": 1.0,
        "agrees_with_f1": 1.0,
    }
    assert item.questions[1]["scores"] == right
    assert "set_f1" not in item.questions[4]["scores"]


@pytest.mark.parametrize(
    ("kind", "text", "name"),
    [
        ("sessions", "1:56 pm on 8 May, 2023: Ana: I went", "S1"),
        ("observations", "8 May 2023: Ana said: I went to a pottery class yesterday [7 May 2023]", "D1:1"),
    ],
)
def test_sessions_and_observations(renderer: Renderer, tmp_path: Path, kind: str, text: str, name: str) -> None:
    cfg = settings(f"conversation.memory={kind}", "conversation.top_k=1")
    (done,) = attempt(renderer, cfg, task_of(tmp_path, cfg), lambda prompt: "x")
    assert text in shown(renderer, done)[1]
    assert [e["found"] for e in done.events if e["question"] == 2] == [[name]]


def test_dates_stay_as_they_are_when_asked(renderer: Renderer, tmp_path: Path) -> None:
    cfg = settings("conversation.resolve_dates=False")
    (done,) = attempt(renderer, cfg, task_of(tmp_path, cfg), lambda prompt: "x")
    assert "yesterday and made" in shown(renderer, done)[1]


def test_what_the_budget_refuses_is_counted_and_said(renderer: Renderer, tmp_path: Path) -> None:
    for budget in (30, 60, 90):
        cfg = settings(f"memory.budget={budget}")
        (done,) = attempt(renderer, cfg, task_of(tmp_path, cfg), lambda prompt: "x")
        (event,) = [e for e in done.events if "refused" in e]
        assert event["used"] <= budget
        assert event["refused"] > 0
        assert f"memory.budget={budget} refused {event['refused']}" in done.notes[0]
    cfg = settings()
    assert cfg.memory.budget == 20_000
    (done,) = attempt(renderer, cfg, task_of(tmp_path, cfg), lambda prompt: "x")
    assert [e["refused"] for e in done.events if "refused" in e] == [0]
    assert "kept 6 of 6 turns" in done.notes[0]


def test_a_prompt_never_has_more_than_its_tokens(renderer: Renderer, tmp_path: Path) -> None:
    for kind in ("turns", "sessions", "whole", "observations"):
        cfg = settings(f"conversation.memory={kind}", "data.max_prompt_length=70")
        (done,) = attempt(renderer, cfg, task_of(tmp_path, cfg), lambda prompt: "x")
        assert done.failure is None
        assert max(len(turn.prompt_ids) for turn in done.turns) <= 70
        assert min(len(turn.prompt_ids) for turn in done.turns) > 30
        lost = [e for e in done.events if e.get("left_out")]
        assert lost or kind == "observations"  # one unit alone, or all of it, is too long
        assert all((e["question"] == 0) is (kind == "whole") for e in lost)
    (done,) = attempt(renderer, settings("conversation.memory=whole"), task_of(tmp_path, cfg), lambda prompt: "x")
    assert not [e for e in done.events if e.get("left_out")]


def test_questions_about_one_text_share_their_prompts_up_to_the_question(renderer: Renderer, tmp_path: Path) -> None:
    cfg = settings("conversation.memory=whole", "data.max_prompt_length=200", "memory.style=instruct")
    (done,) = attempt(renderer, cfg, task_of(tmp_path, cfg), lambda prompt: "x")
    texts = [text.partition("</memory>")[0] for text in shown(renderer, done)]
    assert len(texts) == 5
    assert len(set(texts)) == 1
    assert "Ana" in texts[0]


def test_a_text_is_written_once_per_session_and_without_a_question(renderer: Renderer, tmp_path: Path) -> None:
    cfg = settings("conversation.memory=recurrent", "memory.budget=24")
    reply = lambda prompt: "rex lisbon " * 20 if "Section" in prompt else "Rex"
    (done,) = attempt(renderer, cfg, task_of(tmp_path, cfg), reply)
    assert [(turn.role, turn.question) for turn in done.turns] == [("memory", 0)] * 3 + [("qa", i) for i in range(1, 6)]
    prompts = shown(renderer, done)
    assert all("Question" not in prompt for prompt in prompts[:3])
    assert all("Section" not in prompt and "pottery class yesterday" not in prompt for prompt in prompts[3:])
    assert "pottery class yesterday [7 May 2023]" in prompts[0]
    assert all(len(renderer.encode(note)) <= 24 for note in done.notes)
    assert all(len(turn.completion.ids) <= 24 for turn in done.turns[:3])


def test_a_smaller_effective_budget_is_said() -> None:
    said = "\n".join(startup_messages(settings("conversation.memory=recurrent")))
    assert "memory.budget=20000" in said
    assert "at most data.max_response_length=64 tokens" in said
    assert "memory.budget" not in "\n".join(
        startup_messages(settings("conversation.memory=recurrent", "memory.budget=9"))
    )
    assert "memory.budget" not in "\n".join(startup_messages(settings()))


def test_notes_are_those_of_tool_memory(renderer: Renderer, tmp_path: Path) -> None:
    cfg = settings("conversation.memory=notes", "agent.tool_parser=compact", "data.max_prompt_length=400")

    def clerk(prompt: str) -> str:
        if "Section:" in prompt:
            return "done" if "Added" in prompt else f"add day{len(re.findall('day', prompt))}: Rex"
        return "Rex"

    (done,) = attempt(renderer, cfg, task_of(tmp_path, cfg), clerk)
    assert done.failure is None
    assert done.notes[0].startswith("+ day")
    assert "yesterday [7 May 2023]" in shown(renderer, done)[0]
    assert done.score is not None
    assert done.score.questions[4] == 1.0


def test_nothing_is_remembered_without_a_memory(renderer: Renderer, tmp_path: Path) -> None:
    cfg = settings("conversation.memory=none")
    (done,) = attempt(renderer, cfg, task_of(tmp_path, cfg), lambda prompt: "Not mentioned")
    assert all("Ana:" not in prompt for prompt in shown(renderer, done))
    assert done.score is not None
    assert done.score.questions[5] == 1.0


def test_a_question_sees_what_had_been_read_when_it_is_asked(renderer: Renderer) -> None:
    rows = [{"question": "Where is Ana?", "answer": "Rome", "category": 4, "position": k} for k in (0, 1, 2)]
    row = {"context": [{"date": "day 1", "text": "Ana is in Rome."}, {"date": "day 2", "text": "Ana is in Oslo."}]}
    for kind in ("turns", "whole", "recurrent"):
        cfg = settings(f"conversation.memory={kind}")
        (task,) = tasks_of(cfg, [("here", {**row, "questions": rows})])
        reply = lambda prompt: re.findall(r"in (\w+)", prompt)[0] if "Section" in prompt else "x"
        (done,) = attempt(renderer, cfg, task, reply)
        asked = [text for text, turn in zip(shown(renderer, done), done.turns, strict=True) if turn.role == "qa"]
        assert [("Rome" in text, "Oslo" in text) for text in asked][:2] == [(False, False), (True, False)], kind
        assert "Oslo" in asked[2]


def test_one_running_text_is_read_too(renderer: Renderer) -> None:
    cfg = settings("memory.chunk_size=16", "agent.reward_name=qa_em")
    task = Task("t", "What does mira hold?", "kolu holds 118. " * 20 + "mira holds 472.", ("472",))
    (done,) = attempt(renderer, cfg, task, lambda prompt: "472" if "mira holds 472" in prompt else "no")
    assert done.answer == "472"


def test_observations_that_are_not_there_are_refused_first() -> None:
    row = {"context": ["a text"], "questions": [{"question": "q?", "answer": "a", "category": 4}]}
    with pytest.raises(BadInput, match=r"here: conversation.memory=observations, and the data has no `observations`"):
        tasks_of(settings("conversation.memory=observations"), [("here", row)])


EMBEDDED: list[int] = []  # how many texts each call had


def embed_letters(texts: list[str]) -> list[list[float]]:
    EMBEDDED.append(len(texts))
    return [[float(text.lower().count(letter)) + 0.1 for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]


@pytest.mark.parametrize("method", ["dense", "hybrid"])
def test_search_by_meaning_embeds_a_conversation_once(renderer: Renderer, tmp_path: Path, method: str) -> None:
    EMBEDDED.clear()
    name = f"search.embedding_model={__name__}:embed_letters"
    cfg = settings(f"conversation.method={method}", "conversation.top_k=2", f"memory.budget=90{len(method)}", name)
    done = attempt(renderer, cfg, task_of(tmp_path, cfg), lambda prompt: "x", n=2)
    assert all(each.failure is None for each in done)
    assert all(len(e["found"]) == 2 for each in done for e in each.events if "found" in e)
    assert sum(size for size in EMBEDDED if size > 1) <= 6  # six turns, whatever number of attempts and questions


def test_prompts_of_a_file_are_used(renderer: Renderer, tmp_path: Path) -> None:
    file = tmp_path / "prompts.json"
    file.write_text(json.dumps({"prompts": {"answer": "Say it: {question} {{x}} {memory}"}}))
    cfg = settings(f"agent.prompts={file}")
    (done,) = attempt(renderer, cfg, task_of(tmp_path, cfg), lambda prompt: "x")
    assert "Say it: What is the name of Ben's dog? {x} " in shown(renderer, done)[3]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"prompts": {"answer": "{question}"}}, "answer has no {memory}"),
        ({"prompts": {"answer": "{question} {memory} {gold}"}}, "holds {gold}"),
        ({"prompts": {"answer": "{question.__class__} {question} {memory}"}}, "holds {question.__class__}"),
        ({"prompts": {"answer": "{question} {memory} {"}}, "is no template"),
        ({"prompts": {"other": "x"}}, "the prompt other is unknown; known: read, answer"),
        ({"prompts": ["x"]}, "expected an object `prompts`"),
        ([], "expected an object `prompts`"),
    ],
)
def test_prompts_that_cannot_work_are_refused_first(
    renderer: Renderer, tmp_path: Path, given: object, message: str
) -> None:
    file = tmp_path / "prompts.json"
    file.write_text(json.dumps(given))
    with pytest.raises(BadInput) as error:
        check_window(settings(f"agent.prompts={file}"), renderer, 512, "q?")
    assert message in str(error.value)


def test_settings_that_do_not_fit_are_refused(renderer: Renderer) -> None:
    with pytest.raises(BadInput, match=r"the agent tool_memory takes no prompts of a file"):
        compose("ledger", ["agent.prompts=x.json"])
    with pytest.raises(BadInput, match=r"has the prompts of tool_memory"):
        settings("agent.prompts=x.json", "conversation.memory=notes")
    with pytest.raises(BadInput, match="is unknown; known: turns, sessions"):
        settings("conversation.memory=all")
    with pytest.raises(BadInput, match=r"memory.budget=0 must be positive"):
        settings("memory.budget=0")
    with pytest.raises(BadInput, match="window of 100 tokens is too small"):
        check_window(settings(), renderer, 100, "q?")
    with pytest.raises(BadInput, match="too small to read a session"):
        check_window(settings("conversation.memory=recurrent", "data.max_prompt_length=130"), renderer, 512, "q?")
