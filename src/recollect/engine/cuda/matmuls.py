"""The matrix products of a layer when a few rows decode, each with what comes before and after it in one kernel.

A step of a small model is some two hundred short kernels, and most of them norm, add, gate or rotate (rope) what a
product made. Here a layer is four products and its attention; rope, gates and additions follow a product in registers.
The kernel that adds to a row also stores it times the next norm's weight, and sums of squares: the next product reads
these and scales its own sums. Where a product has too few programs for a GPU, several share its sums; the last of them
to end adds these up, in a fixed order. tests/engine/test_kernels.py compares each with the plain function that it
equals.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True)
class NormWeight:
    """x / rms(x) * weight."""

    weight: Tensor
    eps: float


@dataclass(frozen=True)
class ResidualRows:
    """The residual rows between two products: themselves, times a norm's weight, and sums of squares of parts."""

    x: Tensor  # [rows, width]
    weighed: Tensor
    squares: Tensor  # [rows, parts]
    norm: NormWeight

    @staticmethod
    def like(x: Tensor, norm: NormWeight, parts: int) -> ResidualRows:
        """Room for rows of the same kind."""
        return ResidualRows(
            torch.empty_like(x), torch.empty_like(x), x.new_empty(len(x), parts, dtype=torch.float32), norm
        )


@dataclass(frozen=True)
class Tile:
    """How a product is cut: outputs and inputs of a step of a program, programs that share sums, warps and stages."""

    outputs: int
    inputs: int
    splits: int = 1
    warps: int = 4
    stages: int = 4

    def fit(self, x: Tensor, rows: int, outputs: int, blocks: int = 1) -> Tile:
        """The same for inputs ``x`` and a number of outputs, which blocks divide, and a GPU's shared memory."""
        n, k = (min(most, size & -size) for most, size in ((self.outputs, outputs), (self.inputs, x.shape[1])))
        fitting = SHARED_BYTES // ((rows + blocks * n) * k * x.itemsize)
        return Tile(n, k, min(self.splits, x.shape[1] // k), self.warps, max(2, min(self.stages, fitting)))


SHARED_BYTES = 160_000  # what a program may keep of its next steps
LEAST, MOST_ROWS = 16, 64  # rows of a program: a tensor core's tile at least
GATE_TILE, QKV_TILE, OUT_TILE = Tile(32, 64, stages=6), Tile(16, 64, stages=6), Tile(16, 128)
DOWN_TILE, FEW_DOWN_TILE = (
    Tile(32, 64, 4, stages=8),
    Tile(32, 128, 8),
)  # where there are few rows, programs have less to add up
FEW = 16


@triton.jit
def _start_rows(x, norm, weighed, squares, K: tl.constexpr, P: tl.constexpr):
    """A row before its first product.

    Computes: weighed = x · norm, squares = Σ x², for one row; the product that follows divides by the rms.
    Shapes:   x, weighed [rows, K], norm [K], half or float; squares float32 [rows].
    Equals:   x * norm and x.float().square().sum(-1).
    """
    row, k = tl.program_id(0), tl.arange(0, P)
    numbers = tl.load(x + row * K + k, mask=k < K, other=0.0)
    number = numbers.to(tl.float32)
    made = number * tl.load(norm + k, mask=k < K, other=0.0).to(tl.float32)
    tl.store(weighed + row * K + k, made.to(numbers.dtype), mask=k < K)
    tl.store(squares + row, tl.sum(number * number, 0))


@triton.jit
def _norm_matmul_pair(
    x, squares, weight, bias, cos, sin, q_norm, k_norm, out, eps, head_eps, rows, parts, size, half, rope_heads,
    queries,
    K: tl.constexpr, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr, PARTS: tl.constexpr, BIAS: tl.constexpr,
    HEADS: tl.constexpr, HEAD_NORM: tl.constexpr,
):  # fmt: skip
    """RMS norm, a matrix product and what follows it: rope (HEADS), or a gate.

    Computes: y = norm(x) Wᵀ + bias for two blocks of N outputs that belong together, ``half`` apart. HEADS: they are
              halves of a head; the first ``rope_heads`` heads are normed (HEAD_NORM) and get rope,
              (y1 cos - y2 sin, y2 cos + y1 sin). Otherwise they are a gate and what it gates: silu(y1) y2.
    Shapes:   x (times the norm's weight) [rows, K]; squares float32 [rows, parts]; weight [outputs, K]; bias
              [outputs]; cos, sin [rows, 2 half]; q_norm (of the first ``queries`` heads), k_norm [2 half]; out
              [rows, size]. Half or float; sums are float32.
    Equals:   F.linear(rms_norm(x), weight, bias), then apply_rotary_pos_emb of queries and keys, or F.silu(a) * b.
    """
    m, n = tl.program_id(1) * M + tl.arange(0, M), tl.arange(0, N)
    there = m[:, None] < rows
    head = 0
    inside = tl.program_id(0) * N + n
    first = inside
    if HEADS:
        head = tl.program_id(0) * N // half
        inside = inside - head * half
        first = head * 2 * half + inside
    p = tl.arange(0, PARTS)[None, :]
    sums = tl.load(squares + m[:, None] * parts + p, mask=there & (p < parts), other=0.0)
    one, two = tl.zeros((M, N), tl.float32), tl.zeros((M, N), tl.float32)
    k = tl.arange(0, B)
    xs = x + m[:, None] * K + k[None, :]
    firsts = weight + first[None, :].to(tl.int64) * K + k[:, None]
    seconds = firsts + half.to(tl.int64) * K
    for _ in range(0, K, B):
        tile = tl.load(xs, mask=there, other=0.0)
        one = tl.dot(tile, tl.load(firsts), one, input_precision="ieee")
        two = tl.dot(tile, tl.load(seconds), two, input_precision="ieee")
        xs, firsts, seconds = xs + B, firsts + B, seconds + B
    scale = tl.rsqrt(tl.sum(sums, 1) / K + eps)[:, None]
    one, two = one * scale, two * scale
    if BIAS:
        one += tl.load(bias + first).to(tl.float32)[None, :]
        two += tl.load(bias + first + half).to(tl.float32)[None, :]
    place = out + m[:, None] * size + first[None, :]
    if HEADS:
        if HEAD_NORM and head < rope_heads:
            by = tl.rsqrt((tl.sum(one * one, 1) + tl.sum(two * two, 1)) / (2 * N) + head_eps)[:, None]
            which = tl.where(head < queries, q_norm, k_norm)
            one *= by * tl.load(which + n).to(tl.float32)[None, :]
            two *= by * tl.load(which + N + n).to(tl.float32)[None, :]
        if head < rope_heads:
            at = m[:, None] * 2 * half + inside[None, :]
            c = tl.load(cos + at, mask=there, other=0.0).to(tl.float32)
            s = tl.load(sin + at, mask=there, other=0.0).to(tl.float32)
            one, two = one * c - two * s, two * c + one * s
        tl.store(place + half, two.to(out.dtype.element_ty), mask=there)
    else:
        one = one * tl.sigmoid(one) * two
    tl.store(place, one.to(out.dtype.element_ty), mask=there)


@triton.jit
def _matmul_add(
    x, weight, bias, before, norm, out, weighed, squares, sums, counts, rows, size,
    K: tl.constexpr, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr, SPLITS: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """A matrix product added to the residual, and what the next norm needs.

    Computes: out = before + x Wᵀ + bias; weighed = out · norm; squares = Σ out² of N outputs. SPLITS programs each take
              a part of the K inputs; the last to end adds their sums up.
    Shapes:   x [rows, K]; weight [size, K]; bias, norm [size]; before, out, weighed [rows, size], half or float;
              squares float32 [rows, blocks]; sums float32 [SPLITS, rows, size]; counts int32, zeros before and after.
    Equals:   before + F.linear(x, weight, bias), times norm, and its squares.
    """
    block, split, blocks = tl.program_id(0), tl.program_id(1), tl.num_programs(0)
    m, n = tl.program_id(2) * M + tl.arange(0, M), block * N + tl.arange(0, N)
    there = m[:, None] < rows
    made = tl.zeros((M, N), tl.float32)
    part: tl.constexpr = (K // B + SPLITS - 1) // SPLITS * B
    low = split * part
    k = low + tl.arange(0, B)
    xs = x + m[:, None] * K + k[None, :]
    ws = weight + n[None, :].to(tl.int64) * K + k[:, None]
    for _ in range(low, tl.minimum(low + part, K), B):
        made = tl.dot(tl.load(xs, mask=there, other=0.0), tl.load(ws), made, input_precision="ieee")
        xs, ws = xs + B, ws + B
    at = m[:, None] * size + n[None, :]
    last = True
    if SPLITS > 1:
        tl.store(sums + split * rows * size + at, made, mask=there)
        tl.debug_barrier()
        counter = counts + tl.program_id(2) * blocks + block
        last = tl.atomic_add(counter, 1) == SPLITS - 1
        if last:
            made = tl.zeros((M, N), tl.float32)
            for s in tl.static_range(SPLITS):
                made += tl.load(sums + s * rows * size + at, mask=there, other=0.0, cache_modifier=".cg")
            tl.store(counter, 0)
    if last:
        if BIAS:
            made += tl.load(bias + n).to(tl.float32)[None, :]
        made += tl.load(before + at, mask=there, other=0.0).to(tl.float32)
        rounded = made.to(out.dtype.element_ty)
        tl.store(out + at, rounded, mask=there)
        made = rounded.to(tl.float32)
        by_weight = made * tl.load(norm + n).to(tl.float32)[None, :]
        tl.store(weighed + at, by_weight.to(out.dtype.element_ty), mask=there)
        tl.store(squares + m * blocks + block, tl.sum(made * made, 1), mask=m < rows)


def start_rows(x: Tensor, norm: NormWeight) -> ResidualRows:
    """Rows before the first product, which norms them."""
    rows, width = x.shape
    made = ResidualRows(x, torch.empty_like(x), x.new_empty(rows, 1, dtype=torch.float32), norm)
    _start_rows[(rows,)](x, norm.weight, made.weighed, made.squares, K=width, P=triton.next_power_of_2(width))
    return made


def _row_tile(rows: int) -> int:
    return max(LEAST, min(MOST_ROWS, triton.next_power_of_2(rows)))


def gated_matmul(rows: ResidualRows, weight: Tensor, tile: Tile = GATE_TILE) -> Tensor:
    """silu(gate) · up [rows, size] of normed rows; the weight is [gates and ups, width]."""
    (count, width), size = rows.x.shape, len(weight) // 2
    m, parts = _row_tile(count), rows.squares.shape[1]
    cut = tile.fit(rows.x, m, size, 2)
    out = rows.x.new_empty(count, size)
    _norm_matmul_pair[(size // cut.outputs, triton.cdiv(count, m))](
        rows.weighed, rows.squares, weight, None, None, None, None, None, out, rows.norm.eps, 0.0, count, parts, size,
        size, 0, 0, K=width, M=m, N=cut.outputs, B=cut.inputs, PARTS=triton.next_power_of_2(parts), BIAS=False,
        HEADS=False, HEAD_NORM=False, num_warps=cut.warps, num_stages=cut.stages,
    )  # fmt: skip
    return out


def qkv_rope(
    rows: ResidualRows, weight: Tensor, bias: Tensor | None, cos_sin: tuple[Tensor, Tensor],
    heads: tuple[int, int, int], norms: tuple[NormWeight, NormWeight] | None = None, tile: Tile = QKV_TILE,
) -> Tensor:  # fmt: skip
    """Queries, keys and values [rows, all heads, dim] of normed rows; queries and keys have rope.

    ``heads`` are the numbers of query and key heads and their width; ``norms`` are those of queries and keys.
    """
    (count, width), (queries, keys, dim) = rows.x.shape, heads
    m, parts = _row_tile(count), rows.squares.shape[1]
    wanted = tile if norms is None else replace(tile, outputs=dim // 2)  # a head's norm needs all of the head
    cut = wanted.fit(rows.x, m, dim // 2, 2)
    out = rows.x.new_empty(count, queries + 2 * keys, dim)
    q_norm, k_norm = norms or (None, None)
    _norm_matmul_pair[((queries + 2 * keys) * (dim // 2 // cut.outputs), triton.cdiv(count, m))](
        rows.weighed, rows.squares, weight, bias, *cos_sin, q_norm and q_norm.weight, k_norm and k_norm.weight, out,
        rows.norm.eps, q_norm.eps if q_norm else 0.0, count, parts, out.stride(0), dim // 2, queries + keys, queries,
        K=width, M=m, N=cut.outputs, B=cut.inputs, PARTS=triton.next_power_of_2(parts),
        BIAS=bias is not None, HEADS=True, HEAD_NORM=norms is not None, num_warps=cut.warps, num_stages=cut.stages,
    )  # fmt: skip
    return out


def matmul_add(
    x: Tensor, weight: Tensor, bias: Tensor | None, rows: ResidualRows, norm: NormWeight, counts: Tensor, tile: Tile
) -> ResidualRows:
    """The residual rows plus a product [rows, width], to be normed next. ``counts`` are zeros and are left as zeros.

    There must be one for each block of outputs and of rows.
    """
    (count, width), size = x.shape, len(weight)
    m = _row_tile(count)
    cut = tile.fit(x, m, size)
    blocks, splits = size // cut.outputs, cut.splits
    out = ResidualRows.like(rows.x, norm, blocks)
    sums = x.new_empty(splits, count, size, dtype=torch.float32) if splits > 1 else None
    _matmul_add[(blocks, splits, triton.cdiv(count, m))](
        x, weight, bias, rows.x, norm.weight, out.x, out.weighed, out.squares, sums, counts, count, size,
        K=width, M=m, N=cut.outputs, B=cut.inputs, SPLITS=splits, BIAS=bias is not None,
        num_warps=cut.warps, num_stages=cut.stages,
    )  # fmt: skip
    return out
