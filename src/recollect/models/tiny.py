"""The embedded model: a small tokenizer and a tiny Qwen3 configuration, saved as a plain Hugging Face folder.

The tokenizer is a byte-level Unigram, so any text round-trips, and syllables, digits and the words of the made-up
documents are single tokens. A word keeps its tokens wherever it is copied to, as long as a space stands before it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from recollect.data.names import SYLLABLES
from recollect.types import BadInput

TINY = Path(__file__).parent / "tiny"
SPECIALS = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
WORDS = (
    *[
        "Question",
        "Section",
        "Memory",
        "Answer",
        "What",
        "does",
        "hold",
        "holds",
        "the",
        "one",
        "trusts",
        "none",
        "boxed",
        "Write",
        "what",
        "matters",
    ],
    *[
        "is",
        "of",
        "and",
        "to",
        "in",
        "a",
        "that",
        "it",
        "for",
        "on",
        "with",
        "as",
        "was",
        "at",
        "by",
        "from",
        "he",
        "she",
        "they",
        "who",
        "which",
        "when",
        "where",
        "how",
    ],
    *[
        "number",
        "total",
        "call",
        "tool",
        "result",
        "name",
        "value",
        "text",
        "read",
        "find",
        "note",
        "notes",
        "title",
        "list",
        "add",
        "update",
        "delete",
    ],
)
TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def build_tokenizer() -> Any:
    """The embedded tokenizer, made from nothing."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    space = "Ġ"  # how byte-level tokenizers write a space
    pieces = [*SYLLABLES, *"0123456789", *WORDS]
    pieces = list(dict.fromkeys([*pieces, *(space + p for p in pieces)]))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = [(s, 0.0) for s in SPECIALS]
    vocab += [(c, -12.0) for c in alphabet if c not in pieces]
    vocab += [(p, -4.0) for p in pieces]
    core = Tokenizer(models.Unigram(vocab, unk_id=0, byte_fallback=False))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIALS])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|end|>",
        pad_token="<|pad|>",
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


SCRATCH = {"scratch": (256, 4, 4), "scratch_small": (128, 4, 2)}  # name → width, layers, heads


def tiny_config(tokenizer: Any, width: int = 256, layers: int = 4, heads: int = 4) -> Any:
    """The embedded model's shape."""
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=-(-len(tokenizer) // 16) * 16,
        hidden_size=width,
        intermediate_size=width * 11 // 4 // 16 * 16,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=2,
        head_dim=width // heads,
        max_position_embeddings=16384,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )


def save_scratch(out: Path, seed: int, width: int = 256, layers: int = 4, heads: int = 4) -> None:
    """Write a randomly initialised embedded model and its tokenizer to a folder."""
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer = build_tokenizer()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(tiny_config(tokenizer, width, layers, heads))
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def save_tiny(out: Path) -> None:
    """Copy the embedded base model to a folder that transformers and vLLM load."""
    if out.exists() and any(out.iterdir()):
        raise BadInput(f"{out} is not empty; name a new folder")
    out.mkdir(parents=True, exist_ok=True)
    for file in sorted(TINY.iterdir()):
        shutil.copyfile(file, out / file.name)
