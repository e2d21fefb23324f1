"""Log-probability and entropy of rows of logits on a GPU: one pass over them, and one back (Triton)."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096  # logits of a row that are taken at a time
LOWEST = tl.constexpr(-1e30)  # a logit that is not there
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _logprob_entropy(logits, targets, found, rows, V, stride, factor, BLOCK: tl.constexpr):
    """The log-probability of a target and the entropy of a row of logits, in one pass.

    Computes: with p = softmax(factor · logits[row]): log p[target], -Σ p log p, the highest logit, and log2 of the
              normaliser relative to it. Powers and logarithms inside are those of two.
    Shapes:   logits [rows, V] half or float; targets int64 [rows]; found float32 [4, rows].
    Equals:   `forward._figures`; tests/training/test_logits.py compares them.
    """
    row = tl.program_id(0)
    at, lanes = logits + row.to(tl.int64) * stride, tl.arange(0, BLOCK)
    top, scale = tl.full([], LOWEST, tl.float32), factor * LOG2E
    total, mean = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)  # of 2^x and x·2^x
    for start in range(0, V, BLOCK):
        there = start + lanes < V
        raw = tl.load(at + start + lanes, mask=there, other=0.0).to(tl.float32)
        raw = tl.where(there, raw, LOWEST)
        new = tl.maximum(top, tl.max(raw, 0))
        shift, x = (top - new) * scale, (raw - new) * scale
        less, power = tl.exp2(shift), tl.exp2(x)
        mean = (mean + total * shift) * less + x * power
        total = total * less + power
        top = new
    every, spread = tl.sum(total, 0), tl.sum(mean, 0)
    beyond = tl.log2(every)
    target = tl.load(at + tl.load(targets + row)).to(tl.float32)
    tl.store(found + row, ((target - top) * scale - beyond) / LOG2E)
    tl.store(found + rows + row, (beyond - spread / every) / LOG2E)
    tl.store(found + 2 * rows + row, top)
    tl.store(found + 3 * rows + row, beyond)


@triton.jit
def _logprob_entropy_back(logits, targets, found, logprob, entropy, to, rows, V, stride, factor, BLOCK: tl.constexpr):
    """The gradient of both: one block of one row.

    Computes: to = factor · (a (1[target] - p) - b p (log p + entropy)), a and b being the gradients of the two.
    Shapes:   as above; logprob, entropy (a and b) float32 [rows]; to as logits.
    Equals:   autograd of `forward._figures`; tests/training/test_logits.py compares them.
    """
    row, places = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = places < V
    top, beyond = tl.load(found + 2 * rows + row), tl.load(found + 3 * rows + row)
    raw = tl.load(logits + row * stride + places, mask=there, other=0.0).to(tl.float32)
    below = tl.where(there, raw - top, 0.0) * (factor * LOG2E) - beyond
    more, spread = tl.load(logprob + row), tl.load(entropy + row)
    made = -tl.exp2(below) * (more + spread * (below / LOG2E + tl.load(found + rows + row)))
    made += tl.where(places == tl.load(targets + row), more, 0.0)
    tl.store(to + row * V + places, (made * factor).to(to.dtype.element_ty), mask=there)


def logprob_entropy(logits: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Of each row of logits the target's log-probability and the entropy, in float32."""
    return _KernelLogprobEntropy.apply(logits, targets, 1 / temperature)


class _KernelLogprobEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, factor: float) -> tuple[Tensor, Tensor]:
        rows, size = logits.shape
        logits = logits if logits.stride(1) == 1 else logits.contiguous()
        found = torch.empty(4, rows, device=logits.device)
        if rows:
            _logprob_entropy[(rows,)](
                logits, targets, found, rows, size, logits.stride(0), factor, BLOCK=BLOCK, num_warps=8
            )  # fmt: skip
        ctx.save_for_backward(logits, targets, found)
        ctx.factor = factor
        return found[0].clone(), found[1].clone()

    @staticmethod
    def backward(ctx: Any, logprob: Tensor, entropy: Tensor) -> Any:
        logits, targets, found = ctx.saved_tensors
        rows, size = logits.shape
        to = torch.empty(rows, size, dtype=logits.dtype, device=logits.device)
        if rows:
            _logprob_entropy_back[(rows, triton.cdiv(size, BLOCK))](
                logits, targets, found, logprob.contiguous(), entropy.contiguous(), to, rows, size, logits.stride(0),
                ctx.factor, BLOCK=BLOCK, num_warps=8,
            )  # fmt: skip
        return to, None, None
