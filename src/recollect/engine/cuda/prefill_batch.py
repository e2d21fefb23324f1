"""What is prefilled in one pass, in memory that stays: so that a captured graph serves prompts of any kind.

The host describes a pass by numbers: ids, positions and places of tokens, and the tiles of `prefill_kernel.py`. All of
them go to the device in one copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from recollect.engine.cuda.device_cache import Address, DeviceCache, first_address
from recollect.engine.cuda.elementwise import store_kv
from recollect.engine.cuda.pinned import PinnedRing
from recollect.engine.cuda.prefill_kernel import COLUMNS, TILE, attend_tiles
from recollect.engine.prefix import BLOCK, PrefixChunk
from recollect.engine.request import EngineRequest
from recollect.models.attention import Scoring

STEPS = ((512, 128), (2048, 256), (8192, 1024))  # up to so many tokens, sizes are multiples of this …
LARGE = 4096  # … and beyond
NOTHING: Address = (0, 0, 0)


def size_for(tokens: int) -> int:
    """The size of the smallest batch that holds so many tokens."""
    step = next((step for most, step in STEPS if tokens <= most), LARGE)
    return -(-tokens // step) * step


class NewTokens(NamedTuple):
    """New tokens that follow each other."""

    tokens: np.ndarray
    position: int  # of the first
    place: Address  # where the sequence's own tokens are, from its first on
    before: int  # own tokens that are there already
    prefix: Address  # where those of its prefix are …
    span: int  # … and how many of them it attends to


def of_row(request: EngineRequest, slot: int, cache: DeviceCache) -> NewTokens:
    """The end of a prompt, in a slot."""
    prefix = NOTHING if request.prefix is None or not request.shared else first_address(request.prefix)
    return NewTokens(request.suffix, request.shared, cache.address(slot), 0, prefix, request.shared)


def of_chunk(chunk: PrefixChunk) -> NewTokens:
    """The next tokens of a prefix."""
    done = chunk.prefix.done
    return NewTokens(chunk.tokens, done, first_address(chunk.prefix), done, NOTHING, 0)


class PrefillBatch:
    """Attends for up to ``size`` tokens of any number of sequences (an `AttentionPlan`)."""

    def __init__(self, cache: DeviceCache, size: int, most: int) -> None:
        """``most`` is how many rows may join."""
        self.cache, self.size, self.total = cache, size, size
        tiles = -(-size // TILE) + min(size, most + size // BLOCK)  # rows, and prefixes of some tokens
        self._host = PinnedRing(5 * size + 1 + tiles * COLUMNS)
        self.numbers = torch.zeros(len(self._host), dtype=torch.int64, device=cache.device)
        self.tokens, self.positions = self.numbers[:size], self.numbers[size : 2 * size]
        self.places = self.numbers[2 * size : 5 * size].view(3, size)
        self.count = self.numbers[5 * size : 5 * size + 1]
        self.table = self.numbers[5 * size + 1 :].view(tiles, COLUMNS)
        self.keep = torch.zeros(0, dtype=torch.int64, device=cache.device)  # nobody reads an output

    def fill(self, sequences: Sequence[NewTokens]) -> None:
        """Take in what is prefilled next."""
        size, step = self.size, self.cache.dim * self.cache.dtype.itemsize
        length = np.array([len(s.tokens) for s in sequences])
        start = np.cumsum(length) - length
        place, prefix = (np.array([getattr(s, name) for s in sequences]) for name in ("place", "prefix"))
        position, before, span = np.array([(s.position, s.before, s.span) for s in sequences]).T
        used = int(length.sum())
        which, inside = _spread(length)
        with self._host.next() as host:
            by_token = host[: 5 * size].reshape(5, size)
            by_token[0, :used] = np.concatenate([s.tokens for s in sequences])
            by_token[1, :used] = position[which] + inside
            by_token[2, :used] = place[which, 0] + step * (before[which] + inside)
            by_token[3:, :used] = place[which, 1:].T
            by_token[:, used:] = 0  # tokens that have no place
            which, part = _spread(-(-length // TILE))
            host[5 * size] = len(which)
            tiles = host[5 * size + 1 :].reshape(-1, COLUMNS)[: len(which)]
            tiles[:, 0] = start[which] + TILE * part
            tiles[:, 1] = np.minimum(TILE, length[which] - TILE * part)
            tiles[:, 2:5], tiles[:, 5] = prefix[which][:, [0, 2, 1]], span[which]
            tiles[:, 6:9], tiles[:, 9] = place[which][:, [0, 2, 1]], before[which] + TILE * part
            self._host.copy_to(self.numbers)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """Queries [heads, tokens, dim] → [tokens, heads, dim]; new keys and values are stored."""
        store_kv(k.transpose(0, 1), v.transpose(0, 1), self.places, layer)
        if layer == self.cache.layers - 1:  # nobody reads what comes of it
            return torch.zeros_like(q.transpose(0, 1))
        return attend_tiles(q, self.table, self.count, len(k), layer, scoring)


def _spread(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each of some things of each of some owners: its owner, and which of the owner's it is."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
