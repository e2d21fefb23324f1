"""A tower's attention over many pictures at once is the library's, picture by picture."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from recollect.images.image_ids import image_ids
from recollect.models import vision
from recollect.models.tower import NAME, SMALL, attend
from recollect.models.vision import sight_of
from tests.seeing import KINDS, PATCHES, noise_of, pictures, seeing_pair


@pytest.mark.parametrize("lengths", [[7], [4, 4, 4], [3, 8, 3, 1, 8], [SMALL + 3, 5, SMALL + 3]])
def test_pictures_see_themselves_alone(lengths: list[int]) -> None:
    noise = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, sum(lengths), 8, generator=noise, requires_grad=True) for _ in range(3))
    ends = torch.tensor([0, *lengths]).cumsum(0)
    found, _ = attend(None, q, k, v, None, 0.3, ends)
    each = [
        F.scaled_dot_product_attention(*(x[:, :, a:b] for x in (q, k, v)), scale=0.3) for a, b in ends.unfold(0, 2, 1)
    ]
    expected = torch.cat(each, 2).transpose(1, 2)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    weights = torch.randn(found.shape, generator=noise)
    mine = torch.autograd.grad((found * weights).sum(), (q, k, v))
    theirs = torch.autograd.grad((expected * weights).sum(), (q, k, v))
    torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_every_known_tower_attends_so(kind: str) -> None:
    _, ours = seeing_pair(kind)
    tower = ours.base_model.visual
    asked = [m.config._attn_implementation for m in tower.modules() if hasattr(m, "qkv")]
    assert asked == [NAME] * len(tower.blocks)
    assert "forward" in vars(tower.patch_embed)


def test_many_images_go_through_the_tower_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    _, ours = seeing_pair("qwen3_vl")
    noise = np.random.default_rng(5)
    images = [*pictures(), *(noise_of(noise, 40, 40) for _ in range(4))]
    bases = [int(image_ids(image, PATCHES.grid(image))[0]) for image in images]
    sight = sight_of(ours)
    assert sight is not None
    whole = sight.look(ours.base_model, bases)
    tokens = [len(seen.embeds) for seen in whole]
    asked: list[int] = []
    through = type(sight)._through
    monkeypatch.setattr(
        type(sight), "_through", lambda self, body, some: asked.append(len(some)) or through(self, body, some)
    )
    monkeypatch.setattr(vision, "TOGETHER", max(tokens) + min(tokens))
    for one, two in zip(whole, sight.look(ours.base_model, bases), strict=True):
        torch.testing.assert_close(one.embeds, two.embeds, atol=1e-5, rtol=1e-4)
    assert len(asked) > 1
    assert sum(asked) == len(images)
    monkeypatch.setattr(vision, "MOST_PIXELS", 40 * 40)
    asked.clear()
    sight.look(ours.base_model, bases)
    assert asked == [1] * len(images)
