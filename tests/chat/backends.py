"""Small tokenizers that are built as those of large models are: what a token may hold differs between them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from recollect.models.load import load_tokenizer

SPECIAL = ["<unk>", "<|end|>"]
CORPUS = [
    "Mira holds 472. Kolu doesn't hold 118,902!\n\nIt's they've 'said': naïve 漢字 été 😀.\n",
    "the memory of the document   holds\tmany (small) names; and 2024-01-31.\r\n",
] * 40
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _trained(core: Tokenizer, trainer: Any) -> Tokenizer:
    core.train_from_iterator(CORPUS, trainer)
    core.add_special_tokens(SPECIAL)
    return core


def _bpe(**settings: Any) -> Any:
    return trainers.BpeTrainer(vocab_size=500, special_tokens=SPECIAL, show_progress=False, **settings)


def _byte_level(pattern: str | None, trim: bool = False) -> Tokenizer:
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    if pattern is not None:
        plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        core.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), plain])
        core.normalizer = normalizers.NFC()
    core.post_processor = processors.ByteLevel(trim_offsets=trim)
    core.decoder = decoders.ByteLevel()
    return _trained(core, _bpe(initial_alphabet=ALPHABET))


def _sentence_pieces(scheme: str, split: bool = True) -> Tokenizer:
    core = Tokenizer(models.Unigram())
    core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    return _trained(
        core,
        trainers.UnigramTrainer(vocab_size=150, special_tokens=SPECIAL, unk_token=SPECIAL[0], show_progress=False),
    )


def _unsplit() -> Tokenizer:
    """As Llama 2's: no words at all, and a mark before the text."""
    core = Tokenizer(models.BPE(unk_token=SPECIAL[0], fuse_unk=True))
    core.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return _trained(core, _bpe())


def _words() -> Tokenizer:
    core = Tokenizer(models.WordLevel(unk_token=SPECIAL[0]))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _trained(core, trainers.WordLevelTrainer(special_tokens=SPECIAL, show_progress=False))


def _word_pieces() -> Tokenizer:
    core = Tokenizer(models.WordPiece(unk_token=SPECIAL[0]))
    core.normalizer, core.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    core.post_processor = processors.TemplateProcessing(single="<|end|> $A", special_tokens=[("<|end|>", 1)])
    return _trained(core, trainers.WordPieceTrainer(vocab_size=300, special_tokens=SPECIAL, show_progress=False))


_MAKERS: dict[str, Callable[[], Tokenizer]] = {
    "tiny": lambda: load_tokenizer("tiny").backend_tokenizer,
    "gpt2": lambda: _byte_level(None),
    "qwen": lambda: _byte_level(QWEN),
    "llama3": lambda: _byte_level(QWEN.replace(r"|\p{N}|", r"|\p{N}{1,3}|"), trim=True),
    "metaspace_always": lambda: _sentence_pieces("always"),
    "metaspace_first": lambda: _sentence_pieces("first"),
    "metaspace_unsplit": lambda: _sentence_pieces("never", split=False),
    "llama2": _unsplit,
    "words": _words,
    "bert": _word_pieces,
}
NAMES = tuple(_MAKERS)


@cache
def backend(name: str) -> Tokenizer:
    """A tokenizer by name, made once."""
    return _MAKERS[name]()


def ids_of(core: Tokenizer, text: str) -> list[int]:
    """What it makes of a text by itself."""
    return list(core.encode(text, add_special_tokens=False).ids)


class Counting:
    """A backend that notes how many characters it is asked for."""

    def __init__(self, core: Any) -> None:
        self.core, self.asked = core, 0
        self.model, self.normalizer, self.pre_tokenizer = core.model, core.normalizer, core.pre_tokenizer

    def encode_batch(self, texts: list[str], add_special_tokens: bool) -> Any:
        self.asked += sum(map(len, texts))
        return self.core.encode_batch(texts, add_special_tokens=add_special_tokens)

    def encode_batch_fast(self, texts: list[str], add_special_tokens: bool) -> Any:
        self.asked += sum(map(len, texts))
        return self.core.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
