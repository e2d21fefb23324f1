"""What lies between the matrix products of a layer during prefill: one kernel each, cheap for the host to launch.

A prompt of a small model is prefilled faster than the library's layers can be called, so the GPU would wait for the
host. tests/engine/test_kernels.py compares each kernel with the plain function that it equals.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from recollect.engine.cuda.attention_kernels import TYPES
from recollect.engine.cuda.matmuls import NormWeight

SILU_BLOCK = 1024  # outputs of a program
STORED = 16  # tokens of a program


@triton.jit
def _rms_norm(x, more, weight, total, out, eps, K: tl.constexpr, P: tl.constexpr, ADD: tl.constexpr):
    """RMS norm of one row; ADD: of the sum of two.

    Computes: total = x + more (ADD); out = total / sqrt(mean(total²) + eps) · weight.
    Shapes:   x, more, total, out [rows, K]; weight [K]; half or float, sums float32.
    Equals:   LlamaRMSNorm of x, or of x + more.
    """
    k = tl.arange(0, P)
    at = tl.program_id(0).to(tl.int64) * K + k
    number = tl.load(x + at, mask=k < K, other=0.0).to(tl.float32)
    if ADD:
        number += tl.load(more + at, mask=k < K, other=0.0).to(tl.float32)
        rounded = number.to(out.dtype.element_ty)
        tl.store(total + at, rounded, mask=k < K)
        number = rounded.to(tl.float32)
    by = tl.rsqrt(tl.sum(number * number, 0) / K + eps) * tl.load(weight + k, mask=k < K, other=0.0).to(tl.float32)
    tl.store(out + at, (number * by).to(out.dtype.element_ty), mask=k < K)


@triton.jit
def _select_load(first, a, b, there):
    """What one or the other pointer points at."""
    one, two = tl.load(a, mask=there, other=0.0), tl.load(b, mask=there, other=0.0)
    return tl.where(first, one, two).to(tl.float32)


@triton.jit
def _rope(
    x, cos, sin, q_norm, k_norm, eps, size, queries, rope_heads,
    HALF: tl.constexpr, P: tl.constexpr, H: tl.constexpr, HEAD_NORM: tl.constexpr,
):  # fmt: skip
    """Norms and rope of the queries and keys of one token, in place.

    Computes: for each of the first ``rope_heads`` heads y = norm(x) (HEAD_NORM) or x, and then
              (y1 cos - y2 sin, y2 cos + y1 sin) for its halves y1 and y2.
    Shapes:   x [tokens, size], heads of 2 HALF side by side; cos, sin [tokens, 2 HALF]; q_norm (of the first
              ``queries`` heads), k_norm [2 HALF]; half or float.
    Equals:   q_norm, k_norm and apply_rotary_pos_emb of the library's attention.
    """
    token = tl.program_id(0).to(tl.int64)
    h, d = tl.arange(0, H)[:, None], tl.arange(0, P)[None, :]
    real = (h < rope_heads) & (d < HALF)
    at = x + token * size + h * 2 * HALF + d
    one = tl.load(at, mask=real, other=0.0).to(tl.float32)
    two = tl.load(at + HALF, mask=real, other=0.0).to(tl.float32)
    if HEAD_NORM:
        by = tl.rsqrt((tl.sum(one * one, 1) + tl.sum(two * two, 1)) / (2 * HALF) + eps)[:, None]
        one *= by * _select_load(h < queries, q_norm + d, k_norm + d, d < HALF)
        two *= by * _select_load(h < queries, q_norm + HALF + d, k_norm + HALF + d, d < HALF)
    c = tl.load(cos + token * 2 * HALF + d, mask=d < HALF, other=0.0).to(tl.float32)
    s = tl.load(sin + token * 2 * HALF + d, mask=d < HALF, other=0.0).to(tl.float32)
    tl.store(at, (one * c - two * s).to(x.dtype.element_ty), mask=real)
    tl.store(at + HALF, (two * c + one * s).to(x.dtype.element_ty), mask=real)


@triton.jit
def _silu_mul(x, out, size, N: tl.constexpr):
    """The gate of an MLP: some outputs of one row.

    Computes: out = silu(gate) · up, where x = [gate, up].
    Shapes:   x [rows, 2 size]; out [rows, size]; half or float.
    Equals:   F.silu(gate) * up.
    """
    row, n = tl.program_id(0).to(tl.int64), tl.program_id(1) * N + tl.arange(0, N)
    gate = tl.load(x + row * 2 * size + n, mask=n < size, other=0.0).to(tl.float32)
    up = tl.load(x + row * 2 * size + size + n, mask=n < size, other=0.0).to(tl.float32)
    tl.store(out + row * size + n, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=n < size)


@triton.jit
def _store_kv(
    k, v, places, by_row, tokens, layer, k_head, k_row, v_head, v_row,
    D: tl.constexpr, DP: tl.constexpr, N: tl.constexpr, TYPE: tl.constexpr,
):  # fmt: skip
    """Store keys and values of some tokens and one head in the KV cache.

    Computes: for each token, layer and head: cache[address] = k, cache[address + distance of values] = v.
    Shapes:   k, v [tokens, kv heads, D]; places int64 [3, tokens] as `store_kv` says.
    Equals:   cache.keys[layer][slot, head, :, place] = k, and so the values, of a DeviceCache or a Prefix.
    """
    h, t, d = tl.program_id(1), tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, DP)[None, :]
    there = t < tokens
    base = tl.load(places + t, mask=there, other=0)
    there = base != 0
    by_head = tl.load(places + by_row + t, mask=there, other=0)
    by_kind = tl.load(places + 2 * by_row + t, mask=there, other=0)
    real = there[:, None] & (d < D)
    row = t[:, None].to(tl.int64)
    key = tl.load(k + h * k_head + row * k_row + d, mask=real, other=0.0)
    value = tl.load(v + h * v_head + row * v_row + d, mask=real, other=0.0)
    at = base.to(tl.pointer_type(TYPE)) + layer * 2 * by_kind + h * by_head
    tl.store(at[:, None] + d, key, mask=real)
    tl.store((at + by_kind)[:, None] + d, value, mask=real)


def rms_norm(x: Tensor, norm: NormWeight) -> Tensor:
    """RMS norm of [rows, width]."""
    out, width = torch.empty_like(x), x.shape[1]
    power = triton.next_power_of_2(width)
    _rms_norm[(len(x),)](x, None, norm.weight, None, out, norm.eps, K=width, P=power, ADD=False)
    return out


def add_rms_norm(x: Tensor, more: Tensor, norm: NormWeight) -> tuple[Tensor, Tensor]:
    """The sum of two [rows, width], and its RMS norm."""
    total, out, width = torch.empty_like(x), torch.empty_like(x), x.shape[1]
    power = triton.next_power_of_2(width)
    _rms_norm[(len(x),)](x, more, norm.weight, total, out, norm.eps, K=width, P=power, ADD=True)
    return total, out


def rope(
    x: Tensor, cos_sin: tuple[Tensor, Tensor], heads: tuple[int, int, int], norms: tuple[NormWeight, NormWeight] | None
) -> Tensor:
    """[tokens, all heads · dim] queries, keys and values; queries and keys get rope, in place."""
    (count, size), (queries, keys, dim) = x.shape, heads
    q_norm, k_norm = norms or (None, None)
    _rope[(count,)](
        x, *cos_sin, q_norm and q_norm.weight, k_norm and k_norm.weight, q_norm.eps if q_norm else 0.0, size, queries,
        queries + keys, HALF=dim // 2, P=triton.next_power_of_2(dim // 2), H=triton.next_power_of_2(queries + keys),
        HEAD_NORM=norms is not None,
    )  # fmt: skip
    return x


def silu_mul(x: Tensor) -> Tensor:
    """silu(gate) · up of [rows, gates and ups]."""
    count, size = len(x), x.shape[1] // 2
    out = x.new_empty(count, size)
    _silu_mul[(count, triton.cdiv(size, SILU_BLOCK))](x, out, size, N=SILU_BLOCK)
    return out


def store_kv(k: Tensor, v: Tensor, places: Tensor, layer: int) -> None:
    """Keys and values [tokens, kv heads, dim] of a layer, to ``places``.

    For each token: the address of its first key (0: it has no place), and how many numbers lie from one head to the
    next, and from keys to values, which lie between those of two layers.
    """
    count, heads, dim = k.shape
    _store_kv[(triton.cdiv(count, STORED), heads)](
        k, v, places, places.stride(0), count, layer, k.stride(1), k.stride(0), v.stride(1), v.stride(0),
        D=dim, DP=triton.next_power_of_2(dim), N=STORED, TYPE=TYPES[k.dtype],
    )  # fmt: skip
