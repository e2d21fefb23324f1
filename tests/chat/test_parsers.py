"""From what a model says to the calls in it. Whatever it says, a parser answers with calls and does not raise."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.chat import TOOL_PARSERS, TOOL_WRITERS
from recollect.chat.text_calls import react_answer, search_r1_answer
from recollect.types import ToolCall


def schema(name: str, **types: str) -> dict[str, Any]:
    properties = {k: {"type": t} for k, t in types.items()}
    parameters = {"type": "object", "properties": properties, "required": list(types)}
    return {"type": "function", "function": {"name": name, "description": "", "parameters": parameters}}


SCHEMAS = [
    schema("calculator", expression="string"),
    schema("repeat", times="integer"),
    schema("between", low="number", high="number"),
    schema("clock"),
    schema("search", query="string"),
    schema("python_executor", code="string"),
    schema("lookup", query="string", top_k="integer"),
    schema("options", top_k="integer"),
]
SCHEMAS[-2]["function"]["parameters"]["required"] = ["query"]
SCHEMAS[-1]["function"]["parameters"]["required"] = []
SIX = ToolCall("calculator", {"expression": "2*3"})


def parsed(parser: str, text: str) -> list[ToolCall]:
    return TOOL_PARSERS[parser](text, SCHEMAS)


def right(parser: str, text: str) -> list[bool]:
    return [not c.error for c in parsed(parser, text)]


# ---- hermes ----


def test_hermes_reads_several_calls_between_words() -> None:
    text = 'One:<tool_call>{"name":"calculator","arguments":{"expression":"2*3"}}</tool_call> and\n'
    text += '<tool_call>\n{"name": "clock"}\n</tool_call>.'
    assert parsed("hermes", text) == [SIX, ToolCall("clock", {})]
    assert TOOL_PARSERS["qwen"] is TOOL_PARSERS["hermes"]
    assert parsed("hermes", "The answer is 6.") == []


def test_hermes_reads_arguments_that_hold_its_own_tags() -> None:
    tricky = ToolCall("calculator", {"expression": "</tool_call><tool_call>{}"})
    assert parsed("hermes", TOOL_WRITERS["hermes"]([tricky, SIX])) == [tricky, SIX]


@pytest.mark.parametrize(
    ("inside", "name", "words"),
    [
        ("{name: calculator}", "", "JSON"),
        ("", "", "JSON"),
        ('{"name": "calculator", "arguments": {"expression": ', "", "JSON"),
        ("[1]", "", '"name"'),
        ('{"arguments": {}}', "", '"name"'),
        ('{"name": 5}', "", '"name"'),
        ('{"name": "", "arguments": {}}', "", '"name"'),
        ('{"name": "calculator", "arguments": [1]}', "calculator", "JSON object"),
        ('{"name": "calculator", "arguments": "2*3"}', "calculator", "JSON object"),
        ("[" * 100_000, "", "JSON"),
        ('{"name": "calculator"} {}', "", "</tool_call>"),
    ],
)
def test_hermes_says_what_is_wrong_and_goes_on(inside: str, name: str, words: str) -> None:
    good = TOOL_WRITERS["hermes"]([SIX])
    wrong, after = parsed("hermes", f"<tool_call>{inside}</tool_call>{good}")
    assert (wrong.name, wrong.arguments, after) == (name, None, SIX)
    assert words in wrong.error


def test_hermes_with_a_call_left_open() -> None:
    good = TOOL_WRITERS["hermes"]([SIX])
    assert right("hermes", good.removesuffix("</tool_call>")) == [False]
    assert right("hermes", "<tool_call>" + good) == [False, True]
    assert right("hermes", good + "<tool_call>") == [True, False]
    assert right("hermes", "</tool_call>") == []


def test_arguments_as_a_json_text() -> None:
    text = json.dumps({"name": "calculator", "arguments": '{"expression": "2*3"}'})
    assert parsed("hermes", f"<tool_call>{text}</tool_call>") == [SIX]


# ---- llama ----


@pytest.mark.parametrize("start", ["", "<|python_tag|>", " \n"])
def test_llama_reads_the_whole_reply(start: str) -> None:
    text = '{"name": "calculator", "parameters": {"expression": "2*3"}}; {"name": "clock", "parameters": {}}'
    assert parsed("llama", start + text) == [SIX, ToolCall("clock", {})]
    assert parsed("llama", start + text.replace("; ", "\n")) == [SIX, ToolCall("clock", {})]


def test_llama_leaves_other_text_alone() -> None:
    for text in ("Six.", '{"result": 6}', "{6}", "", 'Use {"name": "clock"}', "[1]"):
        assert parsed("llama", text) == []


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "calculator", "parameters": ',
        '{"name": "calculator", "parameters": 5}',
        '{"name": 5}',
        "<|python_tag|>calculator(2*3)",
        "<|python_tag|>",
        "<|python_tag|>{}",
        '<|python_tag|>{"na',
    ],
)
def test_llama_says_what_is_wrong(text: str) -> None:
    assert right("llama", text) == [False]
    assert right("llama", f'{{"name": "clock"}};{text.removeprefix("<|python_tag|>") or "{"}') == [True, False]


# ---- react ----


@pytest.mark.parametrize(
    "text",
    [
        'Thought: hm\nAction: calculator\nAction Input: {"expression": "2*3"}',
        "Thought: hm\nAction: calculator\nInput: 2*3\nObservation:",
        'action: `calculator`\naction input: "2*3"\n',
        '**Action:** calculator\n**Action Input:** ```json\n{"expression": "2*3"}\n```',
        "Thought: Action is needed\nAction: calculator[2*3]",
    ],
)
def test_react_reads_actions(text: str) -> None:
    assert parsed("react", text) == [SIX]
    assert react_answer(text) is None


def test_react_gives_bare_text_to_the_only_parameter() -> None:
    call = lambda name, given: parsed("react", f"Action: {name}\nAction Input: {given}")[0]
    assert call("repeat", "3") == ToolCall("repeat", {"times": 3})
    assert call("calculator", "12") == ToolCall("calculator", {"expression": "12"})
    assert call("clock", "") == parsed("react", "Action: clock")[0] == ToolCall("clock", {})
    assert call("between", "1, 2").error
    assert call("lookup", "mira") == ToolCall("lookup", {"query": "mira"})  # the other parameter may be left out
    assert parsed("react", "Action: options") == [ToolCall("options", {})]
    assert call("nowhere", "1, 2") == ToolCall("nowhere", {})  # the toolbox says that there is no such tool
    assert parsed("react", "Action: calculator")[0].error
    assert parsed("react", "Action Input: 2*3")[0].error


def test_react_keeps_lines_of_an_input() -> None:
    (call,) = parsed("react", "Action: python_executor\nAction Input: a = 1\nprint(a)\nThought: then")
    assert call.arguments == {"code": "a = 1\nprint(a)"}


def test_react_answers() -> None:
    assert react_answer("Thought: done\nFinal Answer: 6\nmiles") == "6\nmiles"
    assert react_answer("Six.") is None
    both = "Action: clock\nAction Input: {}\nFinal Answer: 6"
    assert react_answer(both) is None  # it has not seen what the action says
    assert parsed("react", both) == [ToolCall("clock", {})]
    assert parsed("react", "Final Answer: 6\nAction: clock") == []


def test_react_with_several_actions() -> None:
    text = TOOL_WRITERS["react"]([SIX, ToolCall("clock", {}), SIX])
    assert parsed("react", text) == [SIX, ToolCall("clock", {}), SIX]
    assert parsed("react", f"Action: clock\n{text}")[0] == ToolCall("clock", {})


# ---- code ----


def test_code_reads_the_one_block() -> None:
    text = "First\n```python\nfor i in (1, 2):\n    print(i)\n```\nand ```x``` and\n```json\n{}\n```"
    assert parsed("code", text) == [ToolCall("python_executor", {"code": "for i in (1, 2):\n    print(i)\n"})]
    assert parsed("code", "no program, only `code`\n```text\nx\n```") == []
    only = [schema("code_interpreter", program="string")]
    assert TOOL_PARSERS["code"]("```py\n1\n```", only) == [ToolCall("code_interpreter", {"program": "1\n"})]


def test_code_refuses_two_blocks_and_open_ones() -> None:
    block = "```python\n1\n```\n"
    assert "2" in parsed("code", block + block)[0].error
    assert "closed" in parsed("code", "```python\n1")[0].error
    assert right("code", block + "```python\n1") == [False]


# ---- search ----


def test_search_r1() -> None:
    assert parsed("search_r1", "<think>x</think><search> who is mira </search>") == [
        ToolCall("search", {"query": "who is mira"})
    ]
    assert parsed("search_r1", "mira") == []
    for wrong in ("<search>  </search>", "<search>mira", "mira</search>", "<search>a<search>b</search>"):
        assert right("search_r1", wrong) == [False]
    assert TOOL_PARSERS["search_r1"]("<search>a</search>", [schema("google_search", q="string")]) == [
        ToolCall("google_search", {"q": "a"})
    ]


def test_search_r1_answers() -> None:
    assert search_r1_answer("so <answer> 6\n</answer>") == "6"
    assert search_r1_answer("so <answer>6") is None
    assert search_r1_answer("<search>a</search><answer>6</answer>") is None  # it has not seen what was found


# ---- all of them ----

PIECES = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "{", "}", "[", '"name"', ":", '"clock"', '"arguments"', '"', "\\", "\\ud800"),
        *("<|python_tag|>", ";", "Action:", "Action Input:", "Final Answer:", "\n", "clock", "calculator[", "]"),
        *("```python\n", "```", "<search>", "</search>", "<answer>", "</answer>", "1e999", "NaN", "9" * 5000, " ", "é"),
    ]
)


@settings(max_examples=400, deadline=None)
@given(parser=st.sampled_from(sorted(TOOL_PARSERS)), pieces=st.lists(PIECES, max_size=14))
def test_no_text_makes_a_parser_raise(parser: str, pieces: list[str]) -> None:
    text = "".join(pieces)
    for call in parsed(parser, text):
        assert call.error or isinstance(call.arguments, dict)
        assert call.error or call.name
        assert not (call.error and call.arguments)
    react_answer(text)
    search_r1_answer(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ANY_CALL = st.builds(
    ToolCall,
    st.text(st.sampled_from("abc_9"), min_size=1, max_size=8),
    st.dictionaries(st.text(max_size=8), VALUES, max_size=3),
)


@settings(max_examples=150, deadline=None)
@given(parser=st.sampled_from(["hermes", "llama"]), calls=st.lists(ANY_CALL, min_size=1, max_size=4))
def test_what_is_written_is_read(parser: str, calls: list[ToolCall]) -> None:
    assert parsed(parser, TOOL_WRITERS[parser](calls)) == calls


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.text(st.characters(categories=["L", "N", "Zs"]), min_size=1).map(str.strip), max_size=3))
def test_searches_that_are_written_are_read(texts: list[str]) -> None:
    calls = [ToolCall("search", {"query": t}) for t in texts if t]
    assert parsed("search_r1", TOOL_WRITERS["search_r1"](calls)) == calls


LINE_TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"properties": properties, "required": required}}}
    for name, properties, required in (
        ("search", {"query": {"type": "string"}}, ["query"]),
        ("list_files", {"path": {"type": "string"}}, []),
        ("edit", {"path": {"type": "string"}, "new": {"type": "string"}}, ["path", "new"]),
    )
]


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("search: a b: c", [ToolCall("search", {"query": "a b: c"})]),
        ("I think.\nsearch: a\n  b\nlist_files", [ToolCall("search", {"query": "a\n  b"}), ToolCall("list_files", {})]),
        ('search: {"query": "x"}', [ToolCall("search", {"query": "x"})]),
        ('search: {"x": 1}', [ToolCall("search", {"query": '{"x": 1}'})]),
        ("search: 12", [ToolCall("search", {"query": "12"})]),
        ("search: ```\ncode\n```", [ToolCall("search", {"query": "code"})]),
        ("list_files: src", [ToolCall("list_files", {"path": "src"})]),
        ('edit: {"path": "a", "new": "b"}', [ToolCall("edit", {"path": "a", "new": "b"})]),
        ("research: x", []),
        ("we search: x", []),
        ("", []),
    ],
)
def test_lines(text: str, calls: list[ToolCall]) -> None:
    assert TOOL_PARSERS["line"](text, LINE_TOOLS) == calls


@pytest.mark.parametrize("text", ["search:", "search", "edit: a"])
def test_lines_that_lack_something_say_so(text: str) -> None:
    (call,) = TOOL_PARSERS["line"](text, LINE_TOOLS)
    assert call.arguments is None
    assert call.error
