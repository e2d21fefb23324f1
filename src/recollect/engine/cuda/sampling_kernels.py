"""Sampling from a large vocabulary on a GPU: two small kernels instead of passes over all logits.

The first sums up blocks of the vocabulary. The second finds the block, then the token, where the cumulative
distribution passes the row's random number, and moves the row on, unless it has ended. The random number is that of
`engine.noise`. The result of a row is its token, and in the bits above it whether and how the row has ended.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096  # tokens of the vocabulary that are summed up together
SHIFT = 32  # of what is said about a row's end: 1 by a stop token, 2 at its limit, 3 both


@triton.jit
def _load(logits, temperature, row, block, V, stride, BLOCK: tl.constexpr):
    """One row's logits of a block at its temperature; greedy rows are reported at temperature 1."""
    temp = tl.load(temperature + row).to(tl.float32)
    at = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + row.to(tl.int64) * stride + at, mask=at < V, other=float("-inf")).to(tl.float32)
    return x / tl.where(temp > 0, temp, 1.0)


@triton.jit
def _blocks(logits, temperature, tops, best, sums, V, stride, blocks, BLOCK: tl.constexpr):
    """Sums of one block of the vocabulary of one row.

    Computes: with x = logits / temperature: max x, argmax x, and Σ exp(x - max x), over BLOCK tokens.
    Shapes:   logits [rows, V] half or float; temperature float [rows]; tops, sums float32, best int32 [rows, blocks].
    Equals:   x.max(-1) and (x - max).exp().sum(-1) of each block.
    """
    row, block = tl.program_id(0), tl.program_id(1)
    x = _load(logits, temperature, row, block, V, stride, BLOCK)
    top, place = tl.max(x, 0, return_indices=True)
    safe = tl.where(top > float("-inf"), top, 0.0)
    index = row * blocks + block
    tl.store(tops + index, top)
    tl.store(best + index, block * BLOCK + place)
    tl.store(sums + index, tl.sum(tl.exp(x - safe), 0))


@triton.jit
def _mix(x, shift: tl.constexpr, factor):
    return (x ^ (x >> shift)) * factor


@triton.jit
def _uniform(key, position):
    """One number in (0, 1) from a key and a position. Equals: `noise.uniform`."""
    x = key.to(tl.uint64, bitcast=True) + (position + 1).to(tl.uint64) * 0x9E3779B97F4A7C15
    x = _mix(x, 30, 0xBF58476D1CE4E5B9)
    x = _mix(x, 27, 0x94D049BB133111EB)
    x = x ^ (x >> 31)
    return ((x >> 11).to(tl.float64) + 0.5) / 9007199254740992.0


@triton.jit
def _pick(
    logits, temperature, tops, best, sums, noise, count, position, own, limit, ended, stops, order, new_token,
    new_count, new_position, new_own, new_ended, results, logprobs, told, seen,
    V, stride, blocks, BLOCK: tl.constexpr, P: tl.constexpr, STOPS: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """Sample one row's next token, and move the row on.

    Computes: the first token at which the cumulative sum of softmax(logits / temperature) reaches the row's random
              number (`noise.uniform`), or the highest logit at temperature 0; its log-probability; and, unless the row
              has ended, in the column of its slot: token, count + 1, position + 1, own + 1, ended (1 stop token, 2
              limit, 3 both). What the host told is seen then.
    Shapes:   as `_blocks`; noise, count, position, own, limit, ended int64 [rows]; stops int64 [rows, STOPS]; order
              int64 [rows], slots; new_token … new_ended, results int64 [slots], logprobs float64 [slots]; told, seen
              int64 [1].
    Equals:   `sampling.sample` with plain=True, then `DeviceRows.advance`.
    """
    row = tl.program_id(0)
    b = tl.arange(0, P)
    top_b = tl.load(tops + row * blocks + b, mask=b < blocks, other=float("-inf"))
    sum_b = tl.load(sums + row * blocks + b, mask=b < blocks, other=0.0)
    top = tl.max(top_b, 0)
    mass = sum_b.to(tl.float64) * tl.exp(top_b - top).to(tl.float64)
    ends = tl.cumsum(mass, 0)
    all_of_it = tl.sum(mass, 0)
    done = tl.load(count + row)
    goal = _uniform(tl.load(noise + row), done) * all_of_it
    block = tl.minimum(tl.sum(((ends < goal) & (b < blocks)).to(tl.int32), 0), blocks - 1)
    start = tl.sum(tl.where(b < block, mass, 0.0), 0)
    x = _load(logits, temperature, row, block, V, stride, BLOCK)
    inside = tl.cumsum(tl.exp(x - top).to(tl.float64), 0)
    place = tl.minimum(tl.sum((start + inside < goal).to(tl.int32), 0), BLOCK - 1)
    sampled = tl.minimum(block * BLOCK + place, V - 1)
    place_b = tl.load(best + row * blocks + b, mask=b < blocks, other=V)
    highest = tl.min(tl.where((top_b == top) & (b < blocks), place_b, V))
    temp = tl.load(temperature + row).to(tl.float32)
    chosen = tl.where(temp > 0, sampled, highest).to(tl.int64)
    x = tl.load(logits + row.to(tl.int64) * stride + chosen).to(tl.float32) / tl.where(temp > 0, temp, 1.0)
    stop = tl.load(stops + row * STOPS + tl.arange(0, STOPS)) == chosen
    end = tl.max(stop.to(tl.int64), 0) + 2 * (done + 1 >= tl.load(limit + row)).to(tl.int64)
    if tl.load(ended + row) == 0:
        slot = tl.load(order + row)
        tl.store(results + slot, chosen + (end << SHIFT))
        tl.store(new_token + slot, chosen)
        tl.store(logprobs + slot, (x - top - tl.log(all_of_it.to(tl.float32))).to(tl.float64))
        tl.store(new_count + slot, done + 1)
        tl.store(new_position + slot, tl.load(position + row) + 1)
        tl.store(new_own + slot, tl.load(own + row) + 1)
        tl.store(new_ended + slot, end)
    if row == 0:
        tl.store(seen, tl.load(told))


def sample_and_advance(
    logits: Tensor, temperature: Tensor, numbers: dict[str, Tensor], stops: Tensor, order: Tensor,
    kept: dict[str, Tensor], results: Tensor, logprobs: Tensor, told: Tensor, seen: Tensor,
) -> None:  # fmt: skip
    """Sample from [rows, vocabulary] without top-p and top-k, and advance the numbers that are kept of the rows' slots.

    ``stops`` are [rows, a power of two] tokens that end a row.
    """
    rows, size = logits.shape
    blocks = triton.cdiv(size, BLOCK)
    tops = torch.empty(rows, blocks, device=logits.device)
    sums = torch.empty_like(tops)
    best = torch.empty(rows, blocks, device=logits.device, dtype=torch.int32)
    stride = logits.stride(0)
    _blocks[(rows, blocks)](logits, temperature, tops, best, sums, size, stride, blocks, BLOCK=BLOCK, num_warps=8)
    _pick[(rows,)](
        logits, temperature, tops, best, sums, numbers["noise"], numbers["count"], numbers["position"], numbers["own"],
        numbers["limit"], numbers["ended"], stops, order, kept["token"], kept["count"], kept["position"], kept["own"],
        kept["ended"], results, logprobs, told, seen, size, stride, blocks,
        BLOCK=BLOCK, P=triton.next_power_of_2(blocks), STOPS=stops.shape[1], SHIFT=SHIFT, num_warps=8,
    )  # fmt: skip
