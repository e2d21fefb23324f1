"""Prefix trees: what several sequences share goes through the model once.

Sequences are sorted, so a tree's nodes come out in depth-first order and the subtree of node j is the contiguous range
[j, end[j]). Node i may therefore attend to node j exactly when ``j <= i < end[j]``: two integers per token describe
the whole attention mask. Two equal sequences share all their nodes, and the loss reads those nodes twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recollect.images.image_ids import rotary_part

MIN_SHARE = 24  # sharing fewer leading tokens than this does not pay for a larger attention mask


@dataclass(slots=True)
class Tree:
    """Sequences with a common beginning."""

    tokens: np.ndarray  # [nodes] token ids in depth-first order
    positions: np.ndarray  # [nodes] place within the sequence
    end: np.ndarray  # [nodes] one past the last node of the subtree
    rows: list[int]  # which sequences of the batch are here
    paths: list[np.ndarray]  # for each of them, the node of each of its tokens
    rotary: np.ndarray  # [nodes] position for rotary embeddings: the place, but for sequences with images

    @property
    def size(self) -> int:
        return len(self.tokens)


def build_tree(rows: Sequence[int], sequences: Sequence[np.ndarray]) -> Tree:
    """The prefix tree of some sequences (any number of roots is allowed)."""
    order = sorted(range(len(rows)), key=lambda i: _sorted_by(sequences[i])) if len(rows) > 1 else [0]
    tokens: list[np.ndarray] = []
    positions: list[np.ndarray] = []
    rotary: list[np.ndarray] = []
    paths: list[np.ndarray] = []
    closings: list[tuple[np.ndarray, int]] = []
    path, previous, total = np.empty(0, np.int64), np.empty(0, np.int64), 0
    for i in order:
        ids = sequences[i]
        shared = _common(previous, ids)
        fresh = len(ids) - shared
        if fresh:
            closings.append((path[shared:], total))
            tokens.append(ids[shared:])
            positions.append(np.arange(shared, len(ids)))
            rotary.append(rotary_part(ids, shared, len(ids)))
            path = np.concatenate([path[:shared], np.arange(total, total + fresh)])
            total += fresh
            previous = ids
            paths.append(path)
        else:
            paths.append(path[: len(ids)])
    end = np.full(total, total, np.int64)
    for nodes, where in closings:
        end[nodes] = where
    flat = np.concatenate(tokens), np.concatenate(positions)
    return Tree(*flat, end, [rows[i] for i in order], paths, np.concatenate(rotary))


def nobodys_tree(size: int) -> Tree:
    """So many tokens that no sequence has, to fill a micro-batch up."""
    path = np.arange(size)
    return Tree(np.zeros(size, np.int64), path, np.full(size, size, np.int64), [], [path], path)


def forest(sequences: Sequence[np.ndarray], groups: Sequence[int], min_share: int = MIN_SHARE) -> list[Tree]:
    """Trees over all sequences; only sequences of one group share, and only when it pays."""
    members: dict[int, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)
    trees = []
    for rows in members.values():
        rows = sorted(rows, key=lambda r: _sorted_by(sequences[r]))
        start = 0
        for i in range(1, len(rows) + 1):
            if i == len(rows) or not _worth(sequences[rows[i - 1]], sequences[rows[i]], min_share):
                part = rows[start:i]
                trees.append(build_tree(part, [sequences[r] for r in part]))
                start = i
    return trees


def split_to_budget(
    trees: Sequence[Tree], sequences: Sequence[np.ndarray], budget: int, max_sequences: int | None = None
) -> list[list[Tree]]:
    """Micro-batches of at most ``budget`` nodes and ``max_sequences`` sequences each, balanced.

    A single sequence that is longer than the budget gets a micro-batch of its own.
    """
    most = max_sequences or sum(len(t.rows) for t in trees) or 1
    fitting: list[Tree] = []
    pending = list(trees)
    while pending:
        tree = pending.pop()
        if len(tree.rows) > most or (tree.size > budget and len(tree.rows) > 1):
            half = len(tree.rows) // 2
            for rows in (tree.rows[:half], tree.rows[half:]):
                pending.append(build_tree(rows, [sequences[r] for r in rows]))
        else:
            fitting.append(tree)
    fitting.sort(key=lambda t: (-t.size, t.rows[0]))
    count = max(1, -(-sum(t.size for t in fitting) // budget), -(-sum(len(t.rows) for t in fitting) // most))
    while (packs := _distribute(fitting, count, budget, most)) is None:
        count += 1
    return packs


def _distribute(trees: Sequence[Tree], count: int, budget: int, most: int) -> list[list[Tree]] | None:
    """Each tree to the lightest of ``count`` packs that has room for its sequences; None if a limit is broken."""
    packs: list[list[Tree]] = [[] for _ in range(count)]
    nodes, rows = [0] * count, [0] * count
    for tree in trees:
        open_packs = [i for i in range(count) if rows[i] + len(tree.rows) <= most]
        if not open_packs:
            return None
        lightest = min(open_packs, key=nodes.__getitem__)
        packs[lightest].append(tree)
        nodes[lightest] += tree.size
        rows[lightest] += len(tree.rows)
    fits = all(load <= budget or len(pack) == 1 for load, pack in zip(nodes, packs, strict=True))
    return [p for p in packs if p] if fits else None


def _sorted_by(ids: np.ndarray) -> bytes:
    """What sorts sequences as lists of ids would be sorted; bytes are made and compared faster."""
    return ids.astype(">i8").tobytes()


def _common(a: np.ndarray, b: np.ndarray) -> int:
    n = min(len(a), len(b))
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if len(different) else n


def _worth(a: np.ndarray, b: np.ndarray, min_share: int) -> bool:
    shared = _common(a, b)
    return shared >= min_share or 2 * shared >= min(len(a), len(b))
