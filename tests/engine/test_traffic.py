"""Requests that come and go as they please get what each would get alone, whatever shares what with whom."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.engine import Engine
from recollect.engine.cuda import flash_prefill
from recollect.types import Completion, Sampling
from tests.conftest import make_pair
from tests.engine.test_batching import ids
from tests.engine.test_prefill import attend_plainly, flat_engine

WHERE = {"cpu": lambda model, **more: Engine(model, decode=str, **more), "as on a gpu": flat_engine}
REQUEST = st.fixed_dictionaries(
    {
        "start": st.integers(0, 2),  # which of some long beginnings …
        "shared": st.sampled_from([0, 5, 33, 80, 130]),  # … and how much of it
        "own": st.sampled_from([1, 2, 17, 50, 90]),
        "after": st.integers(0, 12),  # turns of the loop before it comes
        "patience": st.sampled_from([None, None, None, 2, 7]),  # turns after which nobody waits any more
        "keep": st.booleans(),
        "tokens": st.integers(1, 9),
    }
)


@cache
def model() -> Any:
    return make_pair("Qwen3")[1]


def prompt_of(request: dict[str, Any], place: int) -> tuple[int, ...]:
    return tuple(ids(request["start"], 140)[: request["shared"]] + ids(50 + place % 4, request["own"]))


@cache
def alone(prompt: tuple[int, ...], tokens: int) -> Completion:
    return asyncio.run(Engine(model(), decode=str).generate(list(prompt), Sampling(0.0, max_tokens=tokens)))


@pytest.mark.parametrize("where", WHERE)
@settings(max_examples=40, deadline=None)
@given(
    requests=st.lists(REQUEST, min_size=1, max_size=9),
    rows=st.integers(1, 6),
    budget=st.sampled_from([16, 64, 100, 512]),
    kept=st.sampled_from([0, 60, 300, 10_000]),
)
def test_traffic(where: str, requests: list[dict[str, Any]], rows: int, budget: int, kept: int) -> None:
    engine = WHERE[where](model(), max_rows=rows, max_batched_tokens=budget, prefix_cache_tokens=kept)

    async def one(request: dict[str, Any], place: int) -> Completion | None:
        for _ in range(request["after"]):
            await asyncio.sleep(0)
        sampling = Sampling(0.0, max_tokens=request["tokens"], key=str(place), keep=request["keep"])
        job = asyncio.ensure_future(engine.generate(list(prompt_of(request, place)), sampling))
        if request["patience"] is None:
            return await job
        for _ in range(request["patience"]):
            await asyncio.sleep(0)
        return job.result() if job.done() else job.cancel() and None

    async def everyone() -> list[Completion | None]:
        return await asyncio.gather(*(one(r, i) for i, r in enumerate(requests)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flash_prefill, "attend_lengths", attend_plainly)
        found = asyncio.run(asyncio.wait_for(everyone(), 60))
    for place, (request, done) in enumerate(zip(requests, found, strict=True)):
        if done is None:
            continue
        expected = alone(prompt_of(request, place), request["tokens"])
        assert done.ids == expected.ids
        torch.testing.assert_close(torch.tensor(done.logprobs), torch.tensor(expected.logprobs), atol=1e-4, rtol=0)
    assert not engine.busy
