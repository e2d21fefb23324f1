"""One micro-batch as tensors: prefix trees side by side in one flat sequence.

Linear layers see the flat sequence. Attention sees the trees cut into segments that do not branch, each with the path
from its root as keys, padded to similar sizes in a few buckets: it computes what rows of their own would, no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from recollect.models.attention import Scoring, recording, sdpa, small_sdpa
from recollect.models.native.blocks import Segments, able, segments_attention
from recollect.packing.dense_attention import fast_blocks
from recollect.packing.flash_attention import prefer_installed
from recollect.packing.tree import Tree, nobodys_tree
from recollect.packing.tree_attention import TreeAttention, TreeCalls, levels, takes, tree_backward, tree_forward

FEW_SCORES = 1 << 23  # attention scores of a bucket up to which they may be kept for the backward pass
GPU_STEP = 64  # on a GPU a micro-batch has a multiple of so many nodes: compiled layers ask for no other number again
BUCKET_FILL = 0.7  # a tree joins a bucket when it fills at least this share of its padded length


@dataclass(slots=True)
class Bucket:
    """Segments of similar shape: runs of nodes without a branch, each with the whole path from its root."""

    queries: Tensor  # [segments, q length] flat place of each of its nodes, padding repeats the first
    keys: Tensor  # [segments, k length] flat place of the path that ends with it, padded likewise
    before: Tensor  # [segments] nodes of the path before the segment
    causal: bool  # segments that start at a root: plain causal attention
    _masks: dict[int | None, Tensor] = field(default_factory=dict)

    def mask(self, window: int | None) -> Tensor | None:
        """[segments, 1, q length, k length], True where attention is allowed; None for plain causal."""
        if self.causal and window is None:
            return None
        if window not in self._masks:
            device = self.queries.device
            query = self.before[:, None] + torch.arange(self.queries.shape[1], device=device)
            key = torch.arange(self.keys.shape[1], device=device)
            allowed = key <= query[:, :, None]
            if window is not None:
                allowed &= query[:, :, None] - key < window
                allowed[..., 0] |= ~allowed.any(-1)  # padding must see something: no NaN
            self._masks[window] = allowed[:, None]
        return self._masks[window]


@dataclass(slots=True)
class TreePlan:
    """Attention within the trees of a micro-batch (see recollect.models.attention)."""

    buckets: list[Bucket]
    inverse: Tensor  # where each flat token is in the buckets' queries, laid out one after the other
    keep: Tensor | None  # flat tokens that predict a target; None: all are computed to the end
    levels: TreeCalls | None = None  # how a GPU attends, if it can

    @property
    def total(self) -> int:
        """Flat tokens."""
        return len(self.inverse)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        q, k, v = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)  # [tokens, heads, dim]
        levels = self._levels_for(q, scoring)
        if levels is not None:
            return TreeAttention.apply(q, k, v, scoring.scale, levels)
        return self._by_segments(q, k, v, scoring)

    def _levels_for(self, q: Tensor, scoring: Scoring) -> TreeCalls | None:
        """The levels, where a GPU can attend by them."""
        able = q.is_cuda and scoring[1:] == (None, None) and takes(q.dtype, q.shape[2])
        if self.levels is None or not able:
            return None
        prefer_installed(q.shape[2])
        return self.levels

    def attend_kept(self, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> tuple[Tensor, Tensor]:
        """Without a graph: the output [tokens, heads, dim] and what `attend_back` needs of it."""
        levels = self._levels_for(q, scoring)
        if levels is not None:
            return tree_forward(q, k, v, scoring.scale, levels)
        out = self._by_segments(q, k, v, scoring)
        return out, torch.empty(q.shape[1], q.shape[0], device=q.device)

    def attend_back(self, grad: Tensor, kept: Sequence[Tensor], scoring: Scoring) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of ``kept``'s queries, keys and values; by segments they are computed again."""
        q, k, v, out, total = kept
        levels = self._levels_for(q, scoring)
        if levels is not None:
            return tree_backward(grad, q, k, v, out, total, scoring.scale, levels)
        with recording():
            leaves = [x.detach().requires_grad_() for x in (q, k, v)]
            again = self._by_segments(leaves[0], leaves[1], leaves[2], scoring)
            found = torch.autograd.grad(again, leaves, grad)
        return found[0].contiguous(), found[1].contiguous(), found[2].contiguous()

    def _by_segments(self, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        scale, window, softcap = scoring
        if softcap is None and able(q, q.shape[2]):
            segments = [Segments(b.queries, b.keys, b.before) for b in self.buckets]
            return segments_attention(q, k, v, segments, scale, window)
        outs = []
        for bucket in self.buckets:
            small = bucket.queries.numel() * bucket.keys.shape[1] * q.shape[1] <= FEW_SCORES
            parts = [
                x.index_select(0, index.reshape(-1)).view(*index.shape, x.shape[1], x.shape[2]).transpose(1, 2)
                for x, index in ((q, bucket.queries), (k, bucket.keys), (v, bucket.keys))
            ]
            if small and softcap is None and q.device.type == "cpu":
                out = small_sdpa(parts[0], parts[1], parts[2], bucket.mask(window), scale)
            else:
                out = sdpa(parts[0], parts[1], parts[2], bucket.mask(window), scale, softcap)
            outs.append(out.transpose(1, 2).reshape(-1, q.shape[1], q.shape[2]))
        return torch.cat(outs).index_select(0, self.inverse)


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

    @property
    def idle(self) -> bool:
        """Whether nothing in it is trained: it is computed to keep step with other ranks."""
        return not len(self.entry)

    def to(self, device: torch.device | str) -> Packed:
        """The same micro-batch on a device."""
        if str(device) == "cpu":
            return self
        move = lambda t: t.to(device, non_blocking=True)
        buckets = [Bucket(move(b.queries), move(b.keys), move(b.before), b.causal) for b in self.plan.buckets]
        levels = None if self.plan.levels is None else [level.to(device) for level in self.plan.levels]
        plan = TreePlan(
            buckets, move(self.plan.inverse), None if self.plan.keep is None else move(self.plan.keep), levels
        )
        tokens, positions, parents, targets, entry_target, entry = (
            move(t) for t in (self.tokens, self.positions, self.parents, self.targets, self.entry_target, self.entry)
        )
        return Packed(tokens, positions, plan, parents, targets, entry_target, entry)


def pack(trees: Sequence[Tree], masks: Sequence[np.ndarray], offsets: Sequence[int]) -> Packed:
    """Lay trees out flat. ``masks[row]`` marks a sequence's trained tokens, ``offsets[row]`` their first entry."""
    if torch.cuda.is_available() and (more := -sum(t.size for t in trees) % GPU_STEP):
        trees = [*trees, nobodys_tree(more)]
    starts = np.concatenate([[0], np.cumsum([t.size for t in trees])])
    nodes, parents, entries = [], [], []
    for tree, start in zip(trees, starts, strict=False):
        for row, path in zip(tree.rows, tree.paths, strict=bool(tree.rows)):
            trained = np.flatnonzero(masks[row])
            assert not len(trained) or trained[0] > 0, "the first token of a sequence cannot be predicted"
            nodes.append(start + path[trained])
            parents.append(start + path[trained - 1])
            entries.append(np.arange(offsets[row], offsets[row] + len(trained)))
    target_nodes, first, entry_target = np.unique(np.concatenate(nodes), return_index=True, return_inverse=True)
    tokens = np.concatenate([t.tokens for t in trees])
    as_tensor = lambda a: torch.from_numpy(np.ascontiguousarray(a, dtype=np.int64))
    predicting = np.concatenate(parents)[first]
    return Packed(
        as_tensor(tokens),
        as_tensor(np.concatenate([t.rotary for t in trees])),
        TreePlan(
            *_segments(trees, starts),
            as_tensor(np.unique(predicting)),
            levels(trees, fast_blocks) if torch.cuda.is_available() else None,
        ),
        as_tensor(predicting),
        as_tensor(tokens[target_nodes]),
        as_tensor(entry_target),
        as_tensor(np.concatenate(entries)),
    )


def segments(tree: Tree) -> list[tuple[int, int, np.ndarray]]:
    """(first node, nodes, path that ends with it) of every run of nodes without a branch, covering the tree once."""
    out, covered = [], 0
    for path in tree.paths:  # depth-first: a path adds the nodes after those that are covered
        start = int(np.searchsorted(path, covered))
        cuts = start + 1 + np.flatnonzero(np.diff(tree.end[path[start:]]))  # the subtree shrinks after a branch
        for first, last in zip([start, *cuts], [*cuts, len(path)], strict=True):
            if last > first:
                out.append((int(path[first]), int(last - first), path[:last]))
        covered = max(covered, int(path[-1]) + 1)
    return out


def _segments(trees: Sequence[Tree], starts: np.ndarray) -> tuple[list[Bucket], Tensor]:
    """Buckets of segments that cover the trees, and where each flat token is in them."""
    runs = [
        (start + first, count, start + path)
        for tree, start in zip(trees, starts, strict=False)
        for first, count, path in segments(tree)
    ]
    runs.sort(key=lambda run: (run[1] != len(run[2]), -len(run[2]), -run[1]))
    groups: list[list[tuple[int, int, np.ndarray]]] = []
    for run in runs:
        head = groups[-1][0] if groups else None
        if (
            head is None
            or (run[1] == len(run[2])) != (head[1] == len(head[2]))
            or len(run[2]) < BUCKET_FILL * len(head[2])
        ):
            groups.append([])
        groups[-1].append(run)
    buckets = []
    inverse = np.empty(int(starts[-1]), np.int64)
    base = 0
    for group in groups:
        width, span = max(count for _, count, _ in group), max(len(path) for _, _, path in group)
        queries = np.empty((len(group), width), np.int64)
        keys = np.empty((len(group), span), np.int64)
        for row, (first, count, path) in enumerate(group):
            queries[row], keys[row] = first, path[0]
            queries[row, :count] = np.arange(first, first + count)
            keys[row, : len(path)] = path
            inverse[first : first + count] = base + row * width + np.arange(count)
        base += len(group) * width
        before = np.array([len(path) - count for _, count, path in group])
        causal = group[0][1] == len(group[0][2])
        buckets.append(Bucket(torch.from_numpy(queries), torch.from_numpy(keys), torch.from_numpy(before), causal))
    return buckets, torch.from_numpy(inverse)
