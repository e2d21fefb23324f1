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

    def move(self, source: int, target: int, length: int) -> None:
        """Copy one row over another, in one call."""
        room = slot_length(length)
        self.tokens[:, :, target, :, :room] = self.tokens[:, :, source, :, :room]

    def address(self, slot: int) -> Address:
        """Where a row's first token goes."""
        tokens = self.tokens
        return tokens[0, 0, slot].data_ptr(), tokens.stride(3), tokens.stride(1)


def prefix_address(prefix: Prefix) -> Address:
    """Where the next token of a token-major prefix goes."""
    heads, room, dim = prefix.values[0].shape
    return prefix.memory.data_ptr() + prefix.done * dim * prefix.memory.itemsize, room * dim, heads * room * dim


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
