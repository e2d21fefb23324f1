"""Prompts as a GPU reads them, with its attention calls done on the CPU: what is stored, seen and scheduled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from recollect.engine import Engine
from recollect.engine.backend import AdmissionRules
from recollect.engine.cuda import flash_prefill
from recollect.engine.cuda.device_cache import DeviceCache
from recollect.engine.cuda.flash_prefill import FlashPrefill, in_groups
from recollect.engine.flat_batch import FlatPart
from recollect.engine.plain import PlainBackend
from recollect.engine.plain_attention import PrefixStack
from recollect.engine.prefix import PrefixChunk
from recollect.engine.request import EngineRequest
from recollect.engine.row_state import RowState
from recollect.models.attention import Scoring
from recollect.models.compiled import compile_layers
from recollect.types import Sampling
from tests.compiling import compiling_lightly
from tests.conftest import make_pair
from tests.engine.test_batching import CASES, ids, reference_ids, reference_logprobs, run


def attend_plainly(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    q_ends: Tensor,
    k_ends: Tensor,
    q_most: int,
    k_most: int,
    causal: bool,
) -> tuple[Tensor, Tensor]:
    """What the GPU's call computes: each sequence of queries over its sequence of keys, and the normalisers."""
    out, total = torch.empty_like(q), torch.empty(q.shape[1], q.shape[0])
    assert (int(q_ends[-1]), int(k_ends[-1])) == (len(q), len(k))
    for a, b, c, d in zip(q_ends[:-1], q_ends[1:], k_ends[:-1], k_ends[1:], strict=True):
        assert b - a <= q_most
        assert d - c <= k_most
        keys, values = (x[c:d].repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
        scores = torch.einsum("qhd,khd->hqk", q[a:b], keys) * scale
        if causal:
            scores = scores.masked_fill(~torch.ones(b - a, d - c).tril().bool(), float("-inf"))
        total[:, a:b] = scores.logsumexp(-1)
        out[a:b] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values)
    return out, total


class PlainFlashPrefill(FlashPrefill):
    """The same with memory as it lies on a CPU, and rows that sample from the end of their prompts."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring, last: bool = False) -> Tensor:
        return super().attend(layer, q, k, v, scoring, last and not self.joined)

    def _find_places(self, first: int, suffixes: Sequence[int]) -> np.ndarray:
        slot = first + np.repeat(np.arange(len(suffixes)), suffixes)
        spot = np.concatenate([np.arange(0), *map(np.arange, suffixes)])
        return np.stack([slot, spot])

    def _store(self, layer: int, k: Tensor, v: Tensor) -> None:
        slot, spot = self.places
        if len(slot):
            self.cache.keys[layer][slot, :, :, spot] = k[: len(slot)]
            self.cache.values[layer][slot, :, spot] = v[: len(slot)]
        start = len(slot)
        for prefix, count in self.chunks:
            new, place = slice(start, start + count), slice(prefix.done, prefix.done + count)
            prefix.keys[layer][:, :, place] = k[new].permute(1, 2, 0)
            prefix.values[layer][:, place] = v[new].transpose(0, 1)
            start += count


class FlatBackend(PlainBackend):
    """Decodes as the plain backend and prefills as a GPU."""

    def __init__(self, model: Any, max_rows: int = 256) -> None:
        super().__init__(model, max_rows)
        self.rules = AdmissionRules(40, None, join_early=True)
        self.passes: list[tuple[int, int]] = []

    def forward(self, state: RowState, joining: list[EngineRequest], chunks: list[PrefixChunk]) -> Tensor:
        self.passes.append((len(joining), len(chunks)))
        # rows may have joined before their prefix was done
        self.stack, self._rows_changed = PrefixStack(self.cache), True
        return super().forward(state, in_groups(joining), chunks)

    def prompt_parts(self, first: int, joining: list[EngineRequest], chunks: list[PrefixChunk]) -> list[FlatPart]:
        if not joining and not chunks:
            return []
        return [PlainFlashPrefill(self.cache, first, joining, chunks).part()]  # type: ignore[arg-type]


def flat_engine(model: Any, max_rows: int = 256, **more: Any) -> Engine:
    """Decodes as on a CPU and prefills as on a GPU."""
    return Engine(model, str, max_rows, backend=FlatBackend(model, max_rows), **more)


def passes(engine: Engine) -> list[tuple[int, int]]:
    """Rows that joined and chunks of prefixes of every step."""
    assert isinstance(engine.backend, FlatBackend)
    return engine.backend.passes


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flash_prefill, "attend_lengths", attend_plainly)


MORE = {
    **CASES,
    "many ways to share": lambda: (
        [ids(1, 90) + ids(20 + i, n) for i, n in enumerate((1, 1, 5, 60, 70))]
        + [ids(1, 60) + ids(30, 12), ids(4, 3), ids(5, 130), ids(5, 130)]
    ),
}


@pytest.mark.parametrize("kind", ["Qwen2", "Qwen3", "Llama"])
@pytest.mark.parametrize("case", MORE)
@pytest.mark.parametrize("budget", [32, 128, 8192])
def test_prompts_in_flat_calls_equal_the_library(kind: str, case: str, budget: int) -> None:
    plain, ours = make_pair(kind)
    engine, asked = flat_engine(ours, max_batched_tokens=budget), MORE[case]()
    for _ in range(2):  # the second time prefixes are known
        for prompt, done in zip(asked, run(engine, asked, temperature=0.0), strict=True):
            assert list(done.ids) == reference_ids(plain, prompt)
            expected = reference_logprobs(plain, prompt, done)
            torch.testing.assert_close(torch.tensor(done.logprobs), expected, atol=1e-4, rtol=0)


def test_a_row_joins_in_the_step_that_reads_the_last_of_its_prefix() -> None:
    engine = flat_engine(make_pair("Qwen3")[1])
    run(engine, [ids(1, 200)], temperature=0.0, max_tokens=3)
    assert passes(engine) == [(1, 1), (0, 0), (0, 0)]
    group = flat_engine(make_pair("Qwen3")[1])
    run(group, [ids(1, 200) + ids(5 + i, 9) for i in range(4)], temperature=0.0, max_tokens=2)
    assert passes(group) == [(4, 1), (0, 0)]


def test_a_row_waits_where_its_end_does_not_fit_the_step() -> None:
    engine = flat_engine(make_pair("Qwen3")[1], max_batched_tokens=100)
    run(engine, [ids(1, 200)], temperature=0.0, max_tokens=2)
    assert passes(engine) == [(0, 1), (1, 1), (0, 0)]
    full = flat_engine(make_pair("Qwen3")[1], max_batched_tokens=199)
    run(full, [ids(1, 200)], temperature=0.0, max_tokens=2)
    assert passes(full) == [(0, 1), (1, 0), (0, 0)]


def test_compiled_layers_read_beginnings_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the last layer gives for tokens that nobody reads may not be its queries: operators must not do so."""
    plain, ours = make_pair("Qwen2")
    graphs = compiling_lightly(monkeypatch)
    engine = flat_engine(ours, max_batched_tokens=100)
    compile_layers(ours)
    (done,) = run(engine, [ids(1, 250)], temperature=0.0, max_tokens=3)
    assert graphs() > 0
    assert passes(engine)[0] == (0, 1)
    assert list(done.ids) == reference_ids(plain, ids(1, 250))[:3]


def test_places_are_where_keys_and_values_lie() -> None:
    cache = DeviceCache(3, 2, 8, torch.float32, torch.device("cpu"))
    prefix = cache.new_prefix(np.arange(70))
    cache.ensure(4, 50, 0)
    prefix.done = 33
    part = FlashPrefill(cache, [2, 3], [request(5), request(1)], [PrefixChunk(prefix, 20)])
    places = iter(part.places.t().tolist())
    rows = [(lambda layer, row=row: cache.values[layer][row]) for row in (2, 3)]
    for values, spots in zip([*rows, lambda layer: prefix.values[layer][:, 33:]], (5, 1, 20), strict=True):
        for spot in range(spots):
            base, by_head, by_kind = next(places)
            for layer in range(3):
                for head in range(2):
                    found = base + 4 * (layer * 2 * by_kind + by_kind + head * by_head)
                    assert found == values(layer)[head, spot].data_ptr()
    assert next(places, None) is None


def request(tokens: int) -> EngineRequest:
    """One that shares nothing."""
    return EngineRequest(np.arange(tokens), Sampling(), 0, None)  # type: ignore[arg-type]
