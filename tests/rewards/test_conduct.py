"""Rewards for form, calls and length, and attempts to be paid for nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.rewards.conduct import format_reward, length_penalty, tool_use
from recollect.rewards.tool_calls import Call, calls_in, calls_of
from recollect.types import Trajectory
from tests.rewards.attempts import attempt


def hermes(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


SEARCH, BOXED = hermes("search", query="mira"), r"So \boxed{472}."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SEARCH, [Call("search", '{"query": "mira"}')]),
        (SEARCH * 2, [Call("search", '{"query": "mira"}')] * 2),
        ('<tool_call>{"name": "f"}</tool_call>', [Call("", '{"name": "f"}', False)]),
        ("<tool_call>{broken</tool_call>", [Call("", "{broken", False)]),
        ('<tool_call>{"name": "f", "arguments": {}}', [Call("", '{"name": "f", "arguments": {}}', False)]),
        ('{"name": "f", "parameters": {"b": 1, "a": 2}}', [Call("f", '{"a": 2, "b": 1}')]),
        ("Thought: x\nAction: search\nAction Input: mira\n", [Call("search", "mira")]),
        ('Action: search\nInput: {"q": 1}\nObservation: y', [Call("search", '{"q": 1}')]),
        ("Action: \nAction Input: mira", [Call("", "mira", False)]),
        ("**Action:** search\nAction Input: mira\nFinal Answer: 5", [Call("search", "mira")]),
        ("Input: 5\nOutput: 6", []),  # words of an answer
        ('{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}', [Call("f", "{}"), Call("g", "{}")]),
        ("<search> mira </search>", [Call("search", "mira")]),
        ("plain 5", []),
        ('{"answer": 5}', []),
    ],
)
def test_calls(text: str, expected: list[Call]) -> None:
    assert calls_in(text) == expected


def test_fenced_code_is_a_call_before_the_last_turn() -> None:
    block = "```python\nprint(1)\n```"
    assert calls_of(attempt(block, block)) == [Call("python", "print(1)")]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([BOXED], 1),
        ([SEARCH, BOXED], 1),
        (["<think>x</think><answer>472</answer>"], 1),
        (["Final Answer: 472"], 1),
        ([SEARCH, hermes("answer", answer="472")], 1),
        (["472"], 0),
        (["<answer></answer>"], 0),
        (["<answer>the</answer>"], 0),
        ([BOXED + BOXED], 0),
        (["<answer>1</answer><answer>2</answer>"], 0),
        (["<think>x <answer>472</answer>"], 0),
        (["x</think><answer>472</answer>"], 0),
        (["<tool_call>{broken</tool_call>", BOXED], 0),
        ([BOXED, "472"], 0),
        (["```python\nx" + "\n" + BOXED], 0),
        ([], 0),
    ],
)
def test_format(texts: list[str], expected: float) -> None:
    made = attempt(*texts)
    assert format_reward(made.answer or "472", made) == expected
    assert format_reward("", made) == 0


def test_an_answer_that_was_cut_has_no_form() -> None:
    assert format_reward("472", attempt(BOXED, stop="length")) == 0


def test_tool_use() -> None:
    assert tool_use("472", attempt(SEARCH, BOXED)) == 1
    assert tool_use("472", attempt(BOXED)) == 0
    assert tool_use("472", attempt(hermes("answer", answer="472"))) == 0
    assert tool_use("", attempt(SEARCH, "")) == 0
    assert tool_use("472", attempt(SEARCH, SEARCH, BOXED)) == 0.75
    assert tool_use("472", attempt(SEARCH, "<tool_call>{</tool_call>", BOXED)) == 0.75
    assert tool_use("472", attempt("<tool_call>{</tool_call>", BOXED)) == 0
    assert tool_use("472", attempt(SEARCH, SEARCH, BOXED), waste=1) == 0


def test_what_came_of_the_calls_counts_where_it_is_known() -> None:
    class Counted(Trajectory):
        tool_calls: dict[str, int]

    def counted(**counts: int) -> Trajectory:
        plain = attempt(SEARCH, BOXED)
        made = Counted("t", 0, plain.turns)
        made.tool_calls = {k.replace("tool_", "tool/"): v for k, v in counts.items()}
        return made

    assert tool_use("472", counted(ok=1, tool_search=1)) == 1
    assert tool_use("472", counted(ok=1, exception=2, tool_search=3)) == 0.5
    assert tool_use("472", counted(unknown=1)) == 0
    assert tool_use("472", counted(ok=1, timeout=1, tool_answer=1, tool_search=1)) == 0  # only the answer worked


CALLS = st.lists(
    st.sampled_from([SEARCH, hermes("search", query="kolu"), hermes("calc", x=1), "<tool_call>{</tool_call>"]),
    min_size=1,
)


@given(calls=CALLS, more=CALLS)
def test_calling_more_never_pays(calls: list[str], more: list[str]) -> None:
    before = tool_use("472", attempt(*calls, BOXED))
    assert 0 <= before <= 1
    if before > 0:
        assert tool_use("472", attempt(*calls, *more, BOXED)) <= before
    assert tool_use("472", attempt(*calls, *calls, BOXED)) <= before
    assert tool_use(" . ", attempt(*calls, BOXED)) == 0


@given(tokens=st.integers(0, 3000), limit=st.integers(1, 2000), buffer=st.integers(0, 500))
def test_length_penalty(tokens: int, limit: int, buffer: int) -> None:
    made = attempt("x", ids=tokens)
    value = length_penalty("x", made, limit, buffer)
    assert -1 <= value <= 0
    assert value == 0 or tokens > limit - buffer
    assert value == -1 or tokens < limit or (buffer == 0 and tokens == limit)
    assert length_penalty("x", attempt("x", ids=tokens + 1), limit, buffer) <= value
    assert length_penalty("", attempt("", ids=0), limit, buffer) == -1  # saying nothing is not a way out


def test_turns_that_are_not_trained_do_not_count() -> None:
    made = attempt("x", "y", ids=600)
    assert length_penalty("y", made) == -1
    made.turns[0].trainable = False
    assert length_penalty("y", made) == 0
