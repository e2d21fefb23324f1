"""A small model that sees, made from nothing: the shape of a Qwen3-VL, with a tokenizer that knows actions on a screen.

A patch is as large as a letter of the made-up screens, and a token of the language part as large as four of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from recollect.chat.templates import TEMPLATES
from recollect.images.patches import Patches
from recollect.models.tiny import WORDS, byte_tokenizer

SPECIALS = (
    *("<|endoftext|>", "<|im_end|>", "<|im_start|>", "<|vision_start|>", "<|vision_end|>"),
    *("<|image_pad|>", "<|video_pad|>"),
)
SCREEN_WORDS = (
    *("Action: click(start_box='(", ")')", ",", "Action: type(content='", "')", "Action: finished()", "Action: wait()"),
    *("Action: scroll(start_box='(", ")', direction='down')", ")', direction='up')", "Thought:"),
    *("Press", "Tick", "Pick", "Write", "into", "circles", "squares", "triangles", "How", "many", "are", "there", "?"),
    *("user", "system", "assistant", "red", "green", "blue", "yellow", "Scroll", "then"),
)


@dataclass(frozen=True)
class VisionScratch:
    """The sizes of a model that sees and is made from nothing."""

    width: int = 192
    layers: int = 4
    heads: int = 6
    tower_width: int = 96
    tower_layers: int = 2
    patch: int = 8
    merge: int = 2
    side: int = 256  # of the largest picture that is not made smaller, in pixels

    def tokenizer(self) -> Any:
        """Its tokenizer."""
        return build_tokenizer()

    def config(self) -> Any:
        """Its configuration."""
        return vision_config(self, self.tokenizer())

    def patches(self) -> Patches:
        """How it cuts pictures: as they are, up to the largest."""
        token = self.tokenizer().convert_tokens_to_ids("<|image_pad|>")
        size = {"shortest_edge": (self.patch * self.merge) ** 2, "longest_edge": self.side**2}
        settings = {"patch_size": self.patch, "merge_size": self.merge, "temporal_patch_size": 1, "size": size}
        even = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
        return Patches(token, {"image_processor_type": "Qwen2VLImageProcessor", **settings, **even})

    def save(self, out: Path, seed: int) -> None:
        """Write it to a folder, with random weights, its tokenizer and its processor's settings."""
        import torch
        from transformers import AutoModelForImageTextToText

        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            model = AutoModelForImageTextToText.from_config(self.config())
        out.mkdir(parents=True, exist_ok=True)
        model.save_pretrained(out)
        self.tokenizer().save_pretrained(out)
        self.patches().save(out)


def build_tokenizer() -> Any:
    """Letters, digits, numbers below a hundred and the words of made-up screens, each a token."""
    numbers = [str(n) for n in range(100)]
    return byte_tokenizer(
        SPECIALS, [*ascii_uppercase, *numbers, *WORDS, *SCREEN_WORDS], (), TEMPLATES["chatml-vl"], False
    )


def vision_config(made: VisionScratch, tokenizer: Any) -> Any:
    """The configuration of such a model."""
    from transformers import Qwen3VLConfig

    number = tokenizer.convert_tokens_to_ids
    dim = made.width // made.heads
    turns = dim // 2  # of the rotary embedding, for time, rows and columns
    parts = [turns - 2 * (turns // 3), turns // 3, turns // 3]
    return Qwen3VLConfig(
        text_config={
            "vocab_size": -(-len(tokenizer) // 16) * 16,
            "hidden_size": made.width,
            "intermediate_size": made.width * 11 // 4 // 16 * 16,
            "num_hidden_layers": made.layers,
            "num_attention_heads": made.heads,
            "num_key_value_heads": made.heads,
            "head_dim": dim,
            "max_position_embeddings": 8192,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": parts,
                "mrope_interleaved": True,
            },
            "eos_token_id": tokenizer.eos_token_id,
            "pad_token_id": tokenizer.pad_token_id,
            "bos_token_id": None,
            "tie_word_embeddings": True,
        },
        vision_config={
            "depth": made.tower_layers,
            "hidden_size": made.tower_width,
            "intermediate_size": 2 * made.tower_width,
            "num_heads": 4,
            "out_hidden_size": made.width,
            "patch_size": made.patch,
            "spatial_merge_size": made.merge,
            "temporal_patch_size": 1,
            "num_position_embeddings": (made.side // made.patch) ** 2,
            "deepstack_visual_indexes": [],
        },
        image_token_id=number("<|image_pad|>"),
        video_token_id=number("<|video_pad|>"),
        vision_start_token_id=number("<|vision_start|>"),
        vision_end_token_id=number("<|vision_end|>"),
        tie_word_embeddings=True,
    )
