"""One forward pass of the engine: rows that decode, rows that join, prefixes that are read, in one flat batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from recollect.engine.prefix import Prefix
from recollect.models.attention import Scoring, sdpa


@dataclass
class PrefixRead:
    """The next ``count`` tokens of a prefix."""

    prefix: Prefix
    size: int

    @staticmethod
    def of(reading: Sequence[tuple[Prefix, int]]) -> list[PrefixRead]:
        """The prefixes that are read in several steps."""
        return [PrefixRead(p, n) for p, n in reading if p.done or n < len(p.ids)]

    def tokens(self) -> list[np.ndarray]:
        return [self.prefix.ids[self.prefix.done : self.prefix.done + self.size]]

    def positions(self) -> list[np.ndarray]:
        return [np.arange(self.prefix.done, self.prefix.done + self.size)]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring, last: bool = False) -> Tensor:
        done, end = self.prefix.done, self.prefix.done + self.size
        keys, values = self.prefix.keys[layer], self.prefix.values[layer]
        keys[:, :, done:end], values[:, done:end] = k.transpose(1, 2), v
        if last:
            return q.new_zeros(q.shape[1], q.shape[0], v.shape[2])
        mask = None
        if done or scoring.window is not None:
            query = torch.arange(done, end, device=q.device)[:, None]
            key = torch.arange(end, device=q.device)[None]
            mask = (key <= query) & (query - key < (scoring.window or end + 1))
        seen = keys[None, :, :, :end].transpose(2, 3), values[None, :, :end]
        out = sdpa(q[None], *seen, mask, scoring.scale, scoring.softcap)
        return out[0].transpose(0, 1)


@dataclass
class PrefixBatch:
    """Whole new prefixes, padded to one length and read together."""

    prefixes: list[Prefix]

    @staticmethod
    def of(reading: Sequence[tuple[Prefix, int]]) -> list[PrefixBatch]:
        """The prefixes that are read whole, those of similar length together."""
        shelves: list[list[Prefix]] = []
        whole = [p for p, n in reading if p.done == 0 and n == len(p.ids)]
        for prefix in sorted(whole, key=lambda p: -len(p.ids)):
            if not shelves or len(prefix.ids) < 0.7 * len(shelves[-1][0].ids):
                shelves.append([])
            shelves[-1].append(prefix)
        return [PrefixBatch(shelf) for shelf in shelves]

    def tokens(self) -> list[np.ndarray]:
        return [p.ids for p in self.prefixes]

    def positions(self) -> list[np.ndarray]:
        return [np.arange(len(p.ids)) for p in self.prefixes]

    def __post_init__(self) -> None:
        self.lengths = [len(p.ids) for p in self.prefixes]
        self.longest, self.size = max(self.lengths), sum(self.lengths)
        device = self.prefixes[0].keys[0].device
        lengths = torch.tensor(self.lengths, device=device)
        inside = torch.arange(self.longest, device=device) < lengths[:, None]
        self.flat = inside.reshape(-1).nonzero().squeeze(-1)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring, last: bool = False) -> Tensor:
        n, longest = len(self.prefixes), self.longest
        padded = []
        for x in (q, k, v):
            room = x.new_zeros(n * longest, x.shape[0], x.shape[2])
            room[self.flat] = x.transpose(0, 1)
            padded.append(room.view(n, longest, x.shape[0], x.shape[2]).transpose(1, 2))
        for i, (prefix, length) in enumerate(zip(self.prefixes, self.lengths, strict=True)):
            prefix.keys[layer][:, :, :length] = padded[1][i, :, :length].transpose(1, 2)
            prefix.values[layer][:, :length] = padded[2][i, :, :length]
        if last:
            return q.new_zeros(q.shape[1], q.shape[0], v.shape[2])
        mask = None
        if scoring.window is not None:
            place = torch.arange(longest, device=q.device)
            mask = (place[None] <= place[:, None]) & (place[:, None] - place[None] < scoring.window)
        out = sdpa(padded[0], padded[1], padded[2], mask, scoring.scale, scoring.softcap)
        return out.transpose(1, 2).reshape(n * longest, q.shape[0], -1)[self.flat]


class Part(Protocol):
    """Attention of some flat tokens that follow each other; ``last``: of the last layer."""

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring, last: bool = False) -> Tensor: ...


@dataclass
class StepPlan:
    """Parts of a step with the number of flat tokens of each (see recollect.models.attention)."""

    parts: list[tuple[Part, int]]
    layers: int
    keep: Tensor | None  # flat places whose output is read after the last layer

    def __post_init__(self) -> None:
        self.total = sum(count for _, count in self.parts)
        if self.keep is not None and len(self.keep) == self.total:
            self.keep = None

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        last = layer == self.layers - 1
        if len(self.parts) == 1:
            return self.parts[0][0].attend(layer, q, k, v, scoring, last)
        outs, start = [], 0
        for part, count in self.parts:
            s = slice(start, start + count)
            outs.append(part.attend(layer, q[:, s], k[:, s], v[:, s], scoring, last))
            start += count
        return torch.cat(outs)
