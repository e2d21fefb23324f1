"""Conversations as training sequences: the template's own ids, and a loss on what the assistant said alone."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.chat import TEMPLATES, TOOL_PARSERS, Renderer
from recollect.chat.conversation import is_conversation, read_conversation, tokenise
from recollect.types import BadInput
from tests.chat.tokenizers_with_markers import family

CALL = {"id": "1", "type": "function", "function": {"name": "search", "arguments": '{"query": "a b", "k": 2}'}}
SEARCH = {
    "type": "function",
    "function": {"name": "search", "description": "finds", "parameters": {"type": "object", "properties": {}}},
}
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What does mira hold?"},
    {"role": "assistant", "content": "Looking.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "mira holds 472."},
    {"role": "tool", "tool_call_id": "2", "content": "tavo holds 9."},
    {"role": "assistant", "content": "472"},
    {"role": "user", "content": "And tavo?"},
    {"role": "assistant", "content": "9"},
]


@pytest.fixture(scope="module", params=list(TEMPLATES))
def chat(request: pytest.FixtureRequest, tokenizer: Any) -> Renderer:
    return Renderer(family(tokenizer, request.param))


def parsed(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages as templates want them: arguments as objects."""
    rows = copy.deepcopy(messages)
    for call in (c for m in rows for c in m.get("tool_calls", ())):
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return rows


def trained_runs(ids: list[int], mask: list[bool]) -> list[list[int]]:
    """The stretches of trained ids."""
    runs: list[list[int]] = []
    for before, now, token in zip([False, *mask], mask, ids, strict=False):
        if now and not before:
            runs.append([])
        if now:
            runs[-1].append(token)
    return runs


def test_ids_are_those_of_the_whole_template(chat: Renderer) -> None:
    if not chat._knows_tool_role:
        pytest.skip("results are shown as a user's message here")
    ids, mask = tokenise(read_conversation({"messages": TALK, "tools": [SEARCH]}, "x"), chat)
    whole = chat.tokenizer.apply_chat_template(parsed(TALK), tools=[SEARCH], tokenize=False)
    expected = chat.encode(whole)
    assert expected[: len(ids)] == ids
    assert chat.tokenizer.decode(expected[len(ids) :]).strip() == ""
    assert len(ids) == len(mask)


def test_only_what_the_assistant_said_is_trained_on(chat: Renderer) -> None:
    ids, mask = tokenise(read_conversation({"messages": TALK, "tools": [SEARCH]}, "x"), chat)
    runs = trained_runs(ids, mask)
    assert len(runs) == 3
    assert all(run[-1] == chat.end_id and run.count(chat.end_id) == 1 for run in runs)
    said = [chat.said(run) for run in runs]
    assert said[1:] == ["472", "9"]
    (call,) = TOOL_PARSERS[chat.parser](said[0], [SEARCH])
    assert (call.name, call.arguments) == ("search", {"query": "a b", "k": 2})
    rest = chat.tokenizer.decode([i for i, m in zip(ids, mask, strict=True) if not m])
    assert "holds" in rest
    assert "query" not in rest.replace("signature", "")


def test_every_assistant_turn_continues_the_prompt_that_a_rollout_shows(chat: Renderer) -> None:
    ids, mask = tokenise(read_conversation({"messages": TALK, "tools": [SEARCH]}, "x"), chat)
    first = mask.index(True)
    from recollect.types import Message

    prompt = chat.prompt([Message(m["role"], m["content"]) for m in TALK[:2]], [SEARCH])
    assert ids[:first] == prompt


@given(st.text(max_size=40), st.text(max_size=40))
def test_texts_of_any_kind_neither_end_a_turn_nor_escape_their_place(asked: str, said: str) -> None:
    from recollect.models.tiny import build_tokenizer

    chat = Renderer(build_tokenizer())
    end = chat.tokenizer.decode([chat.end_id])
    row = {"messages": [{"role": "user", "content": asked + end}, {"role": "assistant", "content": said + end + "x"}]}
    ids, mask = tokenise(read_conversation(row, "x"), chat)
    (run,) = trained_runs(ids, mask)
    assert run[-1] == chat.end_id
    assert chat.end_id not in run[:-1]
    assert mask[-1]


def test_weight_zero_and_prompts_are_not_trained_on(renderer: Renderer) -> None:
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "weight": 0}]
    more = [{"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]
    ids, mask = tokenise(read_conversation({"messages": talk + more}, "x"), renderer)
    assert [renderer.said(run) for run in trained_runs(ids, mask)] == ["d"]
    again, other = tokenise(read_conversation({"prompt": talk + more[:1], "completion": more[1:]}, "x"), renderer)
    assert (again, other) == (ids, mask)


def test_forms_of_the_same_conversation_agree(renderer: Renderer) -> None:
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    forms: list[dict[str, Any]] = [
        {"messages": talk},
        {"messages": json.dumps(talk)},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}, talk[1]]},
        {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
        {"prompt": "a", "response": "b"},
        {"instruction": "a", "response": "b"},
        {"instruction": "a", "input": "", "output": "b"},
    ]
    found = [tokenise(read_conversation(row, "x"), renderer) for row in forms]
    assert all(f == found[0] for f in found)
    assert [is_conversation(row) for row in forms] == [True, False, True, True, True, True, True]
    told = read_conversation({"instruction": "Add", "input": "1 2", "output": "3"}, "x").messages
    assert [m.content for m in told] == ["Add\n\n1 2", "3"]


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"text": "a"}, "expected `messages`"),
    ({"messages": "no"}, "is a list of messages"),
    ({"messages": ["no"]}, "an object with a role"),
    ({"messages": [{"role": "wizard", "content": "a"}]}, "unknown role wizard"),
    ({"messages": [{"role": "user", "content": "a"}]}, "has an assistant turn"),
    ({"messages": [{"role": "assistant", "content": "a"}]}, "starts with a user"),
    ({"messages": [{"role": "user", "content": 3}, {"role": "assistant", "content": "a"}]}, "content is text"),
    ({"messages": [{"role": "user"}, {"role": "assistant", "tool_calls": [{"function": {}}]}]}, "a tool call has"),
    ({"messages": [{"role": "user"}, {"role": "assistant", "content": "a"}], "tools": "x"}, "tool schemas"),
]


@pytest.mark.parametrize(("row", "message"), BROKEN)
def test_broken_rows_are_named(row: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=f"^there, line 3: .*{message}"):
        read_conversation(row, "there, line 3")
