"""Random trajectories, and the ways of laying out the same ones as tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch


@dataclass
class Step:
    """A token: its reward and value; what is not trained on is an observation."""

    reward: float
    value: float
    trained: bool = True


@dataclass
class Path:
    """A trajectory, cut into rows."""

    name: int
    group: int
    rows: list[list[Step]]
    greedy: float = 0.0

    @property
    def line(self) -> list[Step]:
        return [s for row in self.rows for s in row if s.trained]


def random_paths(rng: np.random.Generator, dense: bool = False) -> list[Path]:
    """Groups of 1 to 4 trajectories with 1 to 3 rows; scores are 0, 1 or anything, and some groups are flat."""
    paths: list[Path] = []
    names = rng.permutation(100)
    for group in rng.permutation(20)[: rng.integers(1, 5)]:
        flat = rng.random() < 0.3
        for _ in range(rng.integers(1, 5)):
            rows = []
            for _ in range(rng.integers(1, 4)):
                kinds = rng.random(rng.integers(1, 7)) < 0.7
                rows.append([Step(np.nan, np.nan, False) if not k else Step(0.0, rng.normal()) for k in kinds])
            path = Path(int(names[len(paths)]), int(group), rows, float(rng.normal()))
            if not path.line:
                path.rows[-1].append(Step(0.0, rng.normal()))
            path.line[-1].reward = 0.1 if flat else float(rng.choice([0.0, 1.0, rng.normal()]))
            if dense:
                for step in path.line:
                    step.reward += 0.1 * rng.normal()
            paths.append(path)
    return paths


def merged(paths: list[Path], rng: np.random.Generator) -> list[tuple[Path, int]]:
    """All rows in a random order that keeps the order of each trajectory's."""
    turns = rng.permutation([i for i, p in enumerate(paths) for _ in p.rows])
    seen = [0] * len(paths)
    out = []
    for i in turns:
        out.append((paths[i], seen[i]))
        seen[i] += 1
    return out


def padded(rows: list[tuple[Path, int]], extra: int = 0) -> dict[str, Any]:
    """[rows, tokens]; padding holds what must not be read."""
    width = max(len(p.rows[r]) for p, r in rows) + extra
    shape = (len(rows), width)
    rewards, values = (torch.full(shape, float("nan"), dtype=torch.float64) for _ in range(2))
    mask = torch.zeros(shape)
    for i, (path, r) in enumerate(rows):
        for t, step in enumerate(path.rows[r]):
            rewards[i, t], values[i, t], mask[i, t] = step.reward, step.value, float(step.trained)
    return {
        "rewards": rewards,
        "values": values,
        "mask": mask,
        "trajectories": torch.tensor([p.name for p, _ in rows]),
        "groups": torch.tensor([p.group for p, _ in rows]),
        "baselines": torch.tensor([p.greedy for p, _ in rows], dtype=torch.float64),
    }


def flat(rows: list[tuple[Path, int]]) -> dict[str, Any]:
    """[entries], trained tokens only."""
    steps = [(p, s) for p, r in rows for s in p.rows[r] if s.trained]
    numbers = lambda xs: torch.tensor(xs, dtype=torch.float64)
    return {
        "rewards": numbers([s.reward for _, s in steps]),
        "values": numbers([s.value for _, s in steps]),
        "mask": torch.ones(len(steps)),
        "trajectories": torch.tensor([p.name for p, _ in steps]),
        "groups": torch.tensor([p.group for p, _ in steps]),
        "baselines": numbers([p.greedy for p, _ in steps]),
    }


def in_order(rows: list[tuple[Path, int]], paths: list[Path], found: torch.Tensor) -> list[list[float]]:
    """What was found for the trained tokens of each trajectory, from either layout."""
    out: dict[int, list[float]] = {p.name: [] for p in paths}
    if found.dim() == 1:
        numbers = iter(found.tolist())
        for path, r in rows:
            out[path.name] += [next(numbers) for s in path.rows[r] if s.trained]
    else:
        for i, (path, r) in enumerate(rows):
            out[path.name] += [found[i, t].item() for t, s in enumerate(path.rows[r]) if s.trained]
    return [out[p.name] for p in paths]
