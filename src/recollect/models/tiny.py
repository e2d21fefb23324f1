"""The embedded model: a small tokenizer and a tiny Qwen3 configuration, saved as a plain Hugging Face folder.

The tokenizer is a byte-level Unigram, so any text round-trips, and syllables, digits and the words of the made-up
documents are single tokens. A word keeps its tokens wherever it is copied to, as long as a space stands before it.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.files.output import refuse_unwritable, writing
from recollect.tasks.names import SYLLABLES
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
TOOL_WORDS = (  # what tool calls are made of, for models that learn them from nothing
    *(
        '"',
        '{"',
        '":',
        '",',
        '"}}',
        '"}',
        "([",
        "]))",
        "name",
        "arguments",
        "calculator",
        "expression",
        "query",
        "search",
    ),
    *(
        "plus",
        "minus",
        "times",
        "largest",
        "smallest",
        "sum",
        "max",
        "min",
        "print",
        "python",
        "```",
        "python_executor",
    ),
    *("Thought", "Action", "Input", "Observation", "Final"),
)
TOOL_MARKS = ("<tool_call>", "</tool_call>")
TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


TOOLS_TEMPLATE = (  # shows tools in the shortest way: calculator(expression)
    "{% if tools %}<|system|>{% for t in tools %}{% if not loop.first %}{{ '\n' }}{% endif %}"
    "{{ t['function']['name'] + '(' + t['function']['parameters']['properties'] | join(', ') + ')' }}"
    "{% endfor %}<|end|>{% endif %}" + TEMPLATE
)


def build_tokenizer(tools: bool = False) -> Any:
    """The embedded tokenizer, made from nothing; with ``tools``, the pieces of tool calls are tokens too."""
    pieces = [*SYLLABLES, *"0123456789", *WORDS, *(TOOL_WORDS if tools else ())]
    return byte_tokenizer(SPECIALS, pieces, TOOL_MARKS if tools else (), TOOLS_TEMPLATE if tools else TEMPLATE)


def byte_tokenizer(
    specials: Sequence[str], pieces: Sequence[str], marks: Sequence[str], template: str, words: bool = True
) -> Any:
    """A tokenizer of bytes and some pieces, alone or after a space; the first two specials are padding and the end.

    With ``words`` no piece reaches over the end of a word.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    space = "Ġ"  # how byte-level tokenizers write a space
    pieces = [piece.replace(" ", space) for piece in pieces]
    every = list(dict.fromkeys([*pieces, *(space + p for p in pieces)]))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = [(s, 0.0) for s in specials]
    vocab += [(c, -12.0) for c in alphabet if c not in every]
    vocab += [(p, -4.0) for p in every]
    core = Tokenizer(models.Unigram(vocab, unk_id=0, byte_fallback=False))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=words)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in specials])
    core.add_tokens([AddedToken(s, normalized=False) for s in marks])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token=specials[1],
        pad_token=specials[0],
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )
    tokenizer.chat_template = template
    return tokenizer


@dataclass(frozen=True)
class Scratch:
    """A model that is made from nothing."""

    width: int = 256
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    tools: bool = False  # with a tokenizer that knows the pieces of tool calls

    def tokenizer(self) -> Any:
        """Its tokenizer."""
        return build_tokenizer(self.tools)

    def config(self) -> Any:
        """Its configuration."""
        return tiny_config(self.tokenizer(), self.width, self.layers, self.heads, self.kv_heads)

    def save(self, out: Path, seed: int) -> None:
        """Write it to a folder, with random weights."""
        save_scratch(out, seed, self.width, self.layers, self.heads, self.kv_heads, self.tools)


def tiny_config(tokenizer: Any, width: int = 256, layers: int = 4, heads: int = 4, kv_heads: int = 2) -> Any:
    """The embedded model's shape."""
    from transformers import Qwen3Config

    return Qwen3Config(
        vocab_size=-(-len(tokenizer) // 16) * 16,
        hidden_size=width,
        intermediate_size=width * 11 // 4 // 16 * 16,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=width // heads,
        max_position_embeddings=16384,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )


def save_scratch(
    out: Path, seed: int, width: int = 256, layers: int = 4, heads: int = 4, kv_heads: int = 2, tools: bool = False
) -> None:
    """Write a randomly initialised embedded model and its tokenizer to a folder."""
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer = build_tokenizer(tools)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(tiny_config(tokenizer, width, layers, heads, kv_heads))
    out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def save_tiny(out: Path) -> None:
    """Copy the embedded base model to a folder that transformers and vLLM load."""
    refuse_unwritable(out, f"--out {out}")
    if out.exists() and any(out.iterdir()):
        raise BadInput(f"{out} is not empty; name a new folder")
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        for file in sorted(TINY.iterdir()):
            shutil.copyfile(file, out / file.name)
