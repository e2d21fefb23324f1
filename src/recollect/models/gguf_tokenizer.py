"""The tokenizer inside a GGUF file, with text split into words as its vocabulary was learnt."""

from __future__ import annotations

from typing import Any

from recollect.models.gguf_header import GGUFHeader
from recollect.types import BadInput

DIGITS = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"}  # each digit is a word
GPT2 = {"gpt-2", "gpt2", "default", "mpt", "olmo", "jais", "phi-2"}  # words are those of GPT-2
NAMED = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}
BYTES = "gpt2"  # the kind of tokenizer whose vocabulary is learnt on words of bytes


def read_tokenizer(header: GGUFHeader) -> Any:
    """The tokenizer and its chat template, as the library reads them; words are split as the file says."""
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    if not header.metadata.get("tokenizer.ggml.tokens"):
        raise BadInput(f"{header.path} holds no tokenizer; take a file that has one")
    named = _named(header)
    found = AutoTokenizer.from_pretrained(
        str(header.path.parent), gguf_file=header.path.name, trust_remote_code=False, local_files_only=True
    )
    for name, token in named.items():  # versions of the library differ in which they take
        setattr(found, name, token)
    if _bytes(header) and header.metadata.get("tokenizer.ggml.pre") in DIGITS:
        found.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    if isinstance(window := header.about("context_length"), int) and window > 0:
        found.model_max_length = window
    return found


def _named(header: GGUFHeader) -> dict[str, str]:
    """The tokens that begin and end texts, as the file names them by number."""
    tokens, found = header.metadata["tokenizer.ggml.tokens"], {}
    for name, key in NAMED.items():
        number = header.metadata.get(f"tokenizer.ggml.{key}")
        if number is None:
            continue
        if not isinstance(number, int) or not 0 <= number < len(tokens):
            raise BadInput(f"{header.path} says tokenizer.ggml.{key}={number}, and it has {len(tokens):,} tokens")
        found[name] = str(tokens[number])
    return found


def splits_unknown(header: GGUFHeader) -> str:
    """How the file says that words are split, if neither the library nor we know it."""
    name = header.metadata.get("tokenizer.ggml.pre")
    if not _bytes(header) or not isinstance(name, str) or name in DIGITS | GPT2 | _library():
        return ""
    return name


def _bytes(header: GGUFHeader) -> bool:
    return header.metadata.get("tokenizer.ggml.model") == BYTES


def _library() -> set[str]:
    try:
        from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS
    except ImportError:
        return set()
    return set(GGUF_PRE_TOKENIZER_SPLITS)
