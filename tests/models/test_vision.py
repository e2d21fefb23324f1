"""Models that see compute what the library's own do, in updates and in sampling; shared images are computed once."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

from recollect.engine.batching import Engine
from recollect.engine.plain import PlainBackend
from recollect.images.image_ids import FIRST, image_ids
from recollect.models.attention import using
from recollect.models.lora import add_adapter, copy_weights
from recollect.models.vision import freeze_tower, sight_of, text_body
from recollect.packing.micro_batch import pack
from recollect.packing.tree import build_tree
from recollect.training.learner.forward import check_head, logprobs_and_entropy
from recollect.types import Sampling
from tests.seeing import KINDS, PATCHES, TOKEN, library_logprobs, noise_of, pictures, seeing_pair, shown, words


def conversations() -> list[np.ndarray]:
    """Rows that begin with the same two images; some go on with more, one has none."""
    noise, images = np.random.default_rng(0), [shown(image) for image in pictures()]
    beginning = np.concatenate([words(noise, 5), images[0], words(noise, 4), images[1], words(noise, 3)])
    return [
        np.concatenate([beginning, words(noise, 6)]),
        np.concatenate([beginning, words(noise, 3), images[2], words(noise, 5)]),
        np.concatenate([beginning, words(noise, 3), images[0], images[0], words(noise, 5)]),
        words(noise, 9),
    ]


def is_text(row: np.ndarray) -> np.ndarray:
    return (np.arange(len(row)) > 0) & (row < FIRST)


@pytest.mark.parametrize("kind", KINDS)
def test_packed_trees_have_the_log_probabilities_and_gradients_of_the_library(kind: str) -> None:
    library, ours = seeing_pair(kind)
    rows = conversations()
    masks = [is_text(row) for row in rows]
    offsets = np.cumsum([0, *(int(mask.sum()) for mask in masks)])
    packed = pack([build_tree(range(len(rows)), rows)], masks, offsets[:-1].tolist())
    assert len(packed.tokens) < 0.65 * sum(map(len, rows))

    found = logprobs_and_entropy(ours, packed)[0][packed.entry_target]
    weights = torch.from_numpy(np.random.default_rng(1).normal(size=len(found))).float()
    with using(packed.plan):
        (found * weights[packed.entry]).sum().backward()
    assert sight_of(ours).computed == 3  # type: ignore[union-attr]

    each = [library_logprobs(library, r)[torch.from_numpy(m[1:])] for r, m in zip(rows, masks, strict=True)]
    expected = torch.cat(each)
    (expected * weights).sum().backward()
    torch.testing.assert_close(found, expected[packed.entry], atol=1e-5, rtol=1e-5)
    for (name, mine), (_, theirs) in zip(ours.named_parameters(), library.named_parameters(), strict=True):
        if theirs.grad is None or float(theirs.grad.abs().max()) == 0:
            assert mine.grad is None or float(mine.grad.abs().max()) < 1e-5, name
            continue
        scale = float(theirs.grad.abs().max())
        torch.testing.assert_close(mine.grad / scale, theirs.grad / scale, atol=2e-5, rtol=0, msg=name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("plain", [False, True])
def test_the_engine_samples_with_the_log_probabilities_of_the_library(kind: str, plain: bool) -> None:
    """Six conversations of three turns; prompts are prefilled in chunks that end inside images."""
    library, ours = seeing_pair(kind)
    freeze_tower(ours)
    sight = sight_of(ours)
    assert sight is not None
    engine = Engine(ours, lambda ids: "", backend=PlainBackend(ours) if plain else None, max_batched_tokens=20)
    noise, images = np.random.default_rng(0), [shown(image) for image in pictures()]
    beginning = np.concatenate([words(noise, 5), images[0], words(noise, 4), images[1], words(noise, 3)])

    async def talk(number: int) -> float:
        own = np.random.default_rng(number)
        prompt, worst = np.concatenate([beginning, words(own, 1 + number % 2)]), 0.0
        for turn in range(3):
            asked = Sampling(max_tokens=5 + number, key=f"{number}/{turn}", keep=True, stop_ids=(TOKEN,))
            done = await engine.generate(prompt.tolist(), asked)
            said = np.array([i for i in done.ids if i != TOKEN], np.int64)  # which the library takes for an image
            row = np.concatenate([prompt, said])
            expected = library_logprobs(library, row)[len(prompt) - 1 :]
            differences = (torch.tensor(done.logprobs)[: len(said)] - expected).detach().abs()
            worst = max(worst, float(differences.sum()))
            prompt = np.concatenate([row, words(own, 2), images[(turn + 2) % 3], words(own, 1)])
        return worst

    async def all_of_them() -> list[float]:
        return await asyncio.gather(*map(talk, range(6)))

    before = sight.computed
    assert max(asyncio.run(all_of_them())) < 2e-5
    assert sight.computed - before == 3  # each image once, for all conversations and turns
    stats = engine.statistics()
    assert stats.computed_prompt_tokens < 0.3 * stats.prompt_tokens


def test_a_tower_that_may_change_is_asked_again_after_an_update() -> None:
    _, ours = seeing_pair("qwen2_5_vl")
    engine, sight = Engine(ours, lambda ids: ""), sight_of(ours)
    assert sight is not None
    prompt = np.concatenate([shown(pictures()[0]), [11, 12]]).tolist()
    first = asyncio.run(engine.generate(prompt, Sampling(max_tokens=3, key="a")))
    with torch.no_grad():
        ours.base_model.visual.patch_embed.proj.weight.mul_(-3)
    engine.new_weights(1)
    second = asyncio.run(engine.generate(prompt, Sampling(max_tokens=3, key="a")))
    assert first.logprobs != second.logprobs
    assert sight.computed == 2


def test_eight_screenshots_and_eight_attempts_are_computed_once() -> None:
    _, ours = seeing_pair("qwen2_5_vl")
    freeze_tower(ours)
    noise = np.random.default_rng(0)
    screens = pictures(3, ((60, 60),) * 8)
    beginning = np.concatenate([np.concatenate([words(noise, 3), shown(image)]) for image in screens])
    rows = [np.concatenate([beginning, words(noise, 6)]) for _ in range(8)]
    masks = [np.arange(len(row)) >= len(beginning) for row in rows]
    packed = pack([build_tree(range(8), rows)], masks, [6 * i for i in range(8)])
    logprobs_and_entropy(ours, packed)
    assert sight_of(ours).computed == 8  # type: ignore[union-attr]
    assert sum(map(len, rows)) / len(packed.tokens) > 5


def test_lora_and_freezing_leave_the_tower_alone() -> None:
    pytest.importorskip("peft")
    _, ours = seeing_pair("qwen2_5_vl")
    add_adapter(ours, 4, 8.0, ["all-linear"], 0.0, "", 0)
    trained = [name for name, p in ours.named_parameters() if p.requires_grad]
    assert trained
    assert all("lora_" in name and "language_model" in name for name in trained)


@pytest.mark.parametrize("targets", [["all-linear"], ["qkv", "proj", "q_proj"]])
def test_an_adapter_of_the_tower_too_is_merged_into_what_it_computes(targets: list[str]) -> None:
    pytest.importorskip("peft")
    _, ours = seeing_pair("qwen2_5_vl")
    add_adapter(ours, 4, 8.0, targets, 0.0, "", 0, tower=True)
    sight = sight_of(ours)
    assert sight is not None
    assert not sight.frozen
    trained = [name for name, p in ours.named_parameters() if p.requires_grad]
    assert all("lora_" in name for name in trained)
    assert {"visual" in name for name in trained} == {True, False}
    rows = conversations()[:2]
    packed = pack([build_tree(range(2), rows)], [is_text(row) for row in rows], [0, int(is_text(rows[0]).sum())])
    before = logprobs_and_entropy(ours, packed)[0]
    with torch.no_grad():
        for name, p in ours.named_parameters():
            if "lora_B" in name:
                p.normal_(std=0.2, generator=torch.Generator().manual_seed(len(name)))
    after = logprobs_and_entropy(ours, packed)[0]
    assert float((after - before).detach().abs().max()) > 0.01
    plain = seeing_pair("qwen2_5_vl")[1]
    copy_weights(ours, plain)
    torch.testing.assert_close(logprobs_and_entropy(plain, packed)[0], after, atol=2e-5, rtol=2e-5)


def test_the_logits_are_the_head_over_the_states() -> None:
    for kind in KINDS:
        _, ours = seeing_pair(kind)
        check_head(ours)
        assert text_body(ours) is ours.model.language_model


def test_an_image_that_nobody_holds_is_said_to_be_gone() -> None:
    _, ours = seeing_pair("qwen2_5_vl")
    image: Any = noise_of(np.random.default_rng(11), 32, 32)
    ids = image_ids(image, PATCHES.grid(image))
    packed = pack([build_tree([0], [np.concatenate([[9], ids, [9]])])], [np.arange(len(ids) + 2) > len(ids)], [0])
    del image
    with pytest.raises(AssertionError, match="whoever keeps ids keeps their images"):
        logprobs_and_entropy(ours, packed)
