"""Prompt beginnings whose keys and values are kept, so that requests which share them compute them once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import count, pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from recollect.images.image_ids import rotary_part

T = TypeVar("T")
ROOM = 32  # memory is for a multiple of so many tokens: compiled attention reads that many at a time
_numbers = count()  # of prefixes: the address of one that is gone may be another's
BLOCK = 16  # tokens between the places at which prefixes are looked up


class Prefix:
    """Keys and values of the first tokens of some prompts, in one piece of memory [layers, 2, kv heads · room · dim].

    ``keys`` are indexed [kv heads, dim, room] and ``values`` [kv heads, room, dim], for each layer; with
    ``token_major`` the keys are stored as the values are (see `KVCache`).
    """

    def __init__(
        self,
        ids: np.ndarray,
        layers: int,
        heads: int,
        dim: int,
        dtype: torch.dtype,
        device: torch.device,
        token_major: bool = False,
    ) -> None:
        self.ids, self.number = ids, next(_numbers)
        self.room = -(-len(ids) // ROOM) * ROOM
        self.heads, self.dim, self.token_major = heads, dim, token_major
        self.memory = torch.empty(layers, 2, heads * self.room * dim, dtype=dtype, device=device)
        self.done = 0  # tokens prefilled so far
        self.users = 0  # rows that attend to it now
        self.temporary = False  # made for one request, not worth keeping after it

    @cached_property
    def keys(self) -> list[Tensor]:
        """The keys of each layer."""
        if self.token_major:
            return [m[0].view(self.heads, self.room, self.dim).transpose(1, 2) for m in self.memory]
        return [m[0].view(self.heads, self.dim, self.room) for m in self.memory]

    @cached_property
    def values(self) -> list[Tensor]:
        """The values of each layer."""
        return [m[1].view(self.heads, self.room, self.dim) for m in self.memory]


class PrefixChunk(NamedTuple):
    """The next ``size`` tokens of a prefix, to be prefilled."""

    prefix: Prefix
    size: int

    @property
    def whole(self) -> bool:
        """True where this is all of the prefix."""
        return self.prefix.done == 0 and self.size == len(self.prefix.ids)

    @property
    def tokens(self) -> np.ndarray:
        """Its ids."""
        return self.prefix.ids[self.prefix.done : self.prefix.done + self.size]

    @property
    def places(self) -> np.ndarray:
        """Where they are in the prefix."""
        return np.arange(self.prefix.done, self.prefix.done + self.size)

    @property
    def rotary(self) -> np.ndarray:
        """Where they are, for rotary embeddings."""
        return rotary_part(self.prefix.ids, self.prefix.done, self.prefix.done + self.size)


class PrefixCache:
    """Prefixes by what they say; the least recently used go first. One cache serves one version of the weights."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.tokens = 0
        self._index: dict[int, Prefix] = {}
        self._entries: OrderedDict[int, tuple[Prefix, list[int]]] = OrderedDict()

    def clear(self) -> None:
        """Forget everything (new weights)."""
        self._index.clear()
        self._entries.clear()
        self.tokens = 0

    def add(self, prefix: Prefix) -> None:
        """Make a prefix findable, and drop old ones over the capacity that nobody reads."""
        blocks = list(block_hashes(prefix.ids))
        for block in blocks:
            self._index[block] = prefix
        self._entries[id(prefix)] = (prefix, blocks)
        self.tokens += len(prefix.ids)
        if self.tokens > self.capacity:
            self._make_room(prefix)

    def _make_room(self, newest: Prefix) -> None:
        """Drop the oldest prefixes that nobody reads, but for the newest, until the others fit."""
        for old, _ in list(self._entries.values()):
            if self.tokens <= self.capacity:
                break
            if old.users == 0 and old is not newest:
                self.drop(old)

    def drop(self, prefix: Prefix) -> None:
        """Forget one prefix."""
        _, blocks = self._entries.pop(id(prefix))
        self.tokens -= len(prefix.ids)
        for block in blocks:
            if self._index.get(block) is prefix:
                del self._index[block]

    def holds(self, ids: np.ndarray) -> bool:
        """True when all of these are known; that is then as good as used."""
        found = deepest(self._index, ids)
        if found is None or common(found.ids, ids) < len(ids) or found.done < len(ids):
            return False
        self._entries.move_to_end(id(found))
        return True

    def match(self, ids: np.ndarray) -> tuple[Prefix | None, int]:
        """The prefix that shares the longest beginning with these ids, and how many tokens (never all of them)."""
        found = deepest(self._index, ids)
        if found is None:
            return None, 0
        shared = common(found.ids, ids[:-1])
        if shared < BLOCK:  # a hash collision, or the prompt is hardly longer than a block
            return None, 0
        self._entries.move_to_end(id(found))
        return found, shared


def deepest(index: dict[int, T], ids: np.ndarray) -> T | None:
    """What an index of block hashes knows about the longest beginning of these ids."""
    found = None
    for block in block_hashes(ids):
        if block not in index:
            break
        found = index[block]
    return found


def block_hashes(ids: np.ndarray) -> Iterator[int]:
    """A hash of the ids up to each multiple of BLOCK, one by one: most searches end soon."""
    data, h = np.ascontiguousarray(ids, np.int32), 0
    raw, size = data.tobytes(), BLOCK * data.itemsize
    for end in range(size, len(raw) + 1, size):
        h = hash((h, raw[end - size : end]))
        yield h


def common(a: np.ndarray, b: np.ndarray) -> int:
    """How many leading ids two prompts share."""
    n = min(len(a), len(b))
    different = np.flatnonzero(a[:n] != b[:n])
    return int(different[0]) if len(different) else n


def clusters(prompts: Sequence[np.ndarray]) -> list[tuple[list[int], int]]:
    """Groups of prompts that share a long beginning, with its length (0 for a prompt on its own).

    Neighbours in sorted order belong together when what they share is most of what either shares with anybody, so
    the samples of one task meet, and tasks that merely share a system prompt do not.
    """
    order = sorted(range(len(prompts)), key=lambda i: prompts[i].tobytes())
    shared = [common(prompts[a], prompts[b]) for a, b in pairwise(order)]
    around = [0, *shared, 0]
    best = [max(around[i], around[i + 1]) for i in range(len(order))]
    groups: list[tuple[list[int], int]] = []
    for i, row in enumerate(order):
        together = i > 0 and shared[i - 1] >= BLOCK and shared[i - 1] >= 0.8 * max(best[i - 1], best[i])
        if together:
            rows, length = groups[-1]
            rows.append(row)
            length = min(length or shared[i - 1], shared[i - 1], len(prompts[row]) - 1, len(prompts[rows[0]]) - 1)
            groups[-1] = (rows, length)
        else:
            groups.append(([row], 0))
    return groups
