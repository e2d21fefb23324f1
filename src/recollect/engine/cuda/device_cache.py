"""The KV cache on a GPU: token-major slots whose sizes are powers of two, at addresses that kernels are given."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from recollect.engine.kv_cache import KVCache
from recollect.engine.prefix import Prefix

Address = tuple[int, int, int]  # of a token's first key, and numbers from head to head and from keys to values


def slot_length(tokens: int) -> int:
    """Tokens that a slot has room for, if a row owns so many."""
    return max(256, 1 << (tokens - 1).bit_length())


class DeviceCache(KVCache):
    """All slots in one tensor [layers, keys and values, slots, kv heads, capacity, dim]."""

    def __init__(self, layers: int, heads: int, dim: int, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(layers, heads, dim, dtype, device, token_major=True)
        self.expected = 0  # rows that will want a slot soon: memory is allocated for them too

    def _round_slots(self, slots: int) -> int:
        return max(16, 1 << (max(slots, self.expected) - 1).bit_length())

    def _round_capacity(self, tokens: int) -> int:
        return slot_length(tokens)

    @property
    def tokens(self) -> Tensor:
        """All of it: [layers, keys and values, slots, kv heads, capacity, dim]."""
        assert self._memory is not None
        return self._memory.view(*self._memory.shape[:4], self.capacity, self.dim)

    def ensure(self, slots: int, capacity: int, used: int) -> None:
        """Room for so many rows of so many tokens; rows may be in any slot."""
        super().ensure(slots, capacity, self.slots)

    def copy_row(self, target: Prefix, slot: int, start: int, end: int) -> None:
        """Copy what a row owns into a prefix, in one call."""
        _tokens_of(target)[:, :, :, start:end] = self.tokens[:, :, slot, :, : end - start]
        target.done = end

    def copy_prefix(self, target: Prefix, source: Prefix, count: int) -> None:
        """Copy the first tokens of one prefix into another, in one call."""
        _tokens_of(target)[:, :, :, :count] = _tokens_of(source)[:, :, :, :count]

    def take_prefix(self, slot: int, prefix: Prefix, count: int, own: int) -> None:
        """Put the first tokens of a prefix before the ``own`` ones that a row has in its slot."""
        mine = self.tokens[:, :, slot]
        mine[:, :, :, count : count + own] = mine[:, :, :, :own].clone()
        mine[:, :, :, :count] = _tokens_of(prefix)[:, :, :, :count]

    def address(self, slot: int) -> Address:
        """Where a row's first token goes."""
        assert self._memory is not None
        by_head = self.capacity * self.dim
        by_slot = self.heads * by_head
        return self._memory.data_ptr() + slot * by_slot * self.dtype.itemsize, by_head, self.slots * by_slot


def _tokens_of(prefix: Prefix) -> Tensor:
    """A prefix as [layers, keys and values, kv heads, room, dim]."""
    return prefix.memory.view(*prefix.memory.shape[:2], prefix.heads, prefix.room, prefix.dim)


def first_address(prefix: Prefix) -> Address:
    """Where a token-major prefix begins."""
    by_head = prefix.room * prefix.dim
    return prefix.memory.data_ptr(), by_head, prefix.heads * by_head


def prefix_address(prefix: Prefix) -> Address:
    """Where the next token of a token-major prefix goes."""
    start, by_head, by_kind = first_address(prefix)
    return start + prefix.done * prefix.dim * prefix.memory.itemsize, by_head, by_kind


@dataclass(frozen=True)
class MemoryLimit:
    """How many rows' keys and values fit into memory."""

    most: int
    token_bytes: int
    room: int | None  # bytes; None: no limit

    def rows(self, longest: int) -> int:
        """Rows, if one of them owns so many tokens: as many as are asked for, or a power of two (as slots are)."""
        if self.room is None:
            return self.most
        fit = self.room // (slot_length(longest) * self.token_bytes)
        return self.most if fit >= 1 << (self.most - 1).bit_length() else 1 << max(0, fit.bit_length() - 1)
