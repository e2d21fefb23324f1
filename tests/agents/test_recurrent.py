"""The recurrent agent: every limit is counted in tokens and kept, whatever the model says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.chat import Renderer
from recollect.config.compose import compose
from recollect.policies.scripted import Scripted
from recollect.types import Sampling, Task, Trajectory

TEXT = " ".join(f"mira holds {i:03d}." for i in range(60))
KEY = "recurrent.memory.config"


def read(renderer: Renderer, respond: Callable[[str], str], *settings: str, question: str = "What?") -> Trajectory:
    cfg = compose("needle", [f"{KEY}.chunk_size=30", *settings])
    collector = Collector(cfg, {"*": Binding(Scripted(renderer, respond), renderer)})
    (group,) = asyncio.run(collector.collect([Task("t", question, TEXT, ("1",))], 1, Sampling(max_tokens=100), "k"))
    return group.trajectories[0]


def prompts(renderer: Renderer, done: Trajectory) -> list[str]:
    return [renderer.decode(t.prompt_ids) for t in done.turns]


def section(prompt: str) -> str:
    return prompt.partition("Section: ")[2].partition("\n")[0]


def test_sections_cover_the_document_and_keep_their_size(renderer: Renderer) -> None:
    for split in ("token", "sentence"):
        done = read(renderer, lambda prompt: " none", f"{KEY}.split={split}")
        parts = [section(p) for p in prompts(renderer, done)[:-1]]
        assert " ".join(" ".join(parts).split()).replace(" ", "") == TEXT.replace(" ", "")
        assert max(len(renderer.encode(p)) for p in parts) <= 30
        if split == "sentence":
            assert all(p.endswith(".") for p in parts)


def test_chunks_are_read_as_one_text_and_several_questions_are_refused(renderer: Renderer) -> None:
    cfg = compose("needle", [f"{KEY}.chunk_size=30"])
    collector = Collector(cfg, {"*": Binding(Scripted(renderer, lambda prompt: " none"), renderer)})
    sessions = [{"date": "day 1", "text": "mira holds 472."}, "kolu \ud800 holds 118."]
    asked = {"questions": [{"question": "What?", "answer": "1"}, {"question": "Who?", "answer": "2"}]}
    tasks = [Task("one", "What?", sessions, ("1",)), Task("two", "What?", sessions, ("1",), fields=asked)]
    one, two = (g.trajectories[0] for g in asyncio.run(collector.collect(tasks, 1, Sampling(max_tokens=9), "k")))
    assert one.failure is None, one.failure
    assert "day 1: mira holds 472.\nkolu ? holds 118." in prompts(renderer, one)[0]
    assert two.failure is not None
    assert "recurrent answers one question" in two.failure.message


def test_an_over_long_document_is_cut_in_the_centre_only_when_asked(renderer: Renderer) -> None:
    whole = [section(p) for p in prompts(renderer, read(renderer, lambda p: " none"))[:-1]]
    cut = [section(p) for p in prompts(renderer, read(renderer, lambda p: " none", f"{KEY}.max_chunks=4"))[:-1]]
    assert len(whole) > 8
    assert cut == [*whole[:2], *whole[-2:]]


def test_memory_and_answer_have_their_limits(renderer: Renderer) -> None:
    long = " mira" * 40
    limits = (f"{KEY}.max_memorization_length=7", f"{KEY}.max_final_response_length=5")
    done = read(renderer, lambda prompt: long, *limits)
    assert all(len(t.completion.ids) <= 7 for t in done.turns[:-1])
    assert len(done.turns[-1].completion.ids) == 5
    for prompt in prompts(renderer, done)[1:-1]:
        assert len(renderer.encode(prompt.rpartition("Memory: ")[2])) <= 7


def test_a_long_question_is_cut_or_refused(renderer: Renderer) -> None:
    question = "What does " + "mira " * 50
    refused = read(renderer, lambda prompt: " none", question=question)
    assert refused.failure is not None
    assert "max_prompt_length" in refused.failure.message
    done = read(renderer, lambda prompt: " none", "data.truncation=right", question=question)
    asked = prompts(renderer, done)[-1].partition("Question: ")[2].partition("\n")[0]
    assert len(renderer.encode(asked)) <= 32
    assert question.startswith(asked)


@pytest.mark.parametrize("style", ["plain", "instruct"])
def test_the_question_is_shown_while_reading_or_not(renderer: Renderer, style: str) -> None:
    for aware in (True, False):
        done = read(renderer, lambda p: " none", f"{KEY}.query_aware={aware}", f"{KEY}.style={style}", question="Zz?")
        texts = prompts(renderer, done)
        assert {"Zz?" in text for text in texts[:-1]} == {aware}
        assert "Zz?" in texts[-1]


@pytest.mark.parametrize("layout", ["chunk_first", "memory_first"])
def test_the_layout_and_what_the_answer_turn_sees(renderer: Renderer, layout: str) -> None:
    done = read(renderer, lambda prompt: " kept", f"{KEY}.layout={layout}")
    *reading, answer = prompts(renderer, done)
    for text in reading:
        assert (text.index("Section:") < text.index("Memory:")) == (layout == "chunk_first")
    assert "Section" not in answer
    assert "holds" not in answer
    assert "Memory: kept" in answer
