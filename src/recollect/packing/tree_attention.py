"""Tree attention on a GPU without masks.

A tree is cut into segments that do not branch. Nodes lie in depth-first order, so all nodes below a segment are one
range that follows it. A query therefore attends causally within its own segment, and to all of each segment above it.
Segments at the same number of branches from their root have disjoint ranges below them, so one call over sequences of
different lengths serves a whole level; long ones get calls of their own, for which there are faster kernels. The
calls' softmaxes are merged by their normalisers. The backward pass runs the same calls with the merged normaliser,
which makes every part's gradient exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.packing.dense_attention import Grads, dense_backward, dense_forward
from recollect.packing.tree import Tree

MOST_LEVELS = 12  # of branches above each other; deeper trees are attended by segments (micro_batch.py)
LONG = 4096  # tokens from which a segment, and what is below it, get a call of their own
WIDEST = 256  # numbers of a head that the kernels can take
KEYS_STEP = 512  # such a call reads a multiple of so many keys, as every new shape has to be prepared once

Places = slice | Tensor  # of tokens
Part = tuple[Tensor, Tensor]  # an output and the logarithms of its normalisers [heads, queries]


@dataclass(slots=True)
class Level:
    """Sequences of one call: queries at places ``q`` read keys at places ``k``."""

    q: Places
    k: Places
    q_ends: Tensor  # [sequences + 1] cumulative lengths
    k_ends: Tensor
    q_most: int
    k_most: int
    causal: bool

    def to(self, device: Any) -> Level:
        """The same on a device."""
        move = lambda t: t.to(device, non_blocking=True) if isinstance(t, Tensor) else t
        ends = move(self.q_ends), move(self.k_ends)
        return Level(move(self.q), move(self.k), *ends, self.q_most, self.k_most, self.causal)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Part:
        """What the queries see."""
        return attend_lengths(q, k, v, scale, self.q_ends, self.k_ends, self.q_most, self.k_most, self.causal)

    def backward(self, kept: Sequence[Tensor], total: Tensor, scale: float) -> Grads:
        """Gradients of queries, keys and values; ``kept`` are the output's, these three and the output."""
        state = torch.zeros(2, dtype=torch.int64, device=total.device)
        return torch.ops.aten._flash_attention_backward(
            *kept, total.contiguous(), self.q_ends, self.k_ends, self.q_most, self.k_most, 0.0, self.causal, state,
            state, scale=scale,
        )  # fmt: skip


@dataclass(slots=True)
class Block:
    """A long segment that reads itself (``causal``), or is read by all that is below it."""

    q: slice
    k: slice
    causal: bool

    def to(self, device: Any) -> Block:
        """The same on a device."""
        return self

    def forward(self, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Part:
        """What the queries see."""
        return dense_forward(q, k, v, scale, self.causal)

    def backward(self, kept: Sequence[Tensor], total: Tensor, scale: float) -> Grads:
        """As of a level."""
        return dense_backward(kept, total, scale, self.causal)


def takes(dtype: torch.dtype, width: int) -> bool:
    """True for the types and widths of heads that the kernels can take."""
    return dtype in (torch.bfloat16, torch.float16) and width % 8 == 0 and width <= WIDEST


def attend_lengths(
    q: Tensor, k: Tensor, v: Tensor, scale: float, q_ends: Tensor, k_ends: Tensor, q_most: int, k_most: int,
    causal: bool,
) -> Part:  # fmt: skip
    """[tokens, heads, dim] queries over keys and values of fewer heads, sequences one after the other."""
    out, total, *_ = torch.ops.aten._flash_attention_forward(
        q, k, v, q_ends, k_ends, q_most, k_most, 0.0, causal, False, scale=scale
    )
    return out, total


TreeCalls = Sequence[Level | Block]  # those that read themselves come first and cover every token once


def levels(trees: Sequence[Tree], blocks: Callable[[], bool] = lambda: False) -> TreeCalls | None:
    """The calls that attend within some trees side by side; None when they branch too often.

    ``blocks`` is asked whether long segments get calls of their own, once there is one.
    """
    own: list[tuple[int, int]] = []  # (first node, end) of segments, in order
    below: dict[int, list[tuple[int, int, int, int]]] = {}  # depth → (first key, end, first query, end)
    long: list[Block] = []
    offset = 0
    for tree in trees:
        end, depth = tree.end + offset, np.zeros(tree.size, np.int64)
        starts = _segment_starts(tree)
        for a, b in zip(starts, [*starts[1:], tree.size], strict=True):
            first, last, stop = a + offset, b + offset, int(end[b - 1])
            big = b - a >= LONG and blocks()
            if big:
                long.append(Block(slice(first, last), slice(first, last), True))
            else:
                own.append((first, last))
            if stop == last:
                continue
            level = int(depth[a])
            depth[b : stop - offset] = level + 1
            if big and stop - last >= LONG:
                whole = first + (b - a) // KEYS_STEP * KEYS_STEP
                long.append(Block(slice(last, stop), slice(first, whole), False))
                first = whole
            if first < last:
                below.setdefault(level, []).append((first, last, last, stop))
        offset += tree.size
    if len(below) > MOST_LEVELS:
        return None
    made = [_level([(a, b, a, b) for a, b in own], True)] if own else []
    made += [_level(segments, False) for _, segments in sorted(below.items())]
    return sorted([*made, *long], key=lambda part: not part.causal)


def _segment_starts(tree: Tree) -> list[int]:
    """The first node of every segment: where the path jumps back, or the subtree shrinks after a branch."""
    jump = np.diff(tree.positions) != 1
    branch = np.diff(tree.end) != 0
    return [0, *(1 + np.flatnonzero(jump | branch)).tolist()]


def _level(spans: list[tuple[int, int, int, int]], causal: bool) -> Level:
    """One call for some (first key, end, first query, end)."""
    k, q = [s[:2] for s in spans], [s[2:] for s in spans]
    ends = lambda some: torch.from_numpy(np.cumsum([0, *(b - a for a, b in some)]).astype(np.int32))
    most = lambda some: max(b - a for a, b in some)
    return Level(_places(q), _places(k), ends(q), ends(k), most(q), most(k), causal)


def _places(spans: list[tuple[int, int]]) -> Places:
    """All tokens of some spans, as a slice where they follow each other."""
    if all(before[1] == after[0] for before, after in pairwise(spans)):
        return slice(spans[0][0], spans[-1][1])
    return torch.from_numpy(np.concatenate([np.arange(a, b) for a, b in spans]))


def tree_forward(q: Tensor, k: Tensor, v: Tensor, scale: float, plan: TreeCalls) -> Part:
    """[tokens, heads, dim] queries over keys and values of fewer heads, all parts merged; and the normaliser."""
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    out, total = torch.empty_like(q), torch.empty(q.shape[1], q.shape[0], device=q.device)
    for part in plan:
        found, weight = part.forward(_take(q, part.q), _take(k, part.k), _take(v, part.k), scale)
        if part.causal:
            out[part.q] = found
            total[:, part.q] = weight
        elif isinstance(part.q, slice):
            merge(out[part.q], total[:, part.q], found, weight)
        else:
            merge(out, total, found, weight, part.q)
    return out, total


def tree_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, total: Tensor, scale: float, plan: TreeCalls
) -> Grads:
    """Gradients of queries, keys and values: every part with the merged output and normaliser."""
    grad, q, k, v = grad.contiguous(), q.contiguous(), k.contiguous(), v.contiguous()
    grads = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    for part in plan:
        kept = _take(grad, part.q), _take(q, part.q), _take(k, part.k), _take(v, part.k), _take(out, part.q)
        made = part.backward(kept, total[:, part.q], scale)
        for whole, some, place in zip(grads, made, (part.q, part.k, part.k), strict=True):
            if part.causal:
                whole[place] = some
            elif isinstance(place, slice):
                whole[place] += some
            else:
                whole.index_add_(0, place, some)
    return grads


def merge(out: Tensor, total: Tensor, part: Tensor, weight: Tensor, place: Tensor | None = None) -> None:
    """Take another part into outputs [tokens, heads, dim] and normalisers [heads, tokens], or into some of them."""
    kernel = _merge_kernel()
    if kernel is None or not out.is_cuda:
        chosen = slice(None) if place is None else place
        both = torch.logaddexp(total[:, chosen], weight)
        share = torch.exp(weight - both).t().unsqueeze(-1)
        out[chosen] = torch.lerp(out[chosen].float(), part.float(), share).to(out.dtype)
        total[:, chosen] = both
    else:
        kernel(out, total, part, weight, place)


@cache
def _merge_kernel() -> Callable[..., None] | None:
    """The same in one pass, where there is triton."""
    try:
        from recollect.packing.merge_attention import merge_kernel
    except ImportError:
        return None
    return merge_kernel


class TreeAttention(torch.autograd.Function):
    """Both as one differentiable function."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, plan: TreeCalls) -> Tensor:
        """All parts, merged."""
        out, total = tree_forward(q, k, v, scale, plan)
        ctx.save_for_backward(q, k, v, out, total)
        ctx.scale, ctx.plan = scale, plan
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Every part with the merged output and normaliser."""
        q, k, v, out, total = ctx.saved_tensors
        return *tree_backward(grad, q, k, v, out, total, ctx.scale, ctx.plan), None, None


def _take(x: Tensor, place: Places) -> Tensor:
    return x[place] if isinstance(place, slice) else x.index_select(0, place)
