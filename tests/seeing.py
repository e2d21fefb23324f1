"""Small random models that see, their pictures, and what the library's own model says to rows with images."""

from __future__ import annotations

from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from recollect.images.image_files import drawn, pixels
from recollect.images.image_ids import image_ids, image_of, plain_ids, spans
from recollect.images.patches import Patches
from recollect.types import Image

KINDS = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
TOKEN, START, END = 5, 7, 8
SIZE = {"shortest_edge": 256, "longest_edge": 16 * 16 * 40}
PATCHES = Patches(TOKEN, {"patch_size": 8, "merge_size": 2, "temporal_patch_size": 2, "size": SIZE})


def config_of(kind: str, vocabulary: int = 64, width: int = 64) -> Any:
    """A small configuration."""
    from transformers import Qwen2_5_VLConfig, Qwen2VLConfig, Qwen3VLConfig

    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
    if kind == "qwen3_vl":
        rope["mrope_interleaved"] = True
    text = {
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": width // 16,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "rope_parameters": rope,
        "bos_token_id": None,
        "eos_token_id": 1,
        "pad_token_id": 0,
        **({"head_dim": 16} if kind == "qwen3_vl" else {}),
    }
    tower = {"num_heads": 2, "patch_size": 8, "spatial_merge_size": 2, "depth": 3}
    if kind == "qwen2_vl":
        tower |= {"embed_dim": 32, "hidden_size": width, "mlp_ratio": 2}
    else:
        tower |= {"hidden_size": 32, "intermediate_size": 48, "out_hidden_size": width}
    if kind == "qwen2_5_vl":
        tower |= {"window_size": 32, "fullatt_block_indexes": [1]}
    if kind == "qwen3_vl":
        tower |= {"deepstack_visual_indexes": [0, 1], "num_position_embeddings": 64}
    ids = {"image_token_id": TOKEN, "video_token_id": 6, "vision_start_token_id": START, "vision_end_token_id": END}
    made = {"qwen2_vl": Qwen2VLConfig, "qwen2_5_vl": Qwen2_5_VLConfig, "qwen3_vl": Qwen3VLConfig}[kind]
    return made(text_config=text, vision_config=tower, **ids)


def processor(patches: Patches = PATCHES) -> Any:
    """The library's image processor."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    return Qwen2VLImageProcessorPil(**patches.settings)


def seeing_pair(kind: str, seed: int = 0, config: Any = None, patches: Patches = PATCHES) -> tuple[Any, Any]:
    """(the library's own model with eager attention, the same weights with our attention and ids)."""
    import torch
    from transformers import AutoModelForImageTextToText

    from recollect.models.attention import register
    from recollect.models.kind_check import text_attention
    from recollect.models.vision import give_sight

    config = config or config_of(kind)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = AutoModelForImageTextToText.from_config
        library = made(deepcopy(config), attn_implementation="eager").float().eval()
        ours = made(deepcopy(config), attn_implementation=text_attention(register())).float().eval()
        with torch.no_grad():
            for p in library.parameters():
                p.mul_(1.0 if p.ndim == 1 else 3.0)
    ours.load_state_dict(library.state_dict())
    return library, give_sight(ours, processor(patches))


def noise_of(noise: np.random.Generator, height: int, width: int) -> Image:
    """An image of noise."""
    import PIL.Image

    return drawn(PIL.Image.fromarray(noise.integers(0, 255, (height, width, 3), dtype=np.uint8)))


@lru_cache(maxsize=32)  # which holds the images
def pictures(seed: int = 0, sizes: tuple[tuple[int, int], ...] = ((40, 70), (33, 33), (90, 20))) -> tuple[Image, ...]:
    """Images of noise, (height, width) pixels each."""
    noise = np.random.default_rng(seed)
    return tuple(noise_of(noise, h, w) for h, w in sizes)


def shown(image: Image, patches: Patches = PATCHES) -> np.ndarray:
    """The ids of an image as a template writes it."""
    return np.concatenate([[START], image_ids(image, patches.grid(image)), [END]])


def words(noise: np.random.Generator, count: int) -> np.ndarray:
    """Ids of text."""
    return noise.integers(10, 60, count)


def library_logprobs(library: Any, row: np.ndarray, patches: Patches = PATCHES) -> Any:
    """[tokens - 1] log-probabilities of a row's tokens but the first, by the library's own forward pass."""
    import torch

    ids = torch.from_numpy(plain_ids(row))[None]
    seen = [pixels(image_of(span.base)) for span in spans(row)]
    given: dict[str, Any] = {}
    if seen:
        made = processor(patches)(seen, return_tensors="pt")
        given = {"pixel_values": made["pixel_values"], "image_grid_thw": made["image_grid_thw"]}
        given["mm_token_type_ids"] = (ids == TOKEN).int()
    logits = library(input_ids=ids, **given).logits[0].float().log_softmax(-1)
    return logits[:-1].gather(-1, ids[0, 1:, None])[:, 0]


def save_seeing(out: Path, kind: str = "qwen2_5_vl") -> Path:
    """A folder with a small random model that sees, its tokenizer and its processor's settings, as the hub has them."""
    import torch
    from transformers import AutoModelForImageTextToText

    from recollect.models.tiny_vision import build_tokenizer

    tokenizer = build_tokenizer()
    config = config_of(kind, -(-len(tokenizer) // 16) * 16, 32)
    number = tokenizer.convert_tokens_to_ids
    config.image_token_id, config.video_token_id = number("<|image_pad|>"), number("<|video_pad|>")
    config.vision_start_token_id, config.vision_end_token_id = number("<|vision_start|>"), number("<|vision_end|>")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        AutoModelForImageTextToText.from_config(config).save_pretrained(out)
    tokenizer.chat_template = None
    tokenizer.save_pretrained(out)
    settings = {"image_processor_type": "Qwen2VLImageProcessor", **PATCHES.settings}
    Patches(0, settings).save(out)
    return out
