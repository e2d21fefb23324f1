"""Drawing from a large vocabulary block by block is drawing from its cumulative distribution."""

from __future__ import annotations

import pytest
import torch

from recollect.engine.cpu.native_sampling import native_sample
from recollect.engine.sampling import FEW, _invert, _invert_blocks, sample


def test_blocks_draw_the_same_ids() -> None:
    generator = torch.Generator().manual_seed(0)
    probs = torch.softmax(4 * torch.randn(64, FEW + 37, generator=generator), -1)
    uniforms = torch.rand(64, generator=generator, dtype=torch.float64)
    uniforms[:2] = torch.tensor([1e-16, 1 - 1e-16], dtype=torch.float64)
    found, expected = _invert_blocks(probs, uniforms), _invert(probs.double(), uniforms)
    assert torch.equal(found, expected)


def test_a_certain_token_is_drawn_wherever_it_is() -> None:
    for place in (0, 255, 256, FEW, FEW + 36):
        logits = torch.full((3, FEW + 37), -1e4)
        logits[:, place] = 0.0
        ones = torch.ones(3)
        noise = torch.tensor([0.001, 0.5, 0.999], dtype=torch.float64)
        ids, logprobs = sample(logits, ones, ones.double(), torch.zeros(3, dtype=torch.int64), noise, True, False)
        assert ids.tolist() == [place] * 3
        assert logprobs.tolist() == [0.0] * 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("vocabulary", [1, 5, 16, 599])
def test_compiled_sampling_gives_the_same_ids(dtype: torch.dtype, vocabulary: int) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = (4 * torch.randn(64, vocabulary, generator=generator)).to(dtype)
    uniforms = torch.rand(64, generator=generator, dtype=torch.float64)
    uniforms[:2] = torch.tensor([1e-16, 1 - 1e-16], dtype=torch.float64)
    temperature = torch.rand(64, generator=generator) + 0.3
    temperature[10:20] = 0.0
    given = logits, temperature, torch.ones(64).double(), torch.zeros(64, dtype=torch.int64), uniforms, True, True
    ids, logprobs = native_sample(*given)
    expected, wanted = sample(*given)
    assert torch.equal(ids, expected)
    torch.testing.assert_close(logprobs, wanted, atol=1e-5, rtol=1e-5)
