"""Stop strings: decoding the end of a text must say the same as decoding all of it, for every kind of tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models

from recollect.engine.stops import ends
from recollect.models.tiny import build_tokenizer

Decode = Callable[[Sequence[int]], str]


@cache
def byte_level() -> tuple[int, Decode]:
    """The embedded tokenizer: a character may be several tokens; some tokens are special and not shown."""
    tokenizer = build_tokenizer()
    return len(tokenizer), lambda ids: str(tokenizer.decode(list(ids), skip_special_tokens=True))


@cache
def byte_fallback() -> tuple[int, Decode]:
    """Like Llama 2: words with ▁ for a space, bytes for the rest; the first space of a text is left out."""
    words = ["<unk>", *(f"<0x{i:02X}>" for i in range(256)), "▁", "▁a", "a", "b", "▁stop", "Obs", "ervation", ":", "é"]
    core = Tokenizer(models.BPE({w: i for i, w in enumerate(words)}, [], byte_fallback=True, unk_token="<unk>"))
    core.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    core.add_special_tokens([AddedToken("<s>", special=True)])
    return core.get_vocab_size(), lambda ids: str(core.decode(list(ids), skip_special_tokens=True))


def check_agreement(ids: Sequence[int], stops: Sequence[str], decode: Decode) -> None:
    """Token by token, as the engine asks, up to the first stop."""
    for n in range(1, len(ids) + 1):
        whole = any(stop in decode(ids[:n]) for stop in stops)
        assert ends(ids[:n], stops, decode) == whole
        if whole:
            return


TEXT = st.text(st.sampled_from("a é你🙂:\n▁b\ufffd"), min_size=1, max_size=4)


@settings(deadline=None)
@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=60), st.lists(TEXT, min_size=1, max_size=3), st.booleans())
def test_any_ids(numbers: list[int], stops: list[str], fallback: bool) -> None:
    size, decode = byte_fallback() if fallback else byte_level()
    check_agreement([n % size for n in numbers], stops, decode)


@settings(deadline=None)
@given(st.text(st.sampled_from("a é你🙂\n"), max_size=60), TEXT, st.data())
def test_texts_that_hold_the_stop(before: str, stop: str, data: st.DataObject) -> None:
    """The stop string stands in the text, its bytes cut into tokens anywhere, so that it begins inside a token too."""
    tokenizer = build_tokenizer_once()
    ids = [i for ch in (before + stop + "é").encode() for i in byte_ids()[ch]]
    joined = tokenizer.encode(before + stop + "a", add_special_tokens=False)
    check_agreement(data.draw(st.sampled_from([ids, joined])), [stop], byte_level()[1])


@cache
def build_tokenizer_once() -> object:
    return build_tokenizer()


@cache
def byte_ids() -> dict[int, list[int]]:
    """The single-byte token of every byte."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    tokenizer = build_tokenizer()
    return {b: [tokenizer.convert_tokens_to_ids(c)] for b, c in bytes_to_unicode().items()}


def test_long_texts_are_not_decoded_whole() -> None:
    decode = byte_level()[1]
    tokenizer = build_tokenizer()
    ids = tokenizer.encode("mira holds 472. " * 200, add_special_tokens=False)
    longest = 0

    def counted(part: Sequence[int]) -> str:
        nonlocal longest
        longest = max(longest, len(part))
        return decode(part)

    assert not ends(ids, ["Observation:"], counted)
    assert longest < 50
    assert ends([*ids, *tokenizer.encode("Observation:")], ["Observation:"], counted)
