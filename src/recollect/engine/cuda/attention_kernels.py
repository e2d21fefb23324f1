"""Attention of decoding rows: every row's own slot, prefixes that are read once for all rows that share them, merged.

Computes: out[row] = softmax(scale · q K, capped by softcap) V over the row's prefix, its own tokens and its new one,
the last ``window`` of them or all. Where no prefix has two rows, each is the beginning of its row's own tokens. A row's
scores are split over several programs. Each writes a partial output and the logarithm (base 2) of its normaliser; of
the programs that share a row's own keys, the one that ends last merges them all. Lengths, slots and prefix addresses
are read on the device, so one captured graph serves any of them.

`decode` equals `plain_attention.RowsAttention.attend` for one new token of every row; tests/engine/
test_attention_kernels.py compares it with plain softmaxes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from recollect.engine.cuda.prefix_pieces import LARGE_TILE, PROGRAMS, TILES, most_parts
from recollect.models.attention import Scoring


@triton.jit
def _raw(s, scale, softcap, SOFTCAP: tl.constexpr):
    """Scores of products; where they are not capped, the scale is left for `_unit`, which saves a step."""
    if SOFTCAP:
        s = softcap * (2.0 * tl.sigmoid(2.0 * s * scale / softcap) - 1.0)
    return s


@triton.jit
def _unit(scale, SOFTCAP: tl.constexpr):
    """What scores are multiplied by before they become powers of two."""
    if SOFTCAP:
        return 1.4426950408889634
    return scale * 1.4426950408889634


@triton.jit
def _take_in(q, k, v, seen, top, total, out, scale, softcap, MASKED: tl.constexpr, SOFTCAP: tl.constexpr):
    """A tile of keys and values into the running maximum, normaliser and output; MASKED: only what is ``seen``."""
    unit = _unit(scale, SOFTCAP)
    score = _raw(tl.dot(q, tl.trans(k), input_precision="ieee"), scale, softcap, SOFTCAP)
    if MASKED:
        score = tl.where(seen, score, float("-inf"))
    higher = tl.maximum(top, tl.max(score, 1))
    safe = higher
    if MASKED:
        safe = tl.where(higher > float("-inf"), higher, 0.0)
    weight = tl.exp2(score * unit - (safe * unit)[:, None])
    fade = tl.exp2((top - safe) * unit)
    total = total * fade + tl.sum(weight, 1)
    out = out * fade[:, None] + tl.dot(weight.to(v.dtype), v, input_precision="ieee")
    return higher, total, out


@triton.jit
def _merge(
    o_ptr, l_ptr, index, parts, g, d,
    G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Partial outputs of some heads, each weighed by its normaliser; other programs wrote them, so no stale copies."""
    top = tl.full((GP,), float("-inf"), tl.float32)
    total = tl.zeros((GP,), tl.float32)
    out = tl.zeros((GP, DP), tl.float32)
    for start in range(0, parts, P):  # several at a time: their loads wait together
        p = start + tl.arange(0, P)
        there = (g[:, None] < G) & (p[None, :] < parts)
        at = index[:, None] + p[None, :]
        level = tl.load(l_ptr + at, mask=there, other=float("-inf"), cache_modifier=".cg")
        all_of = there[:, :, None] & (d[None, None, :] < D)
        part = tl.load(o_ptr + at[:, :, None] * D + d[None, None, :], mask=all_of, other=0.0, cache_modifier=".cg")
        higher = tl.maximum(top, tl.max(level, 1))
        safe = tl.where(higher > float("-inf"), higher, 0.0)
        fade, weight = tl.exp2(top - safe), tl.exp2(level - safe[:, None])
        total = total * fade + tl.sum(weight, 1)
        out = out * fade[:, None] + tl.sum(part * weight[:, :, None], 1)
        top = higher
    return out / tl.where(total > 0, total, 1.0)[:, None]


@triton.jit
def _memory(address, TYPE: tl.constexpr):
    """Memory whose address is in memory; it is aligned, and a compiler that knows so loads tiles ahead and whole."""
    return tl.multiple_of(tl.load(address).to(tl.pointer_type(TYPE)), 16)


@triton.jit
def _whole(
    q, keys, values, low, edge, top, total, out, scale, softcap, d, D: tl.constexpr, N: tl.constexpr,
    SOFTCAP: tl.constexpr,
):  # fmt: skip
    """Whole tiles of tokens from ``low`` to ``edge``, all of which are seen, into the running numbers."""
    for start in range(low, edge, N):
        spot = (start + tl.arange(0, N))[:, None] * D + d[None, :]
        k = tl.load(keys + spot, mask=d[None, :] < D, other=0.0)
        v = tl.load(values + spot, mask=d[None, :] < D, other=0.0)
        top, total, out = _take_in(q, k, v, True, top, total, out, scale, softcap, False, SOFTCAP)
    return top, total, out


@triton.jit
def _tile(keys, values, t, high, d, D: tl.constexpr):
    """Keys and values of tokens ``t``, of which those from ``high`` on are not there."""
    there = (t[:, None] < high) & (d[None, :] < D)
    spot = t[:, None] * D + d[None, :]
    return tl.load(keys + spot, mask=there, other=0.0), tl.load(values + spot, mask=there, other=0.0)


@triton.jit
def _read(
    q, keys, values, low, high, top, total, out, scale, softcap, d, D: tl.constexpr, N: tl.constexpr,
    SOFTCAP: tl.constexpr,
):  # fmt: skip
    """Tokens ``low`` to ``high``, all of which are seen, into the running numbers: whole tiles, then what is left."""
    edge = low + tl.maximum(high - low, 0) // N * N
    top, total, out = _whole(q, keys, values, low, edge, top, total, out, scale, softcap, d, D, N, SOFTCAP)
    for start in range(edge, high, N):
        t = start + tl.arange(0, N)
        k, v = _tile(keys, values, t, high, d, D)
        top, total, out = _take_in(q, k, v, t[None, :] < high, top, total, out, scale, softcap, True, SOFTCAP)
    return top, total, out


@triton.jit(do_not_specialize=["layer", "S", "ALL"])
def _own(
    q_ptr, k_ptr, v_ptr, keys, values, slot_ptr, own_ptr, shared_ptr, base_ptr, room_ptr, part_ptr, o_ptr, l_ptr,
    count_ptr, out_ptr, scale, softcap, window, q_head, q_row, k_head, k_row, v_head, v_row, c_slot, c_head, heads,
    layer, S, ALL,
    G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, N: tl.constexpr, P: tl.constexpr,
    ALONE: tl.constexpr, JOINT: tl.constexpr, TOGETHER: tl.constexpr, SOFTCAP: tl.constexpr, WINDOW: tl.constexpr,
    TYPE: tl.constexpr,
):  # fmt: skip
    """One row, one key head, one part of the row's own tokens; the first part also stores the new token.

    Computes: softmax(scale · q K) V over part ``s`` of the row's tokens, and log2 of its normaliser. JOINT: a prefix
              that the row alone attends to comes before them. ALONE: there is no other part. Otherwise the last program
              to end merges the row's parts; TOGETHER: and those of a prefix that other rows attend to too.
    Shapes:   q [heads, rows, D]; k, v [kv heads, rows, D]; keys, values [slots, kv heads, capacity, D]; slot, own,
              shared int64 [rows], slot -1 for nobody's row; base, room int64 (addresses and lengths of prefixes
              [layers, 2, kv heads, room, D]); o float32 [rows, heads, ALL, D] and l float32 [rows, heads, ALL] partial
              results; count int32 [rows · kv heads], zeros before and after; out [rows, heads, D].
    Equals:   partial_attention over the row's own tokens; with the merge, all of `decode`.
    """
    row, h, s = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    n = tl.load(own_ptr + row).to(tl.int32)
    before = n * 0
    if JOINT:
        before = tl.load(shared_ptr + row).to(tl.int32)
    first = n * 0
    if WINDOW:
        first = tl.maximum(before + n + 1 - window, 0)
    part = tl.cdiv(tl.cdiv(before + n - first, S), N) * N
    low = first + s * part
    high = tl.minimum(low + part, before + n)
    g, d = tl.arange(0, GP), tl.arange(0, DP)
    real = (g[:, None] < G) & (d[None, :] < D)
    q = tl.load(q_ptr + (h * G + g)[:, None] * q_head + row * q_row + d[None, :], mask=real, other=0.0)
    top = tl.full((GP,), float("-inf"), tl.float32)
    total = tl.zeros((GP,), tl.float32)
    out = tl.zeros((GP, DP), tl.float32)
    slot = tl.load(slot_ptr + row).to(tl.int64)
    place = slot * c_slot + h * c_head
    if s == 0:
        k_new = tl.load(k_ptr + h * k_head + row * k_row + d, mask=d < D, other=0.0)
        v_new = tl.load(v_ptr + h * v_head + row * v_row + d, mask=d < D, other=0.0)
        stored = d < tl.where(slot >= 0, D, 0)
        tl.store(keys + place + n.to(tl.int64) * D + d, k_new, mask=stored)
        tl.store(values + place + n.to(tl.int64) * D + d, v_new, mask=stored)
        one = tl.sum(q.to(tl.float32) * k_new.to(tl.float32)[None, :], 1)
        top = _raw(one, scale, softcap, SOFTCAP)
        total += 1.0
        out += v_new.to(tl.float32)[None, :]
    if JOINT:
        room = tl.multiple_of(tl.load(room_ptr + row).to(tl.int64), 32) * D
        kv = tl.num_programs(1)
        start = _memory(base_ptr + row, TYPE) + (layer * 2 * kv + h) * room
        end = tl.minimum(high, before)
        top, total, out = _read(
            q, start, start + kv * room, low, end, top, total, out, scale, softcap, d, D, N, SOFTCAP
        )
        low = tl.maximum(low, before)
    top, total, out = _read(
        q, keys + place, values + place, low - before, high - before, top, total, out, scale, softcap, d, D, N, SOFTCAP
    )
    some = tl.where(total > 0, total, 1.0)
    final = out_ptr + (row * heads + h * G + g)[:, None] * D + d[None, :]
    if ALONE:
        tl.store(final, (out / some[:, None]).to(out_ptr.dtype.element_ty), mask=real)
    else:
        index = (row * heads + h * G + g) * ALL
        tl.store(o_ptr + (index + s)[:, None] * D + d[None, :], out / some[:, None], mask=real)
        level = top * _unit(scale, SOFTCAP) + tl.log2(some)
        tl.store(l_ptr + index + s, tl.where(total > 0, level, float("-inf")), mask=g < G)
        tl.debug_barrier()
        counter = count_ptr + row * tl.num_programs(1) + h
        if tl.atomic_add(counter, 1) == S - 1:
            parts = S
            if TOGETHER:
                parts += tl.load(part_ptr + row).to(tl.int32)
            made = _merge(o_ptr, l_ptr, index, parts, g, d, G, GP, D, DP, P)
            tl.store(final, made.to(out_ptr.dtype.element_ty), mask=real)
            tl.store(counter, 0)


@triton.jit(do_not_specialize=["layer", "first_part", "ALL"])
def _shared(
    q_ptr, base_ptr, room_ptr, reader_ptr, piece_ptr, own_ptr, shared_ptr, o_ptr, l_ptr, scale, softcap, window,
    q_head, q_row, heads, kv, layer, first_part, ALL,
    G: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
    SOFTCAP: tl.constexpr, WINDOW: tl.constexpr, TYPE: tl.constexpr,
):  # fmt: skip
    """One piece (prefix_pieces.py): some tokens of a prefix for some of its rows, one key head.

    Computes: softmax(scale · q K) V over tokens ``low`` to ``high`` of the prefix, and log2 of its normaliser.
    Shapes:   as `_own`; reader [rows], rows of one prefix side by side; piece [pieces, 6], integers.
    Equals:   plain_attention.partial_attention over that part of the keys.
    """
    h = tl.program_id(1)
    piece = piece_ptr + tl.program_id(0) * 6
    group, first, count = tl.load(piece), tl.load(piece + 1), tl.load(piece + 2)
    low, high, s = tl.load(piece + 3).to(tl.int32), tl.load(piece + 4).to(tl.int32), tl.load(piece + 5)
    if count == 0:
        return
    m, d = tl.arange(0, M), tl.arange(0, DP)
    real = m // G < count
    row = tl.load(reader_ptr + first + m // G, mask=real, other=0)
    n = tl.where(real, tl.load(shared_ptr + row), 0).to(tl.int32)
    all_see = tl.min(tl.where(real, n, high), 0)  # tokens that every reader sees
    low_seen = n * 0
    if WINDOW:
        low_seen = n + tl.load(own_ptr + row).to(tl.int32) + 1 - window
        all_see = low * 0
    head = h * G + m % G
    here = real[:, None] & (d[None, :] < D)
    q = tl.load(q_ptr + head[:, None] * q_head + row[:, None] * q_row + d[None, :], mask=here, other=0.0)
    room = tl.multiple_of(tl.load(room_ptr + group).to(tl.int64), 32)
    memory = _memory(base_ptr + group, TYPE) + layer * 2 * kv * room * D
    keys, values = memory + h * room * D, memory + (kv + h) * room * D
    top = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    out = tl.zeros((M, DP), tl.float32)
    edge = low + tl.maximum(tl.minimum(high, all_see) - low, 0) // N * N
    top, total, out = _whole(q, keys, values, low, edge, top, total, out, scale, softcap, d, D, N, SOFTCAP)
    for start in range(edge, high, N):
        t = start + tl.arange(0, N)
        k, v = _tile(keys, values, t, high, d, D)
        seen = (t[None, :] < n[:, None]) & (t[None, :] < high)
        if WINDOW:
            seen = seen & (t[None, :] >= low_seen[:, None])
        top, total, out = _take_in(q, k, v, seen, top, total, out, scale, softcap, True, SOFTCAP)
    some = tl.where(total > 0, total, 1.0)
    index = (row * heads + head) * ALL + first_part + s
    tl.store(o_ptr + index[:, None] * D + d[None, :], out / some[:, None], mask=here)
    level = top * _unit(scale, SOFTCAP) + tl.log2(some)
    tl.store(l_ptr + index, tl.where(total > 0, level, float("-inf")), mask=real)


TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
OWN_PARTS, OWN_MERGED = 16, 256  # programs, at most, that a row's tokens are split over; numbers merged at a time
OWN_TILE = (64, 2, 3)  # keys, warps and stages of a program that attends to a row's own tokens
JOINT_PARTS, JOINT_MERGED, JOINT_TILE = 32, 2048, (64, 4, 3)  # the same where a prefix comes before them
SPARE = 8192  # bytes of shared memory that are left for what a compiler keeps there


@cache
def _shared_memory(device: torch.device) -> int:
    """Bytes that a program may keep next to its multiprocessor."""
    if device.type != "cuda":
        return 1 << 20
    return int(torch.cuda.get_device_properties(device).shared_memory_per_block_optin)  # type: ignore[attr-defined]


def _fitting(tile: tuple[int, int, int], queries: int, width: int, q: Tensor) -> tuple[int, int, int]:
    """Keys, warps and stages: fewer keys where heads are wide and queries few, and of both what there is room for."""
    keys, warps, stages = tile
    if queries == 16 and width > 64:
        keys = min(keys, 64)
    each = width * q.element_size()
    room = _shared_memory(q.device) - SPARE - queries * each
    while keys > 16 and 2 * keys * each > room:
        keys //= 2
    return keys, warps, max(1, min(stages, room // (2 * keys * each)))


@dataclass(frozen=True)
class Together:
    """Which rows attend to prefixes, and how programs do so for them (prefix_pieces.py)."""

    readers: Tensor  # rows, those of a prefix side by side
    pieces: Tensor
    parts: Tensor  # [rows] into how many parts each row's prefix is cut
    tile: int


@dataclass(frozen=True)
class Prefixes:
    """Prefixes that rows attend to: memory [layers, 2, kv heads, room, dim] at ``bases``.

    Where none has two rows they are not attended to together, and bases and rooms are those of rows.
    """

    bases: Tensor
    rooms: Tensor
    together: Together | None = None


def decode(
    q: Tensor, k: Tensor, v: Tensor, keys: Tensor, values: Tensor, slot: Tensor, own: Tensor, shared: Tensor,
    prefixes: Prefixes | None, counts: Tensor, layer: int, scoring: Scoring,
) -> Tensor:  # fmt: skip
    """Queries [heads, rows, dim] of one new token for each row → [rows, heads, dim]; the new keys are stored.

    ``keys`` and ``values`` are [slots, kv heads, capacity, dim]. ``counts`` are zeros, at least [rows · kv heads], and
    are left as zeros.
    """
    heads, rows, dim = q.shape
    kv, width = k.shape[0], max(16, triton.next_power_of_2(dim))
    group = heads // kv
    together = prefixes.together if prefixes is not None else None
    joint = prefixes is not None and together is None
    step, warps, stages = _fitting(JOINT_TILE if joint else OWN_TILE, 16, width, q)
    most = JOINT_PARTS if joint else min(OWN_PARTS, keys.shape[2] // step)
    own_parts = max(1, min(most, PROGRAMS // (rows * kv)))
    scale, window, softcap = scoring
    common = {"SOFTCAP": softcap is not None, "WINDOW": window is not None, "D": dim, "DP": width, "G": group}
    common["TYPE"] = TYPES[q.dtype]
    limits = (scale, softcap or 0.0, window or 0)
    every = own_parts + (0 if together is None else most_parts(rows))
    at_once = (JOINT_MERGED if joint else OWN_MERGED) // width
    partial = torch.empty(rows, heads, every, dim, device=q.device, dtype=torch.float32)
    weights = torch.empty(rows, heads, every, device=q.device, dtype=torch.float32)
    bases, rooms = (prefixes.bases, prefixes.rooms) if prefixes is not None else (None, None)
    if together is not None:
        keys_each, *some = _fitting(TILES.get(together.tile, LARGE_TILE), together.tile, width, q)
        _shared[(len(together.pieces), kv)](
            q, bases, rooms, together.readers, together.pieces, own, shared, partial, weights, *limits,
            q.stride(0), q.stride(1), heads, kv, layer, own_parts, every,
            M=together.tile, N=keys_each, **common, num_warps=some[0], num_stages=some[1],
        )  # fmt: skip
    out = torch.empty(rows, heads, dim, device=q.device, dtype=q.dtype)
    parts = None if together is None else together.parts
    _own[(rows, kv, own_parts)](
        q, k, v, keys, values, slot, own, shared, bases, rooms, parts, partial, weights, counts, out, *limits,
        q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1), keys.stride(0), keys.stride(1),
        heads, layer, own_parts, every, GP=max(16, triton.next_power_of_2(group)), N=step,
        P=max(1, min(at_once, triton.next_power_of_2(every))), ALONE=every == 1, JOINT=joint,
        TOGETHER=together is not None, **common, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out
