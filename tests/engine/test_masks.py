"""Completions that must have a form: what is sampled, and its log-probabilities, against the library's forward pass."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

from recollect.engine import Engine
from recollect.engine.library import LibraryEngine
from recollect.engine.masks import word_count
from recollect.engine.noise import uniform
from recollect.engine.plain import PlainBackend
from recollect.types import Completion, Sampling
from tests.conftest import make_pair
from tests.engine.test_batching import ids, reference_logprobs

VOCABULARY, STOP = 96, 1


class EveryThird:
    """Ids of a residue that changes with each token; after five of them only the stop id."""

    def __init__(self, breaks: int | None = None) -> None:
        self.taken: list[int] = []
        self.breaks = breaks

    @property
    def ended(self) -> bool:
        return len(self.taken) >= 5

    def ids(self) -> list[int]:
        return [STOP] if self.ended else [i for i in range(3, VOCABULARY) if i % 3 == len(self.taken) % 3]

    def allowed(self) -> np.ndarray:
        if self.breaks == len(self.taken):
            raise ValueError("the form is too hard")
        bits = np.zeros(32 * word_count(VOCABULARY), np.uint8)
        bits[self.ids()] = 1
        return np.packbits(bits, bitorder="little").view(np.int32)

    def take(self, token: int) -> None:
        assert token in self.ids()
        self.taken.append(token)


class Form:
    def __init__(self, breaks: int | None = None) -> None:
        self.breaks = breaks

    def start(self) -> EveryThird:
        return EveryThird(self.breaks)


def asked(count: int, grammar: Any = None, **options: Any) -> list[Sampling]:
    """Samplings of which every second has a form."""
    options = {"max_tokens": 8, "stop_ids": (STOP,), "seed": 7} | options
    return [Sampling(key=str(i), grammar=(grammar or Form()) if i % 2 else None, **options) for i in range(count)]


def run_all(engine: Any, prompts: list[list[int]], samplings: list[Sampling]) -> list[Any]:
    async def go() -> list[Any]:
        jobs = [engine.generate(p, s) for p, s in zip(prompts, samplings, strict=True)]
        return await asyncio.gather(*jobs, return_exceptions=True)

    return asyncio.run(go())


def engine_of(kind: str, ours: Any) -> Any:
    if kind == "library":
        return LibraryEngine(ours, str)
    return Engine(ours, str, backend=PlainBackend(ours) if kind == "plain" else None)


def reference(model: Any, prompt: list[int], sampling: Sampling) -> list[int]:
    """The ids by the definition: the cumulative distribution over the allowed ids, at the row's random number."""
    form, found = EveryThird(), list[int]()
    for position in range(sampling.max_tokens):
        with torch.no_grad():
            logits = model(torch.tensor([prompt + found])).logits[0, -1].double()
        allowed = sorted(form.ids())
        weights = (logits[allowed] / (sampling.temperature or 1.0)).softmax(-1)
        if sampling.top_k > 0:
            weights = torch.where(weights >= weights.topk(min(sampling.top_k, len(allowed))).values[-1], weights, 0.0)
        number = uniform(torch.tensor([sampling.noise_seed]), torch.tensor([position]))[0]
        place = int((weights.cumsum(-1) < number * weights.sum()).sum())
        token = allowed[place if sampling.temperature > 0 else int(weights.argmax())]
        found.append(token)
        if token == STOP:
            break
        form.take(token)
    return found


@pytest.mark.parametrize("kind", ["compiled", "plain", "library"])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.0}, {"temperature": 0.6, "top_k": 5}], ids=str)
def test_forms_are_kept_and_others_go_on_as_before(kind: str, options: dict[str, Any]) -> None:
    plain, ours = make_pair("Qwen3")
    model = plain if kind == "library" else ours
    prompts = [ids(1, 30)] * 3 + [ids(2, 12), ids(3, 50), ids(2, 12)]
    samplings = asked(len(prompts), **options)
    made = run_all(engine_of(kind, model), prompts, samplings)
    free = [s for s in samplings if s.grammar is None]
    alone = run_all(engine_of(kind, model), prompts[::2], free)
    for done, other in zip(made[::2], alone, strict=True):
        assert done.ids == other.ids
        torch.testing.assert_close(torch.tensor(done.logprobs), torch.tensor(other.logprobs), atol=1e-5, rtol=0)
    for prompt, sampling, done in list(zip(prompts, samplings, made, strict=True))[1::2]:
        assert list(done.ids) == reference(plain, prompt, sampling)
        assert (len(done.ids), done.ids[-1], done.stop) == (6, STOP, "stop")
        expected = reference_logprobs(plain, prompt, done, sampling.temperature or 1.0)
        torch.testing.assert_close(torch.tensor(done.logprobs), expected, atol=1e-4, rtol=0)


def test_without_a_stop_id_a_completion_ends_where_nothing_more_may_come() -> None:
    _, ours = make_pair("Qwen3")
    _, done = run_all(engine_of("compiled", ours), [ids(1, 9)] * 2, asked(2, stop_ids=()))
    assert (len(done.ids), done.stop) == (5, "stop")


def test_a_form_that_fails_fails_alone() -> None:
    _, ours = make_pair("Qwen3")
    made = run_all(engine_of("compiled", ours), [ids(1, 9)] * 4, [*asked(2), *asked(2, Form(breaks=2))])
    assert [type(done) for done in made] == [Completion, Completion, Completion, ValueError]
    assert "too hard" in str(made[3])
