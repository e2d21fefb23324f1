"""One forward pass of the engine as a flat batch: parts that follow each other, each with its own attention."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from recollect.models.attention import Scoring


class PartAttention(Protocol):
    """One layer's attention of the tokens of one part; it also stores their keys and values.

    Queries are [heads, tokens, dim], keys and values [kv heads, tokens, dim]; the result is [tokens, heads, dim]. In
    the ``last`` layer only the output of tokens that are sampled from is read.
    """

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring, last: bool = False) -> Tensor: ...


class FlatPart(NamedTuple):
    """Some tokens, their positions and their attention."""

    attention: PartAttention
    tokens: list[np.ndarray]
    positions: list[np.ndarray]


@dataclass
class FlatBatch:
    """The parts of a step, one after the other."""

    tokens: list[np.ndarray] = field(default_factory=list)
    positions: list[np.ndarray] = field(default_factory=list)
    parts: list[tuple[PartAttention, int]] = field(default_factory=list)  # with how many tokens

    def add(self, part: FlatPart) -> None:
        """Append a part."""
        self.parts.append((part.attention, sum(map(len, part.tokens))))
        self.tokens += part.tokens
        self.positions += part.positions

    def all_tokens(self) -> np.ndarray:
        """[tokens] of all parts."""
        return np.concatenate(self.tokens)

    def all_positions(self) -> np.ndarray:
        """[tokens] positions of all parts."""
        return np.concatenate(self.positions)


@dataclass
class StepPlan:
    """Attends part by part (an `AttentionPlan`, see recollect.models.attention)."""

    parts: list[tuple[PartAttention, int]]
    layers: int
    keep: Tensor | None  # flat tokens whose output is read after the last layer; None: all

    def __post_init__(self) -> None:
        self.total = sum(count for _, count in self.parts)
        if self.keep is not None and len(self.keep) == self.total:
            self.keep = None

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """One layer: every part's queries, keys and values to its own attention."""
        last = layer == self.layers - 1
        if len(self.parts) == 1:
            return self.parts[0][0].attend(layer, q, k, v, scoring, last)
        outs, start = [], 0
        for part, count in self.parts:
            s = slice(start, start + count)
            outs.append(part.attend(layer, q[:, s], k[:, s], v[:, s], scoring, last))
            start += count
        return torch.cat(outs)
