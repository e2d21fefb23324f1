"""One long sequence of queries over one of keys, by cuDNN where it is fastest.

On a Hopper GPU it takes half the time of the kernel for sequences of different lengths. It prepares every new shape,
which takes about a second, so queries are padded to one of few lengths. A padded query has no gradient, and causal
queries do not see the padding behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

OLDEST = 90100  # of cuDNN
GENERATIONS = (9, 10)  # of GPUs: Hopper and Blackwell for data centres
WIDEST = 128  # numbers of a head
AGREED = 0.02  # by how much two kernels may differ, relative to what they compute

Grads = tuple[Tensor, Tensor, Tensor]


@lru_cache
def fast_blocks() -> bool:
    """True where long sequences are worth calls of their own."""
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] not in GENERATIONS:
        return False
    return (torch.backends.cudnn.version() or 0) >= OLDEST and agrees("cuda")


def agrees(device: Any) -> bool:
    """Whether cuDNN computes what the other kernel does; it is left alone where it does not."""
    for keys, causal in ((512, True), (256, False)):
        (q, grad), (k, v) = numbers(2, (512, 4, 64), device), numbers(2, (keys, 2, 64), device, 2)
        try:
            out, total = flash_forward(q, k, v, 0.125, causal)
            found = (
                *_cudnn_forward(q, k, v, 0.125, causal),
                *_cudnn_backward((grad, q, k, v, out), total, 0.125, causal),
            )
        except RuntimeError:
            return False
        expected = out, total, *flash_backward((grad, q, k, v, out), total, 0.125, causal)
        if not all(near(a, b, AGREED) for a, b in zip(found, expected, strict=True)):
            return False
    return True


def numbers(count: int, shape: tuple[int, ...], device: Any, seed: int = 0) -> list[Tensor]:
    """Some tensors to compare kernels with, the same every time."""
    source = torch.Generator(device).manual_seed(seed)
    return [torch.randn(shape, device=device, generator=source).bfloat16() for _ in range(count)]


def near(a: Tensor, b: Tensor, limit: float) -> bool:
    """Whether one differs from the other by no more than a share of it; what is not a number is not near."""
    return a.shape == b.shape and bool((a.float() - b.float()).norm() <= limit * b.float().norm())


def padded_length(length: int) -> int:
    """Queries of the call that takes so many."""
    step = 1024 if length <= 16384 else 4096
    return -(-length // step) * step


def dense_forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """[queries, heads, dim] over [keys, fewer heads, dim]; the output and its normalisers [heads, queries]."""
    return (_cudnn_forward if _by_cudnn(q) else flash_forward)(q, k, v, scale, causal)


def dense_backward(kept: Sequence[Tensor], total: Tensor, scale: float, causal: bool) -> Grads:
    """Gradients of queries, keys and values; ``kept`` are the output's gradient, these three and the output."""
    return (_cudnn_backward if _by_cudnn(kept[1]) else flash_backward)(kept, total, scale, causal)


def _by_cudnn(q: Tensor) -> bool:
    return fast_blocks() and q.shape[2] <= WIDEST and q.shape[2] % 8 == 0


def flash_forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """The same by FlashAttention."""
    out, total, *_ = torch.ops.aten._flash_attention_forward(
        q[None], k[None], v[None], None, None, len(q), len(k), 0.0, causal, False, scale=scale
    )
    return out[0], total[0]


def flash_backward(kept: Sequence[Tensor], total: Tensor, scale: float, causal: bool) -> Grads:
    """Its gradients."""
    state = torch.zeros(2, dtype=torch.int64, device=total.device)
    one = [x[None] for x in (*kept, total.contiguous())]
    made = torch.ops.aten._flash_attention_backward(
        *one, None, None, len(kept[1]), len(kept[2]), 0.0, causal, state, state, scale=scale
    )
    return made[0][0], made[1][0], made[2][0]


def _cudnn_forward(q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    (queries,), (keys, values) = _padded([q], [k, v], causal)
    out, total, *_ = torch.ops.aten._scaled_dot_product_cudnn_attention(
        queries, keys, values, None, True, 0.0, causal, False, scale=scale
    )
    return out[0].transpose(0, 1)[: len(q)], total[0, :, : len(q), 0]


def _cudnn_backward(kept: Sequence[Tensor], total: Tensor, scale: float, causal: bool) -> Grads:
    q, k = kept[1], kept[2]
    (grad, queries, out), (keys, values) = _padded([kept[0], q, kept[4]], [k, kept[3]], causal)
    weights = F.pad(total, (0, queries.shape[2] - len(q))).contiguous()[None, :, :, None]
    none = torch.zeros((), dtype=torch.int64, device=q.device)
    made = torch.ops.aten._scaled_dot_product_cudnn_attention_backward(
        grad, queries, keys, values, out, weights, none, none, None, None, None, queries.shape[2], keys.shape[2], 0.0,
        causal, scale=scale,
    )  # fmt: skip
    d_q, d_k, d_v = (x[0].transpose(0, 1) for x in made)
    return d_q[: len(q)], d_k[: len(k)], d_v[: len(k)]


def _padded(queries: list[Tensor], keys: list[Tensor], causal: bool) -> tuple[list[Tensor], list[Tensor]]:
    """[1, heads, tokens, dim] each; queries, and keys that are the same tokens, padded with zeros."""
    more = padded_length(len(queries[0])) - len(queries[0])
    grow = lambda x: F.pad(x, (0, 0, 0, 0, 0, more)) if more else x
    seen = lambda x: x[None].transpose(1, 2)
    return [seen(grow(x)) for x in queries], [seen(grow(x) if causal else x) for x in keys]
