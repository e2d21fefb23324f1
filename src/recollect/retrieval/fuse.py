"""Several rankings as one."""

from __future__ import annotations

from collections.abc import Sequence

RANK, DEPTH = 60, 100  # Σ 1 / (RANK + rank) over the best DEPTH of either


def fused(rankings: Sequence[Sequence[tuple[int, float]]], most: int) -> list[tuple[int, float]]:
    """Reciprocal rank fusion: the sum over rankings of 1 / (constant + rank), larger first."""
    total: dict[int, float] = {}
    for ranking in rankings:
        for rank, (i, _) in enumerate(ranking, 1):
            total[i] = total.get(i, 0.0) + 1 / (RANK + rank)
    return sorted(total.items(), key=lambda pair: (-pair[1], pair[0]))[:most]
