"""Attention of decoding rows, against plain softmaxes: on a GPU, or interpreted where triton is installed."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton")

from recollect.engine.cuda import attention_kernels as kernels
from recollect.engine.cuda import prefix_pieces as share
from recollect.engine.cuda.attention_kernels import Prefixes, Together, decode
from recollect.models.attention import Scoring

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
LAYERS, LAYER, KV, GROUP, DIM, CAPACITY = 2, 1, 2, 3, 24, 256
OWN = [0, 1, 63, 64, 200, 130]  # tokens that each row owns before the new one
GROUPS: dict[str, list[tuple[int, list[int]]]] = {  # prefixes: tokens, and the rows that read all or some of them
    "none": [],
    "each its own": [(300, [0]), (1, [2]), (129, [4])],
    "one for all": [(300, [0, 1, 2, 3, 4, 5])],
    "two and one": [(140, [1, 5]), (31, [2])],
}
SCORINGS = [Scoring(0.2), Scoring(0.3, window=90), Scoring(0.3, softcap=4.0), Scoring(0.2, window=500)]


def plainly(q: Any, keys: Any, values: Any, scoring: Scoring) -> Any:
    """One query head over all the keys before it and its own."""
    scores = keys @ q * scoring.scale
    if scoring.softcap is not None:
        scores = scoring.softcap * torch.tanh(scores / scoring.softcap)
    if scoring.window is not None:
        scores[: -scoring.window] = float("-inf")
    return scores.softmax(0) @ values


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("scoring", SCORINGS)
@pytest.mark.parametrize(("programs", "tile"), [(264, 16), (12, 16), (264, 64), (12, 64)])
def test_rows_see_their_prefix_and_their_own(
    groups: str, scoring: Scoring, programs: int, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (kernels, share):
        monkeypatch.setattr(module, "PROGRAMS", programs)
    monkeypatch.setattr(share, "TILES", {tile: share.TILES[tile]})
    torch.manual_seed(0)
    rows, heads = len(OWN), KV * GROUP
    made = lambda *shape: torch.randn(*shape, device=DEVICE)
    q, k, v = made(heads, rows, DIM), made(KV, rows, DIM), made(KV, rows, DIM)
    keys, values = made(rows + 2, KV, CAPACITY, DIM), made(rows + 2, KV, CAPACITY, DIM)
    slot = torch.tensor([5, 0, 1, 7, 3, 2], device=DEVICE)
    own, shared = torch.tensor(OWN, device=DEVICE), torch.zeros(rows, dtype=torch.int64, device=DEVICE)
    memories, prefixes, before = [], None, {}
    for tokens, members in GROUPS[groups]:
        memories.append(made(LAYERS, 2, KV, -(-tokens // 32) * 32, DIM))
        for row in members:
            shared[row] = tokens - row if len(members) > 1 else tokens  # some see less of it
            before[row] = memories[-1][LAYER, :, :, : int(shared[row])]
    if memories:
        alone = max(len(members) for _, members in GROUPS[groups]) == 1
        places = [(m.data_ptr(), m.shape[3]) for m in memories]
        together = None
        if alone:
            by_row = {members[0]: place for (_, members), place in zip(GROUPS[groups], places, strict=True)}
            places = [by_row.get(row, (0, 32)) for row in range(rows)]
        else:
            counts, lengths = [len(m) for _, m in GROUPS[groups]], [int(shared[m].max()) for _, m in GROUPS[groups]]
            pieces = share.divide(lengths, counts, GROUP, KV, rows)
            readers, parts = np.concatenate([m for _, m in GROUPS[groups]]), np.zeros(rows, np.int32)
            parts[readers] = np.repeat(pieces.parts, counts)
            there = [torch.from_numpy(x.astype(np.int32)).to(DEVICE) for x in (readers, pieces.table, parts)]
            together = Together(*there, tile)
        bases, rooms = torch.tensor(places, dtype=torch.int64, device=DEVICE).t().contiguous()
        prefixes = Prefixes(bases, rooms, together)
    counts = torch.zeros(rows * KV, dtype=torch.int32, device=DEVICE)
    for _ in range(2):  # the counts are as they were
        found = decode(q, k, v, keys, values, slot, own, shared, prefixes, counts, LAYER, scoring)
    assert not counts.any()
    for row, n in enumerate(OWN):
        for head in range(heads):
            h, place = head // GROUP, int(slot[row])
            assert torch.equal(keys[place, h, n], k[h, row])
            parts = [(keys[place, h, : n + 1], values[place, h, : n + 1])]
            if row in before:
                parts.insert(0, (before[row][0, h], before[row][1, h]))
            all_keys, all_values = (torch.cat(x) for x in zip(*parts, strict=True))
            expected = plainly(q[head, row], all_keys, all_values, scoring)
            torch.testing.assert_close(found[row, head], expected, atol=1e-4, rtol=1e-4)
