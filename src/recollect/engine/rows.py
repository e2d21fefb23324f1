"""The sequences that are being decoded: their own keys and values, and attention over them.

Each row owns a slot of a dense cache for what is its own: the end of its prompt and what it has sampled. What it
shares with others stays in a Prefix. Attention scores over both parts are normalised together. Rows stay compact, so
the cache is read through views, and a shared prefix is read once for all of its rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from recollect.engine.prefix import Prefix, by_token
from recollect.engine.request import Request
from recollect.models.attention import Scoring


def slot_length(tokens: int) -> int:
    """Tokens that a slot on a GPU has room for, if a row owns so many."""
    return max(256, 1 << (tokens - 1).bit_length())


class Cache:
    """Keys [slots, kv heads, dim, capacity] and values [slots, kv heads, capacity, dim] of all rows, per layer.

    Where a token's numbers lie side by side (`prefix.by_token`), ``keys`` are seen from the side.
    """

    def __init__(self, layers: int, heads: int, dim: int, dtype: torch.dtype, device: torch.device) -> None:
        self.layers, self.heads, self.dim, self.dtype, self.device = layers, heads, dim, dtype, device
        self.slots, self.capacity = 0, 0
        self.expected = 0  # rows that will want a slot soon: when memory is made, it is made for them too
        self.made = 0  # how often the memory was made anew
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self._memory: Tensor | None = None

    def ensure(self, slots: int, capacity: int, used: int) -> None:
        """Room for so many rows of so many tokens; the first ``used`` rows keep what they hold."""
        if slots <= self.slots and capacity <= self.capacity:
            return
        held, before = self.capacity, self._memory
        wide = by_token(self.device)
        if slots > self.slots:
            slots = max(slots, self.expected)
            self.slots = max(16, 1 << (slots - 1).bit_length()) if wide else _round(slots, 16)
        if capacity > self.capacity:
            self.capacity = slot_length(capacity) if wide else _round(capacity, 64)
        old_keys, old_values = self.keys, self.values
        shape = (self.layers, 2, self.slots, self.heads, self.capacity * self.dim)
        self._memory = torch.zeros(shape, dtype=self.dtype, device=self.device)
        self.keys, self.values = [], []
        for keys, values in self._memory:
            tokens = values.view(self.slots, self.heads, self.capacity, self.dim)
            self.values.append(tokens)
            if wide:
                self.keys.append(keys.view_as(tokens).transpose(2, 3))
            else:
                self.keys.append(keys.view(self.slots, self.heads, self.dim, self.capacity))
        self.made += 1
        if before is not None and used:
            for new, old in zip(self.keys, old_keys, strict=True):
                new[:used, :, :, :held] = old[:used]
            for new, old in zip(self.values, old_values, strict=True):
                new[:used, :, :held] = old[:used]

    @property
    def token_bytes(self) -> int:
        """Memory of one token of one row."""
        return 2 * self.layers * self.heads * self.dim * self.dtype.itemsize

    @property
    def tokens(self) -> Tensor:
        """On a GPU all of it: [layers, keys and values, slots, kv heads, capacity, dim]."""
        assert self._memory is not None
        return self._memory.view(*self._memory.shape[:4], self.capacity, self.dim)

    def place(self, slot: int) -> tuple[int, int, int]:
        """On a GPU, where a row's first keys are: an address, and numbers from head to head and to the values."""
        tokens = self.tokens
        return tokens[0, 0, slot].data_ptr(), tokens.stride(3), tokens.stride(1)

    def move(self, source: int, target: int, length: int) -> None:
        """Copy one row over another."""
        if by_token(self.device):
            held = slot_length(length)
            self.tokens[:, :, target, :, :held] = self.tokens[:, :, source, :, :held]
            return
        for keys, values in zip(self.keys, self.values, strict=True):
            keys[target, :, :, :length] = keys[source, :, :, :length]
            values[target, :, :length] = values[source, :, :length]

    def free(self) -> None:
        """Give all memory back."""
        self.keys, self.values, self.slots, self.capacity, self._memory = [], [], 0, 0, None


@dataclass(frozen=True)
class Fitting:
    """How many rows' keys and values fit into memory."""

    most: int
    token_bytes: int
    room: int | None  # bytes; None: never mind

    def rows(self, longest: int) -> int:
        """Rows, if one of them owns so many tokens: as many as are asked for, or a power of two (as slots are)."""
        if self.room is None:
            return self.most
        fit = self.room // (slot_length(longest) * self.token_bytes)
        return self.most if fit >= 1 << (self.most - 1).bit_length() else 1 << max(0, fit.bit_length() - 1)


class Stack:
    """The prefixes that rows read at the moment, stacked so that one product serves them all."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.index: dict[int, int] = {}
        self.made = 0  # how often the stack was made anew
        self.keys: list[Tensor] = []  # per layer [groups, kv heads, longest, dim]
        self.values: list[Tensor] = []

    def hold(self, prefixes: Iterable[Prefix]) -> None:
        """Make sure that these prefixes are here; whatever else was here may go."""
        wanted = {p.number: p for p in prefixes}
        if all(key in self.index for key in wanted) and len(self.index) <= 2 * len(wanted):
            return
        longest = max((p.done for p in wanted.values()), default=0)
        cache = self.cache
        shape = (len(wanted), cache.heads, longest, cache.dim)
        self.index = {key: g for g, key in enumerate(wanted)}
        self.made += 1
        for kind in ("keys", "values"):
            layers = []
            for layer in range(cache.layers):
                stack = torch.zeros(shape, dtype=cache.dtype, device=cache.device)
                for g, prefix in enumerate(wanted.values()):
                    source = prefix.values[layer] if kind == "values" else prefix.keys[layer].transpose(1, 2)
                    stack[g, :, : prefix.done] = source[:, : prefix.done]
                layers.append(stack)
            setattr(self, kind, layers)


@dataclass
class SharedPart:
    """Which rows read which prefix of a stack."""

    stack: Stack
    place: Tensor  # [rows] where a row's queries go among groups × most
    most: int  # rows per group, at most
    lengths: Tensor  # [rows] how many of the prefix's tokens the row reads
    longest: int
    stack_id: int  # the making of the stack that this belongs to

    @staticmethod
    def of(requests: list[Request], stack: Stack) -> SharedPart | None:
        """The shared part of these rows, or None when no row shares anything."""
        readers: list[list[int]] = [[] for _ in stack.index]
        alone: list[int] = []
        for row, request in enumerate(requests):
            (readers[stack.index[request.prefix.number]] if request.prefix is not None else alone).append(row)
        if len(alone) == len(requests):
            return None
        most = max(max(map(len, readers)), -(-len(requests) // len(readers)))
        for rows in readers:  # rows that share nothing sit wherever there is room, and see nothing there
            while alone and len(rows) < most:
                rows.append(alone.pop())
        place = np.empty(len(requests), np.int64)
        for g, rows in enumerate(readers):
            place[rows] = g * most + np.arange(len(rows))
        shared = np.array([r.shared for r in requests])
        device = stack.cache.device
        lengths = torch.from_numpy(shared).to(device)
        return SharedPart(stack, torch.from_numpy(place).to(device), most, lengths, int(shared.max()), stack.made)


class RowsAttention:
    """Attention of some rows' new tokens (all have ``width`` of them, padded) over what they share and own.

    One instance serves all layers of a step: indices and masks are made once.
    """

    def __init__(
        self, cache: Cache, shared: SharedPart | None, first: int, owned: Tensor, width: int, fresh: Tensor
    ) -> None:
        self.cache, self.shared, self.first, self.width = cache, shared, first, width
        rows = len(owned)
        device = owned.device
        self.rows = rows
        self.span = int((owned + fresh).max())  # longest own part, new tokens included
        step = torch.arange(width, device=device)
        self.query_own = owned[:, None] + step  # [rows, width] place of each query among the row's own tokens
        self.base = shared.lengths if shared is not None else torch.zeros_like(owned)
        real = (step < fresh[:, None]).reshape(-1)
        self.flat = real.nonzero().squeeze(-1)  # real tokens among rows × width
        self.slot = (torch.arange(rows, device=device) + first).repeat_interleave(width)[self.flat]
        self.spot = self.query_own.reshape(-1)[self.flat]
        self.dense = len(self.flat) == rows * width
        self._masks: dict[tuple[int, int | None], tuple[Tensor, Tensor | None]] = {}

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring, last: bool = False) -> Tensor:
        """Queries [heads, tokens, dim] in row order → [tokens, heads, dim]; new keys and values are stored."""
        scale, window, softcap = scoring
        heads, _, dim = q.shape
        kv, rows, width, end = k.shape[0], self.rows, self.width, self.first + self.rows
        keys, values = self.cache.keys[layer], self.cache.values[layer]
        keys[self.slot, :, :, self.spot] = k.transpose(0, 1)
        values[self.slot, :, self.spot] = v.transpose(0, 1)
        # the query heads that read one key head stand side by side: [rows, kv, heads per kv × width, dim]
        query = self._padded(q).view(rows, width, kv, heads // kv, dim).permute(0, 2, 3, 1, 4)
        query = query.reshape(rows, kv, -1, dim)
        own_mask, shared_mask = self._mask(heads // kv, window, q.dtype)
        if width == 1:  # decoding
            scores = (query @ keys[self.first : end, :, :, : self.span]).float().mul_(scale)
            out, total = _normalised(scores, own_mask, values[self.first : end, :, : self.span], softcap)
        else:  # joining: all that a row owns is new
            new = [self._padded(x).view(rows, width, kv, dim).transpose(1, 2) for x in (k, v)]
            out, total = partial_attention(query, new[0], new[1], own_mask, scale, softcap)
        if self.shared is not None and shared_mask is not None:
            shared = self.shared
            stack_keys = shared.stack.keys[layer][:, :, : shared.longest]
            stack_values = shared.stack.values[layer][:, :, : shared.longest]
            grouped = query.new_zeros(len(stack_keys) * shared.most, *query.shape[1:])
            grouped[shared.place] = query
            seen, weight = partial_attention(
                _fold(grouped, shared.most), stack_keys, stack_values, shared_mask, scale, softcap
            )
            seen = _unfold(seen, shared.most)[shared.place]
            weight = _unfold(weight.unsqueeze(-1), shared.most)[shared.place].squeeze(-1)
            share = torch.sigmoid(weight - total).unsqueeze(-1)  # two softmaxes merged by their normalisers
            out = torch.lerp(out.float(), seen.float(), share).to(q.dtype)
        out = out.view(rows, kv, heads // kv, width, dim).permute(0, 3, 1, 2, 4).reshape(rows * width, heads, dim)
        return out if self.dense else out[self.flat]

    def _padded(self, x: Tensor) -> Tensor:
        """[heads, tokens, dim] → [rows × width, heads, dim]."""
        if self.dense:
            return x.transpose(0, 1)
        room = x.new_zeros(self.rows * self.width, x.shape[0], x.shape[2])
        room[self.flat] = x.transpose(0, 1)
        return room

    def _mask(self, groups: int, window: int | None, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """Additive masks of the own part [rows, 1, groups × width, span] and of the shared part."""
        if (groups, window) not in self._masks:
            query = self.query_own[:, :, None]
            key = torch.arange(self.span, device=query.device)
            own = key <= query
            if window is not None:
                own &= query - key < window
            seen = None
            if self.shared is not None:
                shared = self.shared
                key = torch.arange(shared.longest, device=query.device)
                seen = (key < shared.lengths[:, None, None]).expand(-1, self.width, -1)
                if window is not None:
                    seen = seen & (query + self.base[:, None, None] - key < window)
                room = seen.new_zeros(len(shared.stack.index) * shared.most, 1, groups * self.width, shared.longest)
                room[shared.place] = seen.repeat(1, groups, 1)[:, None]
                seen = _additive(_fold(room, shared.most), dtype)
            self._masks[groups, window] = _additive(own.repeat(1, groups, 1)[:, None], dtype), seen
        return self._masks[groups, window]


BLOCKED = -1e30  # finite, so that a row which sees nothing of a part gets weight 0 there and not NaN


def _additive(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill_(~allowed, BLOCKED)


def partial_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor]:
    """Attention over a part of the keys, and the log of its normaliser [batch, heads, queries] in float32."""
    if q.device.type == "cpu" and softcap is None:
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, False, attn_mask=mask, scale=scale
        )
    return _normalised((q @ k.transpose(-1, -2)).float() * scale, mask, v, softcap)


def _normalised(scores: Tensor, mask: Tensor, v: Tensor, softcap: float | None) -> tuple[Tensor, Tensor]:
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores += mask
    top = scores.amax(-1, keepdim=True)
    weights = torch.exp(scores.sub_(top))
    total = weights.sum(-1, keepdim=True)
    return (weights.to(v.dtype) @ v).div_(total), (total.log_() + top).squeeze(-1)


def _fold(x: Tensor, most: int) -> Tensor:
    """[groups × most, kv, m, n] → [groups, kv, most × m, n]."""
    g, (kv, m, n) = x.shape[0] // most, x.shape[1:]
    return x.view(g, most, kv, m, n).transpose(1, 2).reshape(g, kv, most * m, n)


def _unfold(x: Tensor, most: int) -> Tensor:
    """The inverse of _fold."""
    g, kv, mm, n = x.shape
    return x.view(g, kv, most, mm // most, n).transpose(1, 2).reshape(g * most, kv, mm // most, n)


def _round(value: int, unit: int) -> int:
    return -(-int(value * 1.25) // unit) * unit
