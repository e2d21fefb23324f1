"""Attention of prompts that are prefilled, whatever they share: one kernel over a table of tiles.

A tile is some new tokens of one sequence, side by side in the flat batch. They attend to all of a prefix (its first
``span``), and to the tokens of their own place up to themselves. The new keys and values are in their places before the
kernel runs, so a tile only has to know addresses, which are read on the device: one captured graph serves any batch.
`attend_tiles` equals causal attention over each sequence; tests/engine/test_prefill_kernel.py compares it with that.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from recollect.engine.cuda.attention_kernels import TYPES, _fitting, _read, _take_in, _tile, _whole
from recollect.models.attention import Scoring

COLUMNS = 10  # of the table: see `_attend_tiles`
TILE = 64  # new tokens of a tile
KEYS_TILE = (64, 4, 3)  # keys that are read at a time, warps and stages
PROGRAMS = 528  # for each head: four for each multiprocessor of a large GPU, which take tiles in turn


@triton.jit
def _place(base, by_kind, by_head, head, layer, TYPE: tl.constexpr):
    """Where a layer's keys of a head begin; its values follow after ``by_kind`` numbers."""
    start = base.to(tl.pointer_type(TYPE)) + layer * 2 * by_kind + head * by_head
    return tl.multiple_of(start, 16)


@triton.jit(do_not_specialize=["layer"])
def _attend_tiles(
    q_ptr, out_ptr, table, count_ptr, scale, softcap, window, q_head, q_row, heads, layer,
    G: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, M: tl.constexpr, N: tl.constexpr, TYPE: tl.constexpr,
    SOFTCAP: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """Some tiles of one query head.

    Computes: out = softmax(scale · q K, capped by softcap) V over the first ``span`` tokens of a prefix and the tokens
              of the sequence's own place, up to the query's own; the last ``window`` of them or all.
    Shapes:   q [heads, tokens, D]; out [tokens, heads, D]; table int64 [tiles, 10]: first token and tokens of the tile;
              address, numbers from keys to values and from head to head, and span of the prefix; the same of the own
              place, with the tokens that are there before the tile's first; count int64 [1], the tiles.
    Equals:   scaled_dot_product_attention of each sequence with a causal mask.
    """
    h = tl.program_id(1)
    m, d = tl.arange(0, M), tl.arange(0, DP)
    count = tl.load(count_ptr).to(tl.int32)
    for tile in range(tl.program_id(0), count, tl.num_programs(0)):
        row = table + tile * 10
        first, size = tl.load(row), tl.load(row + 1).to(tl.int32)
        span, before = tl.load(row + 5).to(tl.int32), tl.load(row + 9).to(tl.int32)
        here = (m[:, None] < size) & (d[None, :] < D)
        q = tl.load(q_ptr + h * q_head + (first + m[:, None]) * q_row + d[None, :], mask=here, other=0.0)
        top = tl.full((M,), float("-inf"), tl.float32)
        total = tl.zeros((M,), tl.float32)
        out = tl.zeros((M, DP), tl.float32)
        by_kind = tl.load(row + 3)
        keys = _place(tl.load(row + 2), by_kind, tl.load(row + 4), h // G, layer, TYPE)
        low = span * 0
        if WINDOW:
            low = tl.maximum(span + before + 1 - window, 0)
            for start in range(low // N * N, span, N):
                t = start + tl.arange(0, N)
                k, v = _tile(keys, keys + by_kind, t, span, d, D)
                seen = (t[None, :] < span) & (t[None, :] + window > span + before + m[:, None])
                top, total, out = _take_in(q, k, v, seen, top, total, out, scale, softcap, True, SOFTCAP)
            low = tl.maximum(low - span, 0) // N * N
        else:
            top, total, out = _read(q, keys, keys + by_kind, 0, span, top, total, out, scale, softcap, d, D, N, SOFTCAP)
        by_kind = tl.load(row + 7)
        keys = _place(tl.load(row + 6), by_kind, tl.load(row + 8), h // G, layer, TYPE)
        if not WINDOW:
            edge = (before + 1) // N * N  # every token of the tile sees what is before this
            top, total, out = _whole(
                q, keys, keys + by_kind, 0, edge, top, total, out, scale, softcap, d, D, N, SOFTCAP
            )
            low = edge
        for start in range(low, before + size, N):
            t = start + tl.arange(0, N)
            k, v = _tile(keys, keys + by_kind, t, before + size, d, D)
            seen = t[None, :] <= before + m[:, None]
            if WINDOW:
                seen = seen & (t[None, :] + window > before + m[:, None])
            top, total, out = _take_in(q, k, v, seen, top, total, out, scale, softcap, True, SOFTCAP)
        made = out / tl.where(total > 0, total, 1.0)[:, None]
        at = (first + m[:, None]) * heads + h
        tl.store(out_ptr + at * D + d[None, :], made.to(out_ptr.dtype.element_ty), mask=here)


def attend_tiles(q: Tensor, table: Tensor, count: Tensor, kv_heads: int, layer: int, scoring: Scoring) -> Tensor:
    """Queries [heads, tokens, dim] of new tokens → [tokens, heads, dim]; ``table`` and ``count`` as the kernel says.

    Tokens of no tile get nothing written.
    """
    heads, tokens, dim = q.shape
    out = torch.empty(tokens, heads, dim, device=q.device, dtype=q.dtype)
    width = max(16, triton.next_power_of_2(dim))
    keys, warps, stages = _fitting(KEYS_TILE, TILE, width, q)
    scale, window, softcap = scoring
    _attend_tiles[(min(PROGRAMS, len(table)), heads)](
        q, out, table, count, scale, softcap or 0.0, window or 0, q.stride(0), q.stride(1), heads, layer,
        G=heads // kv_heads, D=dim, DP=width, M=TILE, N=keys, TYPE=TYPES[q.dtype], SOFTCAP=softcap is not None,
        WINDOW=window is not None, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out
