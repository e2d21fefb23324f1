"""Models whose layers cannot share prefixes: they compute each row in the library's own way.

Layers with a state (recurrent, convolution, linear attention) do not ask our attention, and some attentions have parts
that it does not know. Rows are padded at their ends: what a token sees is before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

FILL = 0.7  # a row joins others when it fills at least this share of their length


def body_of(model: Any) -> Any:
    """The part of a model that ends with hidden states."""
    found = [model.base_model, getattr(model, "model", None)]
    return next((m for m in found if m is not None and m is not model), model)


def be_plain(model: Any) -> None:
    """Mark a model that is to compute rows in the library's own way."""
    body_of(model).recollect_plain = True


def is_plain(model: Any) -> bool:
    """True for a model that computes rows in the library's own way."""
    return bool(vars(body_of(model)).get("recollect_plain"))


def paths(positions: np.ndarray) -> list[np.ndarray]:
    """The nodes of every path from a root to a leaf, of trees that lie flat in depth-first order."""
    starts = [0, *(1 + np.flatnonzero(np.diff(positions) != 1)).tolist()]
    found: list[np.ndarray] = []
    path = np.empty(0, np.int64)
    for a, b in zip(starts, [*starts[1:], len(positions)], strict=True):
        path = np.concatenate([path[: positions[a]], np.arange(a, b)])
        found.append(path)
    return found


def row_states(model: Any, tokens: Tensor, positions: Tensor) -> Tensor:
    """[nodes, width]: the body's output for every node of some trees, computed row by row."""
    body, rows = body_of(model), paths(positions.cpu().numpy())
    found: list[Tensor] = []
    places: list[np.ndarray] = []
    for batch in _batches(rows):
        longest = len(batch[0])
        index = np.stack([np.pad(path, (0, longest - len(path)), mode="edge") for path in batch])
        ids = tokens[torch.from_numpy(index).to(tokens.device)]
        states = body(input_ids=ids, use_cache=False)[0]
        inside = np.concatenate([r * longest + np.arange(len(path)) for r, path in enumerate(batch)])
        found.append(states.reshape(-1, states.shape[-1])[torch.from_numpy(inside).to(tokens.device)])
        places += batch
    _, first = np.unique(np.concatenate(places), return_index=True)  # what rows share is read from the first of them
    return torch.cat(found)[torch.from_numpy(first).to(tokens.device)]


def _batches(rows: list[np.ndarray]) -> list[list[np.ndarray]]:
    """Rows of similar length together, the longest first."""
    batches: list[list[np.ndarray]] = []
    for row in sorted(rows, key=len, reverse=True):
        if not batches or len(row) < FILL * len(batches[-1][0]):
            batches.append([])
        batches[-1].append(row)
    return batches
