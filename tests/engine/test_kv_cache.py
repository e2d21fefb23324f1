"""A cache that cannot grow is what it was before."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from recollect.engine import Engine
from recollect.engine.cuda.device_cache import DeviceCache
from recollect.engine.kv_cache import KVCache
from recollect.engine.plain import PlainBackend
from tests.conftest import make_pair
from tests.engine.test_batching import ids, run


def plain_cache() -> KVCache:
    return KVCache(2, 1, 8, torch.float32, torch.device("cpu"))


def device_cache() -> KVCache:
    return DeviceCache(2, 1, 8, torch.float32, torch.device("cpu"))


@pytest.mark.parametrize("make", [plain_cache, device_cache])
def test_without_memory_it_stays_as_it_is(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = make()
    cache.ensure(2, 10, 0)
    before = cache.slots, cache.capacity, cache.generation
    cache.values[1][1, :, 3] = 7.0
    with monkeypatch.context() as patch:
        patch.setattr(torch, "zeros", lambda *args, **more: (_ for _ in ()).throw(torch.OutOfMemoryError("full")))
        for slots, capacity in ((500, 10), (2, 500), (500, 500)):
            with pytest.raises(torch.OutOfMemoryError):
                cache.ensure(slots, capacity, 2)
            assert (cache.slots, cache.capacity, cache.generation) == before
            assert cache.values[0].shape[0] == cache.slots
    cache.ensure(500, 500, 2)
    assert cache.slots >= 500
    assert cache.values[0].shape[:3] == (cache.slots, 1, cache.capacity)
    assert cache.values[1][1, :, 3].unique().tolist() == [7.0]


def test_after_a_step_without_memory_requests_are_served_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_pair("Qwen3")[1]
    there, one, many = Engine(model, str, backend=PlainBackend(model)), [ids(1, 20)], [ids(i, 20) for i in range(40)]
    expected = run(Engine(model, str, backend=PlainBackend(model)), many, temperature=0.0, max_tokens=6)
    run(there, one, temperature=0.0, max_tokens=4)

    def full(self: KVCache) -> None:
        raise torch.OutOfMemoryError("full")

    with monkeypatch.context() as patch:
        patch.setattr(KVCache, "_allocate", full)
        with pytest.raises(torch.OutOfMemoryError):
            run(there, many, temperature=0.0, max_tokens=6)
    found = run(there, many, temperature=0.0, max_tokens=6)
    assert [done.ids for done in found] == [done.ids for done in expected]
