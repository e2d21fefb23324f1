"""Plain attention of prefixes that are prefilled, with the operations of torch (`sdpa`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from recollect.engine.prefix import PrefixChunk
from recollect.models.attention import Scoring, sdpa


@dataclass
class ChunkPrefill:
    """One chunk of a prefix that is prefilled over several steps."""

    chunks: list[PrefixChunk]  # one

    @staticmethod
    def of(chunks: Sequence[PrefixChunk]) -> list[ChunkPrefill]:
        """Those of the chunks that are not whole prefixes."""
        return [ChunkPrefill([c]) for c in chunks if not c.whole]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring, last: bool = False) -> Tensor:
        """Queries [heads, tokens, dim] of the chunk over all of the prefix up to them → [tokens, heads, dim]."""
        ((prefix, count),) = self.chunks
        done, end = prefix.done, prefix.done + count
        keys, values = prefix.keys[layer], prefix.values[layer]
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
class BatchPrefill:
    """Whole prefixes, padded to one length."""

    chunks: list[PrefixChunk]

    @staticmethod
    def of(chunks: Sequence[PrefixChunk]) -> list[BatchPrefill]:
        """Those of the chunks that are whole prefixes, similar lengths together."""
        batches: list[list[PrefixChunk]] = []
        for chunk in sorted((c for c in chunks if c.whole), key=lambda c: -c.size):
            if not batches or chunk.size < 0.7 * batches[-1][0].size:
                batches.append([])
            batches[-1].append(chunk)
        return [BatchPrefill(batch) for batch in batches]

    def __post_init__(self) -> None:
        self.longest = max(c.size for c in self.chunks)
        device = self.chunks[0].prefix.keys[0].device
        lengths = torch.tensor([c.size for c in self.chunks], device=device)
        inside = torch.arange(self.longest, device=device) < lengths[:, None]
        self.flat = inside.reshape(-1).nonzero().squeeze(-1)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring, last: bool = False) -> Tensor:
        """Queries [heads, tokens, dim] of all prefixes, causal within each → [tokens, heads, dim]."""
        n, longest = len(self.chunks), self.longest
        padded = []
        for x in (q, k, v):
            room = x.new_zeros(n * longest, x.shape[0], x.shape[2])
            room[self.flat] = x.transpose(0, 1)
            padded.append(room.view(n, longest, x.shape[0], x.shape[2]).transpose(1, 2))
        for i, (prefix, length) in enumerate(self.chunks):
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
