"""A model folder of some shape with random weights and a tokenizer of made-up words, and tasks to train it on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from shapes import build

SPECIAL = ["<unk>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|> ' + m['content'] + ' <|end|> ' }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|> {% endif %}"
)
_NAMES = [f"w{i}" for i in range(1000)]


def make_folder(shape: str, folder: Path) -> Path:
    """Write the model; every id of its vocabulary is a word."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    model = build(shape)
    words = SPECIAL + [f"w{i}" for i in range(model.config.vocab_size - len(SPECIAL))]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token=SPECIAL[0]))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token=SPECIAL[0], eos_token=SPECIAL[1], pad_token=SPECIAL[0]
    )
    tokenizer.add_special_tokens({"additional_special_tokens": SPECIAL[2:]})
    tokenizer.chat_template = TEMPLATE
    model.config.eos_token_id = 1
    model.generation_config.eos_token_id = 1
    model.config._attn_implementation = "sdpa"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    del model
    torch.cuda.empty_cache()
    return folder


def words(rng: np.random.Generator, count: int) -> str:
    """A text of so many tokens."""
    return " ".join(map(_NAMES.__getitem__, rng.integers(0, len(_NAMES), count).tolist()))


def write_tasks(file: Path, tasks: int, length: int) -> Path:
    """Tasks with documents of so many tokens."""
    rng = np.random.default_rng(0)
    rows = [{"question": words(rng, 8), "context": words(rng, length), "answer": words(rng, 1)} for _ in range(tasks)]
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


def luck(trajectory) -> float:  # type: ignore[no-untyped-def]
    """A reward that differs between attempts, so that every one of them has a gradient."""
    return (sum(trajectory.turns[-1].completion.ids) % 97) / 97
