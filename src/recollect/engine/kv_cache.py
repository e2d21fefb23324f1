"""The KV cache of the rows that decode: one slot for each row.

A slot holds what is the row's own: the end of its prompt and what it has sampled. What a row shares with others stays
in a `Prefix`. Rows are compact (row i is slot i), so attention reads the cache through views.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from recollect.engine.prefix import Prefix


class KVCache:
    """Keys [slots, kv heads, dim, capacity] and values [slots, kv heads, capacity, dim] of all rows, for each layer.

    That is how ``keys`` are indexed. With ``token_major`` a token's numbers lie side by side in memory, and ``keys``
    are a transposed view; otherwise the tokens do, which suits products with a few queries on a CPU.
    """

    def __init__(
        self, layers: int, heads: int, dim: int, dtype: torch.dtype, device: torch.device, token_major: bool = False
    ) -> None:
        self.layers, self.heads, self.dim, self.dtype, self.device = layers, heads, dim, dtype, device
        self.token_major = token_major
        self.slots, self.capacity = 0, 0
        self.generation = 0  # how often the memory was allocated
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self._memory: Tensor | None = None

    def ensure(self, slots: int, capacity: int, used: int) -> None:
        """Room for so many rows of so many tokens; the first ``used`` rows keep what is in their slots."""
        if slots <= self.slots and capacity <= self.capacity:
            return
        old_slots, old_capacity, old_keys, old_values = self.slots, self.capacity, self.keys, self.values
        try:
            if slots > self.slots:
                self.slots = self._round_slots(slots)
            if capacity > self.capacity:
                self.capacity = self._round_capacity(capacity)
            self._allocate()
        except Exception:  # out of memory: the cache is what it was, or the next step would write past its end
            self.slots, self.capacity = old_slots, old_capacity
            raise
        for new, old in zip(self.keys, old_keys, strict=False):
            new[:used, :, :, :old_capacity] = old[:used]
        for new, old in zip(self.values, old_values, strict=False):
            new[:used, :, :old_capacity] = old[:used]

    def _allocate(self) -> None:
        shape = (self.layers, 2, self.slots, self.heads, self.capacity * self.dim)
        memory = torch.zeros(shape, dtype=self.dtype, device=self.device)
        self._memory, self.keys, self.values = memory, [], []
        for keys, values in memory:
            tokens = values.view(self.slots, self.heads, self.capacity, self.dim)
            self.values.append(tokens)
            if self.token_major:
                self.keys.append(keys.view_as(tokens).transpose(2, 3))
            else:
                self.keys.append(keys.view(self.slots, self.heads, self.dim, self.capacity))
        self.generation += 1

    def _round_slots(self, slots: int) -> int:
        return _round_up(slots, 16)

    def _round_capacity(self, tokens: int) -> int:
        return _round_up(tokens, 64)

    @property
    def token_bytes(self) -> int:
        """Memory of one token of one row."""
        return 2 * self.layers * self.heads * self.dim * self.dtype.itemsize

    def move(self, source: int, target: int, length: int) -> None:
        """Copy one row's first ``length`` tokens over another's."""
        for keys, values in zip(self.keys, self.values, strict=True):
            keys[target, :, :, :length] = keys[source, :, :, :length]
            values[target, :, :length] = values[source, :, :length]

    def copy_row(self, target: Prefix, slot: int, start: int, end: int) -> None:
        """Copy what a row owns into a prefix, as its tokens from ``start`` to ``end``."""
        for layer in range(self.layers):
            target.keys[layer][:, :, start:end] = self.keys[layer][slot, :, :, : end - start]
            target.values[layer][:, start:end] = self.values[layer][slot, :, : end - start]
        target.done = end

    def copy_prefix(self, target: Prefix, source: Prefix, count: int) -> None:
        """Copy the first tokens of one prefix into another."""
        for layer in range(self.layers):
            target.keys[layer][:, :, :count] = source.keys[layer][:, :, :count]
            target.values[layer][:, :count] = source.values[layer][:, :count]

    def new_prefix(self, ids: np.ndarray) -> Prefix:
        """An empty prefix with memory of the same layout."""
        return Prefix(ids, self.layers, self.heads, self.dim, self.dtype, self.device, self.token_major)

    def free(self) -> None:
        """Give all memory back."""
        self.keys, self.values, self.slots, self.capacity, self._memory = [], [], 0, 0, None


def _round_up(value: int, unit: int) -> int:
    """A quarter more, as a multiple of ``unit``."""
    return -(-int(value * 1.25) // unit) * unit
