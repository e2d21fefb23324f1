"""One micro-batch as tensors: prefix trees side by side in one flat sequence.

Linear layers see the flat sequence. Attention sees the trees, padded to similar sizes in a few buckets, so its cost
grows with the trees and not with the square of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from recollect.algos.tree import Tree
from recollect.models.attention import sdpa

BUCKET_FILL = 0.7  # a tree joins a bucket when it fills at least this share of its padded length


@dataclass(slots=True)
class Bucket:
    """Trees of similar size: where their tokens are in the flat sequence, and who may see whom."""

    index: Tensor  # [trees, length] flat position, padding repeats the tree's first
    end: Tensor  # [trees, length] see Tree.end, within the tree
    positions: Tensor  # [trees, length]
    chain: bool  # nothing branches: plain causal attention
    _masks: dict[int | None, Tensor] = field(default_factory=dict)

    def mask(self, window: int | None) -> Tensor | None:
        """[trees, 1, length, length], True where attention is allowed; None for plain causal."""
        if self.chain and window is None:
            return None
        if window not in self._masks:
            i = torch.arange(self.index.shape[1], device=self.index.device)
            allowed = (i[None, None, :] <= i[None, :, None]) & (i[None, :, None] < self.end[:, None, :])
            if window is not None:
                allowed &= self.positions[:, :, None] - self.positions[:, None, :] < window
            allowed |= torch.eye(len(i), dtype=torch.bool, device=i.device)  # padding attends to itself: no NaN
            self._masks[window] = allowed[:, None]
        return self._masks[window]


@dataclass(slots=True)
class TreePlan:
    """Attention within the trees of a micro-batch (see recollect.models.attention)."""

    buckets: list[Bucket]
    inverse: Tensor  # where each flat token is in the buckets, laid out one after the other

    def attend(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        scale: float,
        window: int | None,
        softcap: float | None,
    ) -> Tensor:
        q, k, v = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)  # [tokens, heads, dim]
        outs = []
        for bucket in self.buckets:
            n, length = bucket.index.shape
            flat = bucket.index.reshape(-1)
            parts = [x[flat].view(n, length, x.shape[1], x.shape[2]).transpose(1, 2) for x in (q, k, v)]
            out = sdpa(parts[0], parts[1], parts[2], bucket.mask(window), scale, softcap)
            outs.append(out.transpose(1, 2).reshape(n * length, q.shape[1], -1))
        return torch.cat(outs)[self.inverse]


@dataclass(slots=True)
class Packed:
    """A micro-batch ready for the model.

    A *target* is a distinct node whose token is trained on; an *entry* is one trained token of one sequence. Equal
    sequences have separate entries that read the same targets.
    """

    tokens: Tensor  # [nodes]
    positions: Tensor  # [nodes]
    plan: TreePlan
    parents: Tensor  # [targets] the node whose output predicts the target
    targets: Tensor  # [targets] the token to predict
    entry_target: Tensor  # [entries] which target it reads
    entry: Tensor  # [entries] its place on the batch's token axis

    def to(self, device: torch.device | str) -> Packed:
        """The same micro-batch on a device."""
        if str(device) == "cpu":
            return self
        move = lambda t: t.to(device, non_blocking=True)
        buckets = [Bucket(move(b.index), move(b.end), move(b.positions), b.chain) for b in self.plan.buckets]
        plan = TreePlan(buckets, move(self.plan.inverse))
        tokens, positions, parents, targets, entry_target, entry = (
            move(t) for t in (self.tokens, self.positions, self.parents, self.targets, self.entry_target, self.entry)
        )
        return Packed(tokens, positions, plan, parents, targets, entry_target, entry)


def pack(trees: Sequence[Tree], masks: Sequence[np.ndarray], offsets: Sequence[int]) -> Packed:
    """Lay trees out flat. ``masks[row]`` marks a sequence's trained tokens, ``offsets[row]`` their first entry."""
    starts = np.concatenate([[0], np.cumsum([t.size for t in trees])])
    nodes, parents, entries = [], [], []
    for tree, start in zip(trees, starts, strict=False):
        for row, path in zip(tree.rows, tree.paths, strict=True):
            trained = np.flatnonzero(masks[row])
            assert not len(trained) or trained[0] > 0, "the first token of a sequence cannot be predicted"
            nodes.append(start + path[trained])
            parents.append(start + path[trained - 1])
            entries.append(np.arange(offsets[row], offsets[row] + len(trained)))
    target_nodes, first, entry_target = np.unique(np.concatenate(nodes), return_index=True, return_inverse=True)
    tokens = np.concatenate([t.tokens for t in trees])
    as_tensor = lambda a: torch.from_numpy(np.ascontiguousarray(a, dtype=np.int64))
    return Packed(
        as_tensor(tokens),
        as_tensor(np.concatenate([t.positions for t in trees])),
        _plan(trees, starts),
        as_tensor(np.concatenate(parents)[first]),
        as_tensor(tokens[target_nodes]),
        as_tensor(entry_target),
        as_tensor(np.concatenate(entries)),
    )


def _plan(trees: Sequence[Tree], starts: np.ndarray) -> TreePlan:
    order = sorted(range(len(trees)), key=lambda i: -trees[i].size)
    shelves: list[list[int]] = []
    for i in order:
        if not shelves or trees[i].size < BUCKET_FILL * trees[shelves[-1][0]].size:
            shelves.append([])
        shelves[-1].append(i)
    buckets = []
    inverse = np.empty(int(starts[-1]), np.int64)
    base = 0
    for shelf in shelves:
        n, length = len(shelf), trees[shelf[0]].size
        index, end, positions = (np.zeros((n, length), np.int64) for _ in range(3))
        for row, i in enumerate(shelf):
            size, start = trees[i].size, starts[i]
            index[row] = start
            index[row, :size] = np.arange(start, start + size)
            end[row, :size] = trees[i].end
            positions[row, :size] = trees[i].positions
            inverse[start : start + size] = base + row * length + np.arange(size)
        base += n * length
        chain = all(trees[i].chain for i in shelf)
        buckets.append(Bucket(torch.from_numpy(index), torch.from_numpy(end), torch.from_numpy(positions), chain))
    return TreePlan(buckets, torch.from_numpy(inverse))
