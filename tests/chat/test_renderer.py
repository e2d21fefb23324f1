"""Messages to ids: conversations grow by appending, and what was sampled is never tokenised again."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.chat import Renderer
from recollect.types import BadInput, Message

CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEXT = st.text(st.sampled_from("abmi hold 472.\n漢é"), max_size=30)
USER, TOOL = Message("user", "What does mira hold?"), Message("tool", "mira holds 472.")


def chatml(tokenizer: Any, named: bool = True, eos: str | None = "<|im_end|>") -> Any:
    """A copy with Qwen's template; its tokens are added as named special tokens, or only marked as special."""
    from tokenizers import AddedToken

    made = copy.deepcopy(tokenizer)
    tokens = [AddedToken(t, special=True, normalized=False) for t in ("<|im_start|>", "<|im_end|>")]
    if named:
        made.add_special_tokens({"additional_special_tokens": tokens})
    else:
        made.add_tokens(tokens, special_tokens=True)
    if eos:
        made.eos_token = eos
    made.chat_template = CHATML
    return made


@pytest.fixture(scope="module", params=["embedded", "chatml"])
def renderer(request: pytest.FixtureRequest, tokenizer: Any) -> Renderer:
    return Renderer(tokenizer if request.param == "embedded" else chatml(tokenizer))


def rendered(renderer: Renderer, messages: list[Message], generate: bool = True) -> list[int]:
    rows = [{"role": m.role, "content": m.content} for m in messages]
    ids = renderer.tokenizer.apply_chat_template(rows, add_generation_prompt=generate, tokenize=True)
    return list(ids if isinstance(ids, list) else ids["input_ids"])


MESSAGES = st.lists(st.builds(Message, st.sampled_from(["system", "user", "assistant"]), TEXT), min_size=1, max_size=5)


@settings(max_examples=40, deadline=None)
@given(messages=MESSAGES)
def test_a_prompt_is_the_tokenised_template(renderer: Renderer, messages: list[Message]) -> None:
    assert renderer.prompt(messages) == rendered(renderer, messages)


def test_templates_are_as_written(tokenizer: Any) -> None:
    shown = lambda r: r.tokenizer.decode(r.prompt([USER]))
    assert shown(Renderer(tokenizer)) == "<|user|>What does mira hold?<|end|><|assistant|>"
    assert (
        shown(Renderer(chatml(tokenizer)))
        == "<|im_start|>user\nWhat does mira hold?<|im_end|>\n<|im_start|>assistant\n"
    )


@settings(max_examples=40, deadline=None)
@given(start=MESSAGES, said=TEXT.map(lambda t: f"{t}x"), new=st.lists(st.builds(Message, st.just("user"), TEXT)))
def test_extending_equals_rendering_the_whole_conversation(
    renderer: Renderer, start: list[Message], said: str, new: list[Message]
) -> None:
    """When the sampled ids are what the text would tokenise to, both ways give the same ids."""
    end = renderer.stop_ids[-1]
    prompt, sampled = renderer.prompt(start), [*renderer.encode(said), end]
    whole = rendered(renderer, [*start, Message("assistant", said), *new])
    if whole[: len(prompt) + len(sampled)] != prompt + sampled:  # the text merges with what stands before it
        return
    assert renderer.extend(prompt, sampled, new) == whole


def test_the_comparison_with_the_whole_conversation_happens(renderer: Renderer) -> None:
    prompt, sampled = renderer.prompt([USER]), [*renderer.encode("mira holds 472."), renderer.stop_ids[-1]]
    whole = rendered(renderer, [USER, Message("assistant", "mira holds 472."), TOOL, USER])
    assert renderer.extend(prompt, sampled, [TOOL, USER]) == whole


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_sampled_ids_are_never_tokenised_again(renderer: Renderer, data: st.DataObject) -> None:
    """Any ids at all, most of them not what their own text tokenises to."""
    words = st.integers(6, 500)
    sampled = data.draw(st.lists(words, max_size=12))
    closed = data.draw(st.booleans())
    sampled += [renderer.stop_ids[-1]] if closed else []
    prompt = renderer.prompt([USER])
    longer = renderer.extend(prompt, sampled, [TOOL])
    assert longer[: len(prompt) + len(sampled)] == prompt + sampled
    tail = longer[len(prompt) + len(sampled) :]
    plain = rendered(renderer, [USER, Message("assistant", "x"), TOOL])
    mark = plain.index(renderer.stop_ids[-1], len(prompt))
    assert tail == plain[mark + 1 if closed else mark :]  # a turn that was cut is closed first


def test_ids_that_would_change_when_tokenised_again_stay(renderer: Renderer) -> None:
    spelt = [i for letter in "holds" for i in renderer.encode(letter)]
    assert renderer.encode(renderer.decode(spelt)) != spelt
    half = renderer.encode("漢")[:2]  # two of three bytes: decodes to a replacement character
    assert renderer.encode(renderer.decode(half)) != half
    prompt = renderer.prompt([USER])
    for sampled in (spelt, half):
        assert renderer.extend(prompt, sampled, [USER])[len(prompt) :][: len(sampled)] == sampled


def test_an_empty_turn_is_closed_too(renderer: Renderer) -> None:
    prompt = renderer.prompt([USER])
    assert renderer.extend(prompt, [], [TOOL]) == rendered(renderer, [USER, Message("assistant", ""), TOOL])


def test_going_on_without_a_message_opens_the_next_turn(renderer: Renderer) -> None:
    prompt, sampled = renderer.prompt([USER]), [*renderer.encode("x"), renderer.stop_ids[-1]]
    whole = rendered(renderer, [USER, Message("assistant", "x")])
    assert renderer.extend(prompt, sampled, []) == whole


def test_stop_ids(tokenizer: Any) -> None:
    assert Renderer(tokenizer).stop_ids == (tokenizer.eos_token_id,)
    both = chatml(tokenizer, eos=None)
    assert set(Renderer(both).stop_ids) == {tokenizer.eos_token_id, both.convert_tokens_to_ids("<|im_end|>")}


def test_stop_ids_know_special_tokens_that_have_no_name(tokenizer: Any) -> None:
    """Phi-3 and others: the end of a turn is an added special token, and eos is another one."""
    made = chatml(tokenizer, named=False, eos=None)
    assert made.convert_tokens_to_ids("<|im_end|>") in Renderer(made).stop_ids


def test_decode_leaves_special_tokens_out(renderer: Renderer) -> None:
    ids = [*renderer.encode("mira 漢 😀"), *renderer.stop_ids]
    assert renderer.decode(ids) == "mira 漢 😀"


def test_a_tokenizer_without_template_is_refused(tokenizer: Any) -> None:
    plain = copy.deepcopy(tokenizer)
    plain.chat_template = None
    with pytest.raises(BadInput, match="chat template"):
        Renderer(plain)


def test_earlier_turns_stay_whatever_the_template_would_make_of_them(tokenizer: Any) -> None:
    """A count of messages in front changes with every turn; a conversation that grows keeps what it had."""
    made = copy.deepcopy(tokenizer)
    made.chat_template = "{{ messages | length }}" + tokenizer.chat_template
    renderer = Renderer(made)
    prompt, sampled = renderer.prompt([USER]), [*renderer.encode("x"), renderer.end_id]
    tail = tokenizer.encode("<|user|>What does mira hold?<|end|><|assistant|>", add_special_tokens=False)
    assert renderer.extend(prompt, sampled, [USER]) == [*prompt, *sampled, *tail]


REASONING = (  # like Qwen3's own: reasoning before the last question is dropped, the last turn gets an empty one
    "{% set ns = namespace(last=-1) %}"
    "{% for m in messages %}{% if m['role'] == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}{% set text = m['content'] %}"
    "{% if m['role'] == 'assistant' %}"
    "{% if '</think>' in text %}{% set text = text.split('</think>')[-1] %}{% endif %}"
    "{% if loop.last and loop.index0 > ns.last %}{% set text = '<think>\n\n</think>\n\n' + text %}{% endif %}"
    "{% endif %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + text + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.mark.parametrize("follows", [TOOL, USER])
def test_a_template_that_strips_reasoning_keeps_the_sampled_reasoning(tokenizer: Any, follows: Message) -> None:
    made = chatml(tokenizer)
    made.chat_template = REASONING
    renderer = Renderer(made)
    assert made.decode([renderer.end_id]) == "<|im_end|>"
    prompt = renderer.prompt([USER])
    sampled = [*renderer.encode("<think>\nlook it up\n</think>\n\nmira"), renderer.end_id]
    longer = renderer.extend(prompt, sampled, [follows])
    assert longer[: len(prompt) + len(sampled)] == prompt + sampled
    shown = made.decode(longer[len(prompt) + len(sampled) :])
    assert shown == f"\n<|im_start|>{follows.role}\n{follows.content}<|im_end|>\n<|im_start|>assistant\n"


def test_a_template_that_leaves_turns_out_is_refused(tokenizer: Any) -> None:
    made = copy.deepcopy(tokenizer)
    made.chat_template = "{{ messages[-1]['content'] }}<|end|>"
    renderer = Renderer(made)
    with pytest.raises(BadInput, match="leaves out earlier turns"):
        renderer.extend(renderer.prompt([USER]), [5], [USER])
    made.chat_template = "{{ messages[0]['content'] }}<|end|>"
    with pytest.raises(BadInput, match="leaves out assistant turns"):
        Renderer(made)


def test_a_template_without_a_role_for_tools_gets_one_user_message(tokenizer: Any) -> None:
    made = copy.deepcopy(tokenizer)
    made.chat_template = (
        "{% for m in messages %}{% if m['role'] not in ('user', 'assistant') %}{{ raise_exception('no such role') }}"
        "{% endif %}{% endfor %}" + tokenizer.chat_template
    )
    renderer = Renderer(made)
    prompt, sampled = renderer.prompt([USER]), [*renderer.encode("x"), renderer.end_id]
    grown = renderer.extend(prompt, sampled, [TOOL, Message("tool", "and 1.")])
    shown = "<|user|>mira holds 472.\nand 1.<|end|><|assistant|>"
    assert tokenizer.decode(grown[len(prompt) + len(sampled) :]) == shown
    with pytest.raises(BadInput, match="no such role"):
        renderer.prompt([Message("system", "x"), USER])


def test_what_was_said_keeps_special_tokens_but_not_the_end(tokenizer: Any) -> None:
    renderer = Renderer(tokenizer)
    ids = [*renderer.encode("a<|tool|>b"), renderer.end_id]
    assert renderer.said(ids) == "a<|tool|>b"
    assert renderer.decode(ids) == "ab"


def test_half_characters_in_a_message_are_replaced(renderer: Renderer) -> None:
    assert "?" in renderer.decode(renderer.prompt([Message("user", "broken \ud800 text")]))


@pytest.mark.parametrize("token", ["<|endoftext|>", "<|end_of_text|>"])
def test_the_end_of_a_text_ends_a_turn_too(tokenizer: Any, token: str) -> None:
    """A small model that writes it after its answer would ramble on to its limit otherwise."""
    made = chatml(tokenizer)
    assert len(Renderer(made).stop_ids) == 1
    made.add_special_tokens({"additional_special_tokens": [token]}, replace_extra_special_tokens=False)
    renderer = Renderer(made)
    end, text = (made.convert_tokens_to_ids(t) for t in ("<|im_end|>", token))
    assert renderer.end_id == end
    assert set(renderer.stop_ids) == {end, text}
    prompt, said = renderer.prompt([USER]), renderer.encode("472")
    assert renderer.said([*said, text]) == "472"
    grown = renderer.extend(prompt, [*said, text], [TOOL])
    assert grown[len(prompt) + len(said) :][:2] == [text, end]  # and the turn is closed as the template does
