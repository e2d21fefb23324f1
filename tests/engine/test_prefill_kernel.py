"""Attention of prompts that are prefilled, against plain softmaxes: on a GPU, or interpreted where triton is there."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton")

from recollect.engine.cuda import prefill_kernel
from recollect.engine.cuda.prefill_kernel import COLUMNS, TILE, attend_tiles
from recollect.models.attention import Scoring
from tests.engine.test_attention_kernels import DEVICE, GROUP, KV, LAYER, LAYERS, plainly

DIM = 24
SEQUENCES = {  # tokens of its own that are there already, new ones, tokens of the prefix that it sees
    "one": [(0, 70, 0)],
    "with a prefix": [(0, 5, 130), (0, 1, 64), (0, 66, 1)],
    "chunks": [(64, 64, 0), (1, 40, 0), (200, 3, 0)],
    "of every kind": [(0, 65, 0), (10, 20, 40), (63, 2, 0), (0, 1, 0)],
}
SCORINGS = [Scoring(0.2), Scoring(0.3, window=50), Scoring(0.3, softcap=4.0), Scoring(0.2, window=5, softcap=3.0)]


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("scoring", SCORINGS)
@pytest.mark.parametrize("programs", [528, 2])
def test_new_tokens_see_what_is_before_them(
    name: str, scoring: Scoring, programs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefill_kernel, "PROGRAMS", programs)
    torch.manual_seed(0)
    made = lambda *shape: torch.randn(*shape, device=DEVICE)
    memory = lambda tokens: made(LAYERS, 2, KV, -(-tokens // 32) * 32, DIM)
    place = lambda m: [m.data_ptr(), m.stride(1), m.stride(2)]
    sequences, tiles, first = SEQUENCES[name], [], 0
    owns, prefixes = [memory(before + new) for before, new, _ in sequences], [memory(max(1, s)) for *_, s in sequences]
    for (before, new, span), own, prefix in zip(sequences, owns, prefixes, strict=True):
        for at in range(0, new, TILE):
            size = min(TILE, new - at)
            tiles.append([first + at, size, *place(prefix), span, *place(own), before + at])
        first += new
    table = torch.zeros(len(tiles) + 3, COLUMNS, dtype=torch.int64, device=DEVICE)  # some of nobody
    table[: len(tiles)] = torch.from_numpy(np.array(tiles))
    q = made(KV * GROUP, first + 2, DIM)
    count = torch.tensor([len(tiles)], device=DEVICE)
    found = attend_tiles(q, table, count, KV, LAYER, scoring)
    first = 0
    for (before, new, span), own, prefix in zip(sequences, owns, prefixes, strict=True):
        for token in {0, new // 2, new - 1}:
            for head in range(KV * GROUP):
                seen: Any = [prefix[LAYER, :, head // GROUP, :span], own[LAYER, :, head // GROUP, : before + token + 1]]
                keys, values = torch.cat(seen, 1)
                expected = plainly(q[head, first + token], keys, values, scoring)
                torch.testing.assert_close(found[first + token, head], expected, atol=2e-3, rtol=2e-3)
        first += new
