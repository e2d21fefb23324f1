"""A batch divided among ranks: prefix trees by what they cost, so that all ranks have as much to compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recollect.packing.tree import Tree, build_tree

LARGE = 1.1  # × the even share: a tree that costs more than this is divided


@dataclass(frozen=True)
class BatchPart:
    """One rank's part of every batch."""

    rank: int
    size: int  # ranks in all
    reach: int  # the position at which a token's attention costs as much as all else of it

    def of(self, trees: Sequence[Tree], sequences: Sequence[np.ndarray]) -> list[Tree]:
        """This rank's trees."""
        return divide(trees, sequences, self.size, self.reach)[self.rank]


def cost(tree: Tree, reach: int) -> float:
    """What a tree costs, in tokens without attention."""
    return tree.size + float(tree.positions.sum()) / reach


def divide(trees: Sequence[Tree], sequences: Sequence[np.ndarray], ranks: int, reach: int) -> list[list[Tree]]:
    """The trees of every rank. A tree that is too large for one is cut in two, each with a copy of what they share."""
    even = sum(cost(tree, reach) for tree in trees) / ranks
    fitting: list[Tree] = []
    pending = list(trees)
    while pending:
        tree = pending.pop()
        if len(tree.rows) > 1 and cost(tree, reach) > LARGE * even:
            half = len(tree.rows) // 2
            for rows in (tree.rows[:half], tree.rows[half:]):
                pending.append(build_tree(rows, [sequences[r] for r in rows]))
        else:
            fitting.append(tree)
    fitting.sort(key=lambda t: (-cost(t, reach), t.rows[0]))
    parts: list[list[Tree]] = [[] for _ in range(ranks)]
    loads = [0.0] * ranks
    for tree in fitting:
        lightest = loads.index(min(loads))
        parts[lightest].append(tree)
        loads[lightest] += cost(tree, reach)
    return parts
