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


def test_a_template_that_rewrites_earlier_turns_is_refused(tokenizer: Any) -> None:
    made = copy.deepcopy(tokenizer)
    made.chat_template = "{{ messages | length }}" + tokenizer.chat_template
    renderer = Renderer(made)
    with pytest.raises(BadInput, match="rewrites"):
        renderer.extend(renderer.prompt([USER]), [5], [USER])
