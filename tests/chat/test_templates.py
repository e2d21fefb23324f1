"""Named chat templates: the format of each family, tools included, and conversations that grow in it."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.chat import TEMPLATES, TOOL_PARSERS, TOOL_WRITERS, Renderer, use_template
from recollect.images.image_ids import FIRST, image_of, spans
from recollect.images.patches import Patches
from recollect.types import IMAGE_MARK, BadInput, Message, ToolCall
from tests.chat.tokenizers_with_markers import family
from tests.seeing import PATCHES, pictures

CALCULATOR = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Works out 'x' & \"y\".",
        "parameters": {
            "type": "object",
            "properties": {"expression": {"type": "string"}},
            "required": ["expression"],
        },
    },
}
CALLS = [ToolCall("calculator", {"expression": "2*3"}), ToolCall("calculator", {"expression": 'é "\\ </b>; {}'})]
NAMES = sorted(TEMPLATES)


@pytest.fixture(scope="module", params=NAMES)
def renderer(request: pytest.FixtureRequest, tokenizer: Any) -> Renderer:
    return Renderer(family(tokenizer, request.param))


def whole(renderer: Renderer, messages: list[dict[str, Any]], generate: bool = False, **more: Any) -> str:
    text = renderer.tokenizer.apply_chat_template(messages, add_generation_prompt=generate, tokenize=False, **more)
    return str(text)


TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "2*3?"},
    {"role": "assistant", "content": "Six."},
    {"role": "user", "content": "And?"},
]
EXPECTED = {
    "qwen2.5": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2*3?<|im_end|>\n"
    "<|im_start|>assistant\nSix.<|im_end|>\n<|im_start|>user\nAnd?<|im_end|>\n<|im_start|>assistant\n",
    "llama3": "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\n2*3?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nSix.<|eot_id|>"
    "<|start_header_id|>user<|end_header_id|>\n\nAnd?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "plain": "System:\nBe brief.\n\nUser:\n2*3?\n\nAssistant:\nSix.<|end|>\n\nUser:\nAnd?\n\nAssistant:\n",
}
EXPECTED |= dict.fromkeys(("qwen3", "chatml", "qwen2.5-vl", "chatml-vl"), EXPECTED["qwen2.5"])


@pytest.mark.parametrize("name", NAMES)
def test_the_format_of_a_conversation(name: str, tokenizer: Any) -> None:
    assert whole(Renderer(family(tokenizer, name)), TALK, True) == EXPECTED[name]


def test_only_qwen25_has_a_system_message_of_its_own(tokenizer: Any) -> None:
    shown = {n: "helpful" in whole(Renderer(family(tokenizer, n)), TALK[1:]) for n in NAMES}
    assert [n for n, has in shown.items() if has] == ["qwen2.5", "qwen2.5-vl"]


RESULTS = {
    "qwen2.5": "<|im_start|>user\n<tool_response>\n6\n</tool_response>\n"
    "<tool_response>\n7\n</tool_response><|im_end|>\n",
    "chatml": "<|im_start|>tool\n6<|im_end|>\n<|im_start|>tool\n7<|im_end|>\n",
    "llama3": "<|start_header_id|>ipython<|end_header_id|>\n\n6<|eot_id|>"
    "<|start_header_id|>ipython<|end_header_id|>\n\n7<|eot_id|>",
    "plain": "Tool:\n6\n\nTool:\n7\n\n",
}
RESULTS |= {"qwen3": RESULTS["qwen2.5"], "qwen2.5-vl": RESULTS["qwen2.5"], "chatml-vl": RESULTS["chatml"]}


@pytest.mark.parametrize("name", NAMES)
def test_tool_results_between_turns(name: str, tokenizer: Any) -> None:
    renderer = Renderer(family(tokenizer, name))
    results = [{"role": "tool", "content": "6"}, {"role": "tool", "content": "7"}]
    text = whole(renderer, [*TALK[:3], *results, *TALK[2:]])
    before, after = text.split(RESULTS[name])
    assert before == whole(renderer, TALK[:3])
    assert after == whole(renderer, TALK[1:])[len(whole(renderer, TALK[1:2])) :]


def test_tool_schemas_reach_the_prompt_as_json(renderer: Renderer) -> None:
    assert renderer.shows_tools
    for messages in ([Message("user", "2*3?")], [Message("system", "Be brief."), Message("user", "2*3?")]):
        text = renderer.tokenizer.decode(renderer.prompt(messages, [CALCULATOR, CALCULATOR]))
        rows = [json.loads(line) for line in text.splitlines() if line.startswith('{"type"')]
        assert rows == [CALCULATOR, CALCULATOR]
        assert text.index("calculator") < text.index("2*3?")
        assert ("Be brief." in text) == (len(messages) == 2)
    without = renderer.tokenizer.decode(renderer.prompt([Message("user", "2*3?")]))
    assert "call" not in without


@pytest.mark.parametrize("content", ["", "Let me see."])
@pytest.mark.parametrize("written", [dict, str])
def test_calls_that_a_template_writes_are_read_by_its_parser(renderer: Renderer, content: str, written: type) -> None:
    """The structured calls of stored conversations and what a model says are one syntax."""
    arguments = lambda c: c.arguments if written is dict else json.dumps(c.arguments)
    calls = [{"type": "function", "function": {"name": c.name, "arguments": arguments(c)}} for c in CALLS]
    start = whole(renderer, TALK[1:2], True)
    text = whole(renderer, [TALK[1], {"role": "assistant", "content": content, "tool_calls": calls}])
    ids = renderer.encode(text)[len(renderer.encode(start)) :]
    if renderer.end_id in ids:
        ids = ids[: ids.index(renderer.end_id) + 1]
    assert TOOL_PARSERS[renderer.parser](renderer.said(ids), [CALCULATOR]) == CALLS


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("parser", sorted(TOOL_PARSERS))
def test_every_syntax_survives_every_tokenizer(name: str, parser: str, tokenizer: Any) -> None:
    renderer = Renderer(family(tokenizer, name))
    tool = {"code": "python_executor", "search_r1": "search"}.get(parser, "calculator")
    key = {"code": "code", "search_r1": "query"}.get(parser, "expression")
    calls = [ToolCall(tool, {key: "print('2*3 é')\n"} if parser == "code" else {key: "2*3 é"})]
    text = TOOL_WRITERS[parser](calls)
    spec = {"type": "object", "properties": {key: {"type": "string"}}, "required": [key]}
    known = [{"type": "function", "function": {"name": tool, "parameters": spec}}]
    said = renderer.said([*renderer.encode(text), renderer.end_id])
    assert (
        TOOL_PARSERS[parser](said, known if parser in ("line", "compact") else []) == calls
    )  # a line is known by its tool alone


def test_the_parser_follows_the_template(tokenizer: Any) -> None:
    found = {n: Renderer(family(tokenizer, n)).parser for n in NAMES}
    assert found == {name: "llama" if name == "llama3" else "hermes" for name in NAMES}
    assert Renderer(tokenizer).parser == "hermes"  # a template that knows no tools
    assert not Renderer(tokenizer).shows_tools


@pytest.mark.parametrize("name", ["qwen2.5-vl", "chatml-vl"])
def test_images_stand_between_texts_and_users_cannot_write_them(name: str, tokenizer: Any) -> None:
    made = family(tokenizer, name)
    renderer = Renderer(made, Patches(made.convert_tokens_to_ids("<|image_pad|>"), PATCHES.settings))
    a, b, _ = pictures()
    said = Message("user", f"One {IMAGE_MARK} and <|image_pad|> {IMAGE_MARK}", (a, b))
    ids = np.array(renderer.prompt([Message("system", "See."), said]))
    assert [image_of(s.base) for s in spans(ids)] == [a, b]
    assert renderer.decode(ids.tolist()).count("image_pad") == 1
    grown = renderer.extend(ids.tolist(), renderer.reply("Yes."), [Message("tool", f"{IMAGE_MARK}x", (a,))])
    assert grown[: len(ids)] == ids.tolist()
    assert [image_of(s.base) for s in spans(np.array(grown))] == [a, b, a]
    left = renderer.without_images(grown, 2)
    assert [image_of(s.base) for s in spans(np.array(left))] == [a]
    assert made.decode([i for i in left if i < FIRST]).count("<|vision_start|>") == 1


def test_a_template_that_shows_no_images_is_refused(tokenizer: Any) -> None:
    made = family(tokenizer, "qwen2.5-vl")
    made.chat_template = TEMPLATES["llama3"]
    image = pictures()[0]
    with pytest.raises(BadInput):
        Renderer(made, PATCHES).prompt([Message("user", IMAGE_MARK, (image,))])
    with pytest.raises(BadInput, match="reads text alone"):
        Renderer(family(tokenizer, "qwen2.5-vl")).prompt([Message("user", IMAGE_MARK, (image,))])


def test_the_python_tag_is_seen_and_both_ends_of_a_turn_stop(tokenizer: Any) -> None:
    renderer = Renderer(family(tokenizer, "llama3"))
    token = renderer.tokenizer.convert_tokens_to_ids
    assert renderer.stop_ids == (token("<|eot_id|>"), token("<|eom_id|>"))
    ids = [*renderer.encode('<|python_tag|>{"name": "f", "parameters": {}}'), token("<|eom_id|>")]
    assert TOOL_PARSERS["llama"](renderer.said(ids), []) == [ToolCall("f", {})]
    tail = renderer.extend([1], ids, [Message("tool", "6")])[1 + len(ids) :]
    assert renderer.tokenizer.decode(tail).startswith("<|start_header_id|>ipython")  # no second end


TEXT = st.text(st.sampled_from("ab 4.\n漢é<>|"), max_size=20)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    turns=st.lists(st.tuples(TEXT.map(lambda t: f"{t}x"), st.lists(TEXT, min_size=1, max_size=3)), max_size=3),
)
def test_a_conversation_that_grew_is_the_rendered_one(tokenizer: Any, name: str, turns: Any) -> None:
    """With turns that are what their text tokenises to, growing and rendering the whole give the same text."""
    renderer = Renderer(family(tokenizer, name))
    messages = [Message("user", "2*3?")]
    ids = renderer.prompt(messages, [CALCULATOR])
    for said, results in turns:
        observed = [Message("tool", r) for r in results]
        ids = renderer.extend(ids, [*renderer.encode(said), renderer.end_id], observed, [CALCULATOR])
        messages += [Message("assistant", said), *observed]
    rows = [{"role": m.role, "content": m.content} for m in messages]
    assert renderer.tokenizer.decode(ids) == whole(renderer, rows, True, tools=[CALCULATOR])


def test_a_template_whose_marks_are_no_tokens_still_works(tokenizer: Any) -> None:
    """The embedded tokenizer under Qwen's template: marks are spelt out, and turns end with its own end token."""
    import copy

    renderer = Renderer(use_template(copy.deepcopy(tokenizer), "qwen2.5"))
    assert renderer.end_id == tokenizer.eos_token_id
    prompt, sampled = renderer.prompt([Message("user", "a")]), [*renderer.encode("b"), renderer.end_id]
    tail = renderer.extend(prompt, sampled, [Message("tool", "c")])[len(prompt) + len(sampled) :]
    assert tokenizer.decode(tail).startswith("<|im_end|>\n<|im_start|>user\n<tool_response>\nc")


def test_without_a_name_the_tokenizer_keeps_its_own(tokenizer: Any) -> None:
    assert use_template(tokenizer, None).chat_template == tokenizer.chat_template


def test_a_tokenizer_of_the_family_keeps_its_own(tokenizer: Any) -> None:
    own = family(tokenizer, "qwen2.5")
    own.chat_template = "{{ '<|im_start|>' }}" + TEMPLATES["plain"]
    kept = own.chat_template
    assert use_template(own, "qwen2.5").chat_template == kept
    assert use_template(own, "qwen3").chat_template == kept
    assert use_template(own, "chatml").chat_template == TEMPLATES["chatml"]
    assert use_template(own, "llama3").chat_template == TEMPLATES["llama3"]


@pytest.mark.parametrize("setting", ["truncation", "padding"])
def test_prompts_are_neither_cut_nor_filled_as_a_tokenizer_file_says(setting: str, tokenizer: Any) -> None:
    set_so = copy.deepcopy(tokenizer)
    if setting == "truncation":
        set_so.backend_tokenizer.enable_truncation(100)
    else:
        set_so.backend_tokenizer.enable_padding(pad_to_multiple_of=64)
    ours, messages = Renderer(set_so), [Message("user", "mira holds 472. " * 200)]
    assert ours.prompt(messages) == Renderer(tokenizer).prompt(messages)
    assert len(ours.spans(messages[0].content)) == len(ours.encode(messages[0].content))
