"""Models that see, of random small shapes: log-probabilities and gradients are those of the library's own model.

Each case draws a configuration (heads, rotary sections, tower, windows, what layers add to image tokens, tied words),
some images of any size, and conversations of several turns that share a beginning.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from recollect.images.image_ids import FIRST
from recollect.images.patches import Patches
from recollect.models.attention import using
from recollect.models.vision import sight_of
from recollect.packing.micro_batch import pack
from recollect.packing.tree import build_tree
from recollect.training.learner.forward import logprobs_and_entropy
from recollect.types import Image
from tests.seeing import END, KINDS, START, TOKEN, library_logprobs, noise_of, seeing_pair, shown, words

CASES = [(kind, seed) for kind in KINDS for seed in range(4)]


def random_patches(dice: Random) -> Patches:
    """How such a model cuts images."""
    merge, patch = dice.choice([1, 2, 3]), dice.choice([4, 6, 8])
    side = merge * patch
    size = {"shortest_edge": side * side, "longest_edge": side * side * dice.choice([9, 30])}
    temporal = dice.choice([1, 2])
    return Patches(TOKEN, {"patch_size": patch, "merge_size": merge, "temporal_patch_size": temporal, "size": size})


def rotary_sections(dice: Random, half: int, interleaved: bool) -> list[int]:
    """How the turns of a head are shared out to time, rows and columns."""
    if interleaved:
        part = dice.randint(1, half // 3)
        return [half - 2 * part, part, part]
    first, second = sorted(dice.sample(range(1, half), 2))
    return [first, second - first, half - second]


def text_part(kind: str, dice: Random) -> dict[str, Any]:
    """The settings of its language part."""
    heads, dim = dice.choice([2, 4]), dice.choice([8, 16, 24])
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": dice.choice([100.0, 1e4, 1e6])}
    rope["mrope_section"] = rotary_sections(dice, dim // 2, kind == "qwen3_vl")
    if kind == "qwen3_vl":
        rope["mrope_interleaved"] = True
    return {
        "vocab_size": 64,
        "hidden_size": heads * dim,
        "intermediate_size": dice.choice([32, 80]),
        "num_hidden_layers": dice.randint(2, 4),
        "num_attention_heads": heads,
        "num_key_value_heads": dice.choice([n for n in (1, 2, 4) if heads % n == 0]),
        "max_position_embeddings": 2048,
        "rope_parameters": rope,
        "bos_token_id": None,
        "eos_token_id": 1,
        "pad_token_id": 0,
        **({"head_dim": dim} if kind == "qwen3_vl" else {}),
    }


def random_config(kind: str, dice: Random, patches: Patches) -> Any:
    """The configuration of a model."""
    from transformers import Qwen2_5_VLConfig, Qwen2VLConfig, Qwen3VLConfig

    text, cut = text_part(kind, dice), patches.settings
    depth, heads, width = dice.randint(1, 4), dice.choice([1, 2]), dice.choice([16, 32])
    tower: dict[str, Any] = {"num_heads": heads, "patch_size": cut["patch_size"], "depth": depth}
    tower |= {"spatial_merge_size": cut["merge_size"], "temporal_patch_size": cut["temporal_patch_size"]}
    if kind == "qwen2_vl":
        tower |= {"embed_dim": width, "hidden_size": text["hidden_size"], "mlp_ratio": dice.choice([1, 2])}
    else:
        tower |= {"hidden_size": width, "intermediate_size": 24, "out_hidden_size": text["hidden_size"]}
    if kind == "qwen2_5_vl":
        whole = sorted(dice.sample(range(depth), dice.randint(0, depth)))
        tower |= {"window_size": patches.side * dice.randint(1, 3), "fullatt_block_indexes": whole}
    if kind == "qwen3_vl":
        added = sorted(dice.sample(range(depth), dice.randint(0, min(depth, text["num_hidden_layers"]))))
        tower |= {"deepstack_visual_indexes": added, "num_position_embeddings": dice.choice([16, 49])}
    ids = {"image_token_id": TOKEN, "video_token_id": 6, "vision_start_token_id": START, "vision_end_token_id": END}
    made = {"qwen2_vl": Qwen2VLConfig, "qwen2_5_vl": Qwen2_5_VLConfig, "qwen3_vl": Qwen3VLConfig}[kind]
    return made(text_config=text, vision_config=tower, tie_word_embeddings=dice.random() < 0.5, **ids)


def talk(dice: Random, noise: np.random.Generator, images: list[np.ndarray], turns: int) -> list[np.ndarray]:
    """Turns of a conversation: words, an image or several or none, and what is said to them."""
    parts: list[np.ndarray] = []
    for _ in range(turns):
        parts.append(words(noise, dice.randint(1, 5)))
        parts += dice.choices(images, k=dice.choice([0, 1, 1, 2]))
        parts.append(words(noise, dice.randint(1, 6)))
    return parts


@pytest.mark.parametrize(("kind", "seed"), CASES)
def test_a_random_model_is_the_librarys(kind: str, seed: int) -> None:
    dice, noise = Random(f"{kind}:{seed}"), np.random.default_rng(seed)
    patches = random_patches(dice)
    library, ours = seeing_pair(kind, seed, random_config(kind, dice, patches), patches)
    held: list[Image] = [noise_of(noise, dice.randint(5, 70), dice.randint(5, 70)) for _ in range(dice.randint(2, 4))]
    images = [shown(image, patches) for image in held]
    beginning = [words(noise, 2), images[0], *talk(dice, noise, images, dice.randint(1, 3))]
    rows = [np.concatenate([*beginning, *talk(dice, noise, images, dice.randint(1, 3))]) for _ in range(3)]
    masks = [(np.arange(len(row)) > 0) & (row < FIRST) & (noise.random(len(row)) < 0.6) for row in rows]
    offsets = np.cumsum([0, *(int(mask.sum()) for mask in masks)])
    packed = pack([build_tree(range(len(rows)), rows)], masks, offsets[:-1].tolist())
    assert len(packed.tokens) < sum(map(len, rows))

    found = logprobs_and_entropy(ours, packed)[0][packed.entry_target]
    weights = torch.from_numpy(noise.normal(size=len(found))).float()
    with using(packed.plan):
        (found * weights[packed.entry]).sum().backward()
    assert sight_of(ours).computed <= len(held)  # type: ignore[union-attr]

    each = [library_logprobs(library, r, patches)[torch.from_numpy(m[1:])] for r, m in zip(rows, masks, strict=True)]
    expected = torch.cat(each)
    (expected * weights).sum().backward()
    torch.testing.assert_close(found, expected[packed.entry], atol=2e-5, rtol=2e-5)
    for (name, mine), (_, theirs) in zip(ours.named_parameters(), library.named_parameters(), strict=True):
        scale = 0.0 if theirs.grad is None else float(theirs.grad.abs().max())
        if scale < 1e-6:
            assert mine.grad is None or float(mine.grad.abs().max()) < 1e-5, name
            continue
        torch.testing.assert_close(mine.grad / scale, theirs.grad / scale, atol=5e-5, rtol=0, msg=name)
