"""Two parts of an attention merged by their normalisers, in one pass over them (Triton)."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

TOKENS = 16  # that a program merges


@triton.jit
def _merge(
    out, total, part, weight, place, n, o_token, o_head, t_head, p_token, p_head, w_head,
    D: tl.constexpr, DP: tl.constexpr, N: tl.constexpr, SOME: tl.constexpr,
):  # fmt: skip
    """Two softmaxes over disjoint keys merged into one: some tokens of one head.

    Computes: total' = log(exp(total) + exp(weight)); out' = out + exp(weight - total') (part - out). In place.
    Shapes:   out [tokens, heads, dim] and part [n, heads, dim] half or float; total [heads, tokens] and weight
              [heads, n] float32; place int64 [n]: which tokens of ``out`` (SOME), else all.
    Equals:   `tree_attention.merge` on a CPU; tests/engine/test_kernels.py compares them.
    """
    head = tl.program_id(1)
    t, d = tl.program_id(0) * N + tl.arange(0, N), tl.arange(0, DP)
    there = t < n
    at = t.to(tl.int64)
    if SOME:
        at = tl.load(place + t, mask=there, other=0)
    before = tl.load(total + head * t_head + at, mask=there, other=0.0)
    more = tl.load(weight + head * w_head + t, mask=there, other=0.0)
    top = tl.maximum(before, more)
    both = top + tl.log(tl.exp(before - top) + tl.exp(more - top))
    share = tl.exp(more - both)[:, None]
    real = there[:, None] & (d[None, :] < D)
    old_at = out + at[:, None] * o_token + head * o_head + d[None, :]
    old = tl.load(old_at, mask=real, other=0.0).to(tl.float32)
    new = tl.load(part + t.to(tl.int64)[:, None] * p_token + head * p_head + d[None, :], mask=real, other=0.0)
    made = old + share * (new.to(tl.float32) - old)
    tl.store(old_at, made.to(out.dtype.element_ty), mask=real)
    tl.store(total + head * t_head + at, both, mask=there)


def merge_kernel(out: Tensor, total: Tensor, part: Tensor, weight: Tensor, place: Tensor | None) -> None:
    """Take ``part`` [tokens, heads, dim] into ``out`` (at ``place``); normalisers are [heads, tokens]."""
    n, heads, dim = part.shape
    _merge[(triton.cdiv(n, TOKENS), heads)](
        out, total, part, weight, out if place is None else place, n, out.stride(0), out.stride(1), total.stride(0),
        part.stride(0), part.stride(1), weight.stride(0),
        D=dim, DP=triton.next_power_of_2(dim), N=TOKENS, SOME=place is not None,
    )  # fmt: skip
