"""The engine as a sampler: weights of a version, memory, figures."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from recollect.chat import Renderer
from recollect.config import Rollout
from recollect.engine import load_fitted, make_engine
from recollect.models.load import load_tokenizer
from recollect.models.weights_digest import weights_digest
from recollect.policies.endpoint import Endpoint
from recollect.policies.scripted import Scripted
from recollect.samplers.sampler import Sampler
from recollect.types import Completion, Sampling

PROMPT = list(range(5, 40))


@pytest.fixture
def sampler(small_model: Path) -> Sampler:
    renderer = Renderer(load_tokenizer(str(small_model)))
    model = load_fitted(str(small_model), torch.float32)
    return make_engine(model, renderer.decode, Rollout(), own=True, threads=1)


def said(sampler: Sampler) -> Completion:
    return asyncio.run(sampler.generate(PROMPT, Sampling(max_tokens=8, key="a")))  # type: ignore[arg-type]


def other_weights(path: Path) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    model = load_fitted(str(path), torch.float32)
    return {name: torch.randn_like(p) * 0.3 for name, p in model.named_parameters()}


def test_weights_are_handed_over_under_a_version(sampler: Sampler, small_model: Path) -> None:
    first, before = said(sampler), sampler.weights_digest()
    weights = other_weights(small_model)
    sampler.take_weights(7, iter(weights.items()))
    second = said(sampler)
    assert (first.version, second.version) == (0, 7)
    assert first.ids != second.ids
    assert sampler.weights_digest() != before
    plain = load_fitted(str(small_model), torch.float32)
    plain.load_state_dict(weights, strict=False)
    assert sampler.weights_digest() == weights_digest(plain)


def test_no_weight_is_left_as_it_was(sampler: Sampler, small_model: Path) -> None:
    weights = other_weights(small_model)
    name = sorted(weights)[0]
    del weights[name]
    with pytest.raises(AssertionError, match=name):
        sampler.take_weights(1, weights.items())
    assert sampler.version == 0


def test_weights_that_changed_in_place_need_no_copy(sampler: Sampler) -> None:
    first, digest = said(sampler), sampler.weights_digest()
    sampler.take_weights(3, None)
    assert (said(sampler).version, sampler.weights_digest()) == (3, digest)
    assert said(sampler).ids == first.ids


def test_weights_do_not_change_while_something_is_generated(sampler: Sampler, small_model: Path) -> None:
    digest = sampler.weights_digest()

    async def work() -> None:
        asked = asyncio.ensure_future(sampler.generate(PROMPT, Sampling(max_tokens=8)))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        with pytest.raises(AssertionError, match="nothing is being generated"):
            sampler.take_weights(1, other_weights(small_model).items())
        await asked

    asyncio.run(work())
    assert (sampler.version, sampler.weights_digest()) == (0, digest)


def test_memory_that_was_given_away_is_there_again(sampler: Sampler) -> None:
    first = said(sampler)
    sampler.free()
    sampler.restore()
    assert said(sampler).ids == first.ids


def test_what_it_tells_of_itself(sampler: Sampler, small_model: Path) -> None:
    assert sampler.vocabulary == len(load_fitted(str(small_model), torch.float32).get_input_embeddings().weight)
    assert sampler.window > 1000
    seen: list[tuple[int, int]] = []

    def watch(ids: list[int]) -> None:
        seen.append((sampler.statistics().decoding, sampler.statistics().waiting))

    asyncio.run(sampler.generate(PROMPT, Sampling(max_tokens=4, key="a"), watch))  # type: ignore[arg-type]
    found = sampler.statistics()
    assert (1, 0) in seen
    assert (found.decoding, found.waiting, found.prompt_tokens) == (0, 0, len(PROMPT))
    assert found.sampled_tokens >= 1
    assert found.steps >= 1


def test_policies_that_nobody_here_trains_have_no_version() -> None:
    assert Endpoint.version == Scripted.version == -1
    assert not any(hasattr(kind, "take_weights") for kind in (Endpoint, Scripted))
