"""Tool agents with the built-in tools: every kind of wrong call is read by the model, counted, and survived."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.chat import TOOL_WRITERS, Renderer
from recollect.config import Config
from recollect.types import Group, Sampling, Task, ToolCall
from tests.agents.stage import Script
from tests.chat.tokenizers_with_markers import family

MINE = """
import time
def crash(text: str) -> str:
    "Fails."
    raise RuntimeError("lost " + text)
"""


@pytest.fixture(scope="module")
def renderer(tokenizer: Any) -> Renderer:
    return Renderer(family(tokenizer, "qwen2.5"))


def play(agent: str, tools: list[str], policy: Script) -> Group:
    cfg = Config()
    cfg.agent.agent_type, cfg.agent.tools = agent, tools
    made = Collector(cfg, {"*": Binding(policy, policy.renderer)})
    made.reward, made.builtin_reward = (lambda answer, task: answer == task.answers[0]), True

    async def go() -> list[Group]:
        try:
            return await made.collect([Task("t", "2*3?", answers=("6",))], 1, Sampling(max_tokens=800), "k")
        finally:
            await made.close()

    return asyncio.run(go())[0]


def test_hf_with_calculator_and_answer(renderer: Renderer, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    calls = [
        ToolCall("calculator", {"expression": "2*3"}),
        ToolCall("calculator", {"expresion": "2*3"}),
        ToolCall("calc", {}),
        ToolCall("crash", {"text": "it"}),
    ]
    first = TOOL_WRITERS["hermes"](calls) + "<tool_call>{</tool_call>"
    policy = Script(renderer, first, TOOL_WRITERS["hermes"]([ToolCall("answer", {"answer": "6"})]))
    (done,) = play("hf", ["calculator", "answer", f"{tmp_path / 'mine.py'}:crash"], policy).trajectories
    assert done.failure is None
    assert (done.stop, done.answer, done.reward) == ("answered", "6", 1.0)
    assert {k: done.tool_calls[k] for k in ("ok", "arguments", "unknown", "exception", "malformed")} == {
        "ok": 2,
        "arguments": 1,
        "unknown": 1,
        "exception": 1,
        "malformed": 1,
    }
    text = renderer.tokenizer.decode(policy.prompts[-1])
    assert text.count("<tool_response>") == 5
    assert "RuntimeError: lost it" in text


def test_code_runs_programs_that_remember(renderer: Renderer) -> None:
    policy = Script(renderer, "```python\na = 2 * 3\n```", "```python\nprint(a)\n```", "6")
    (done,) = play("code", ["python_executor"], policy).trajectories
    assert done.failure is None
    assert (done.stop, done.answer, done.tool_calls["ok"]) == ("no_tool_call", "6", 2)
    assert "<tool_response>\n6" in renderer.tokenizer.decode(policy.prompts[-1])


def test_react_with_a_bare_input(renderer: Renderer) -> None:
    policy = Script(renderer, "Action: calculator\nAction Input: 2*3\nObservation: 7", "Final Answer: 6")
    (done,) = play("react", ["calculator"], policy).trajectories
    assert (done.stop, done.answer) == ("answered", "6")
    assert "Observation: 6" in renderer.tokenizer.decode(policy.prompts[-1])
