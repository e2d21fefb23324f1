"""Tree attention on a GPU without masks, padding or copies.

A tree is cut into segments that do not branch. Nodes lie in depth-first order, so all nodes below a segment are one
range that follows it. A query therefore attends causally within its own segment, and to all of each segment above it.
Segments at the same number of branches from their root have disjoint ranges below them, so one call over sequences of
different lengths serves a whole level; the levels' softmaxes are merged by their normalisers. The backward pass runs
the same calls with the merged normaliser, which makes every part's gradient exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.algos.tree import Tree

MOST_LEVELS = 12  # of branches above each other; deeper trees are attended by segments (packed.py)


@dataclass(slots=True)
class Level:
    """Sequences of one call: queries at places ``q`` (None: everywhere, in order) read keys at places ``k``."""

    q: Tensor | None
    k: Tensor | None
    q_ends: Tensor  # [sequences + 1] cumulative lengths
    k_ends: Tensor
    q_most: int
    k_most: int
    causal: bool

    def to(self, device: Any) -> Level:
        """The same on a device."""
        move = lambda t: t.to(device, non_blocking=True)
        q, k = (None if t is None else move(t) for t in (self.q, self.k))
        return Level(q, k, move(self.q_ends), move(self.k_ends), self.q_most, self.k_most, self.causal)


def levels(trees: Sequence[Tree]) -> list[Level] | None:
    """The calls that attend within some trees side by side; None when they branch too often."""
    own: list[int] = []  # lengths of segments, in order
    below: dict[int, list[tuple[int, int, int]]] = {}  # depth → (first node, nodes, end of the subtree)
    offset = 0
    for tree in trees:
        end, depth = tree.end, np.zeros(tree.size, np.int64)
        starts = _segment_starts(tree)
        for first, last in zip(starts, [*starts[1:], tree.size], strict=True):
            own.append(int(last - first))
            if end[last - 1] > last:  # something is below
                level = int(depth[first])
                below.setdefault(level, []).append(
                    (offset + int(first), int(last - first), offset + int(end[last - 1]))
                )
                depth[last : end[last - 1]] = level + 1
        offset += tree.size
    if len(below) > MOST_LEVELS:
        return None
    made = [_level(own, own, None, None, True)]
    for _, segments in sorted(below.items()):
        q = np.concatenate([np.arange(first + count, stop) for first, count, stop in segments])
        k = np.concatenate([np.arange(first, first + count) for first, count, _ in segments])
        lengths = [stop - first - count for first, count, stop in segments]
        made.append(_level(lengths, [count for _, count, _ in segments], q, k, False))
    return made


def _segment_starts(tree: Tree) -> list[int]:
    """The first node of every segment: where the path jumps back, or the subtree shrinks after a branch."""
    jump = np.diff(tree.positions) != 1
    branch = np.diff(tree.end) != 0
    return [0, *(1 + np.flatnonzero(jump | branch)).tolist()]


def _level(
    q_lengths: list[int], k_lengths: list[int], q: np.ndarray | None, k: np.ndarray | None, causal: bool
) -> Level:
    ends = lambda lengths: torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    place = lambda a: None if a is None else torch.from_numpy(a)
    return Level(place(q), place(k), ends(q_lengths), ends(k_lengths), max(q_lengths), max(k_lengths), causal)


def tree_forward(q: Tensor, k: Tensor, v: Tensor, scale: float, plan: list[Level]) -> tuple[Tensor, Tensor]:
    """[tokens, heads, dim] queries over keys and values of fewer heads, all levels merged; and the normaliser."""
    out = total = None
    for level in plan:
        part, weight, *_ = torch.ops.aten._flash_attention_forward(
            _take(q, level.q), _take(k, level.k), _take(v, level.k), level.q_ends, level.k_ends, level.q_most,
            level.k_most, 0.0, level.causal, False, scale=scale,
        )  # fmt: skip
        if out is None or total is None:
            out, total = part, weight
            continue
        before = total[:, level.q]
        both = torch.logaddexp(before, weight)
        share = torch.exp(weight - both).t().unsqueeze(-1)
        out[level.q] = torch.lerp(out[level.q].float(), part.float(), share).to(out.dtype)
        total[:, level.q] = both
    assert out is not None
    assert total is not None
    return out, total


def tree_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, total: Tensor, scale: float, plan: list[Level]
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of queries, keys and values: every level with the merged output and normaliser."""
    grads: list[Tensor] = []
    state = torch.zeros(2, dtype=torch.int64, device=q.device)
    for level in plan:
        made = torch.ops.aten._flash_attention_backward(
            _take(grad.contiguous(), level.q), _take(q, level.q), _take(k, level.k), _take(v, level.k),
            _take(out, level.q), total if level.q is None else total[:, level.q].contiguous(), level.q_ends,
            level.k_ends, level.q_most, level.k_most, 0.0, level.causal, state, state, scale=scale,
        )  # fmt: skip
        if not grads:
            grads = list(made)
        else:
            for whole, part, place in zip(grads, made, (level.q, level.k, level.k), strict=True):
                assert place is not None
                whole.index_add_(0, place, part)
    return grads[0], grads[1], grads[2]


class TreeAttention(torch.autograd.Function):
    """Both as one differentiable function."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, plan: list[Level]) -> Tensor:
        """All levels, merged."""
        out, total = tree_forward(q, k, v, scale, plan)
        ctx.save_for_backward(q, k, v, out, total)
        ctx.scale, ctx.plan = scale, plan
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        """Every level with the merged output and normaliser."""
        q, k, v, out, total = ctx.saved_tensors
        return *tree_backward(grad, q, k, v, out, total, ctx.scale, ctx.plan), None, None


def _take(x: Tensor, place: Tensor | None) -> Tensor:
    return x.contiguous() if place is None else x.index_select(0, place)
