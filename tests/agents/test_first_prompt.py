"""Prompts that are too long: left out, refused by name, or cut where the user says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.agents.first_prompt import first_messages, fitted, shortened, window_problem
from recollect.chat import Renderer, use_template
from recollect.config import Config
from recollect.sources.prompt_limits import within_limits
from recollect.types import BadInput, Message, Task

ALPHABET = "abc xyz 0123 \u6f22\U0001f600 \n."


@pytest.fixture(scope="module")
def renderer(tokenizer: Any) -> Renderer:
    return Renderer(tokenizer)


def config(limit: int, truncation: str = "error", leave_out: bool = False) -> Config:
    cfg = Config()
    cfg.agent.agent_type = "chat"
    cfg.data.max_prompt_length, cfg.data.truncation, cfg.data.filter_overlong_prompts = limit, truncation, leave_out
    return cfg


def tasks(*lengths: int) -> list[Task]:
    return [Task(str(i), "holds " * n, place=f"rows.json, row {i + 1}") for i, n in enumerate(lengths)]


@settings(max_examples=60, deadline=None)
@given(text=st.text(ALPHABET, max_size=80), limit=st.integers(6, 60), how=st.sampled_from(["left", "right", "center"]))
def test_a_cut_prompt_fits_and_keeps_what_it_promises(text: str, limit: int, how: str, renderer: Renderer) -> None:
    messages = [Message("system", "be"), Message("user", text)]
    whole = len(renderer.prompt(messages))
    try:
        system, user = fitted(messages, renderer, limit, how)
    except ValueError:
        assert len(renderer.prompt([messages[0], Message("user", "")])) >= limit - 4  # nothing of the question fits
        return
    assert len(renderer.prompt([system, user])) <= limit
    assert system == messages[0]
    if whole <= limit:
        assert user.content == text
    elif how == "right":
        assert text.startswith(user.content)
    elif how == "left":
        assert text.endswith(user.content)
    else:
        middle = next(i for i in range(len(user.content) + 1) if text.endswith(user.content[i:]))
        assert text.startswith(user.content[:middle])


def test_the_cut_keeps_as_many_tokens_as_it_may() -> None:
    spans = [(i, i + 1) for i in range(10)]
    assert shortened("0123456789", spans, 4, "left") == "6789"
    assert shortened("0123456789", spans, 4, "right") == "0123"
    assert shortened("0123456789", spans, 5, "center") == "01289"
    assert shortened("0123456789", spans, 10, "center") == "0123456789"


def test_an_overlong_prompt_is_refused_by_its_row() -> None:
    with pytest.raises(BadInput, match=r"rows\.json, row 2: the prompt has \d+ tokens.*data\.max_prompt_length=20"):
        within_limits(tasks(3, 90), config(20), True, print)
    assert within_limits(tasks(3, 90), config(20, "left"), True, print) == tasks(3, 90)  # cut when it is asked


def test_overlong_training_tasks_are_left_out_and_counted() -> None:
    said: list[str] = []
    kept = within_limits(tasks(3, 90, 4, 80), config(20, leave_out=True), True, said.append)
    assert [t.id for t in kept] == ["0", "2"]
    assert said == ["left out 2 of 4 training tasks: longer than 20 tokens"]
    with pytest.raises(BadInput, match="all 2 training tasks are longer"):
        within_limits(tasks(90, 90), config(20, leave_out=True), True, said.append)
    with pytest.raises(BadInput, match="row 2"):  # held-out tasks are never dropped: that would change the measure
        within_limits(tasks(3, 90), config(20, leave_out=True), False, said.append)


def test_the_recurrent_agent_has_limits_of_its_own() -> None:
    cfg = config(5, leave_out=True)
    cfg.agent.agent_type = "recurrent"
    assert len(within_limits(tasks(3, 90), cfg, True, print)) == 2


def test_what_is_asked_first() -> None:
    cfg = config(50)
    task = Task("0", "Who?", fields={"question": "Who?"})
    assert first_messages(task, cfg) == [Message("user", "Who?")]
    cfg.agent.system_prompt = "Be brief."
    assert first_messages(task, cfg) == [Message("system", "Be brief."), Message("user", "Who?")]
    talk = [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    row = Task("0", "Who?", fields={"prompt": [*talk, {"role": "user", "content": "Who?"}]})
    assert [m.content for m in first_messages(row, cfg)] == ["Be brief.", "a", "b", "Who?"]
    cfg.agent.system_prompt = None
    assert [m.content for m in first_messages(row, cfg)] == ["s", "a", "b", "Who?"]


def test_the_window(renderer: Renderer) -> None:
    cfg = config(50)
    assert "prompt 50 + data.max_response_length 1024" in window_problem(cfg, renderer, 1000, "holds " * 99)
    assert window_problem(cfg, renderer, 1074, "holds " * 99) == ""


def test_a_template_by_name() -> None:
    from recollect.models.tiny import build_tokenizer

    plain = Renderer(build_tokenizer())
    named = Renderer(use_template(build_tokenizer(), "chatml"))
    text = named.tokenizer.decode(named.prompt([Message("user", "a")]))
    assert text == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
    assert plain.tokenizer.decode(plain.prompt([Message("user", "a")])) == "<|user|>a<|end|><|assistant|>"
    own = build_tokenizer()
    own.chat_template = "{{ '<|im_start|>' }}" + named.tokenizer.chat_template
    assert use_template(own, "qwen2.5").chat_template.startswith("{{ '<|im_start|>' }}")  # a Qwen keeps its own
    assert use_template(own, "chatml").chat_template == named.tokenizer.chat_template
