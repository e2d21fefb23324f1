"""Tokenizers that know a family's control tokens."""

from __future__ import annotations

import copy
from typing import Any

from recollect.chat import use_template

MARKERS = {
    "qwen2.5": (["<|im_start|>", "<|im_end|>"], ["<tool_call>", "</tool_call>"], "<|im_end|>", None),
    "qwen3": (
        ["<|im_start|>", "<|im_end|>"],
        ["<tool_call>", "</tool_call>", "<think>", "</think>"],
        "<|im_end|>",
        None,
    ),
    "chatml": (["<|im_start|>", "<|im_end|>"], [], "<|im_end|>", None),
    "qwen2.5-vl": (
        ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|image_pad|>", "<|vision_end|>"],
        ["<tool_call>", "</tool_call>"],
        "<|im_end|>",
        None,
    ),
    "chatml-vl": (
        ["<|im_start|>", "<|im_end|>", "<|image_pad|>", "<|vision_start|>", "<|vision_end|>"],
        [],
        "<|im_end|>",
        None,
    ),
    "llama3": (
        ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>", "<|python_tag|>", "<|begin_of_text|>"],
        [],
        "<|eot_id|>",
        "<|begin_of_text|>",
    ),
    "plain": ([], [], "<|end|>", None),
}


def family(tokenizer: Any, name: str) -> Any:
    """A copy of a tokenizer with the control tokens and the chat template of a family."""
    from tokenizers import AddedToken

    made = copy.deepcopy(tokenizer)
    special, ordinary, eos, bos = MARKERS[name]
    made.add_tokens([AddedToken(t, special=True, normalized=False) for t in special], special_tokens=True)
    made.add_tokens([AddedToken(t, special=False, normalized=False) for t in ordinary])
    made.eos_token = eos
    if bos:
        made.bos_token = bos
    return use_template(made, name)
