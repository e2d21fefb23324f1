"""Plain attention of rows: every new token over what its row shares and what it owns, with the operations of torch.

Prefixes that rows share are stacked, and each is attended to once for all of its rows. A row's own tokens are in its
slot of the KV cache. The two softmaxes are merged by their normalisers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from recollect.engine.kv_cache import KVCache
from recollect.engine.prefix import Prefix
from recollect.engine.request import EngineRequest
from recollect.models.attention import Scoring


class PrefixStack:
    """The prefixes that rows attend to at the moment, stacked so that one product serves them all."""

    def __init__(self, cache: KVCache) -> None:
        self.cache = cache
        self.index: dict[int, int] = {}
        self.generation = 0  # how often the stack was built
        self.keys: list[Tensor] = []  # per layer [groups, kv heads, longest, dim]
        self.values: list[Tensor] = []

    def update(self, prefixes: Iterable[Prefix]) -> None:
        """Make sure that these prefixes are here; whatever else was here may go."""
        wanted = {p.number: p for p in prefixes}
        if all(key in self.index for key in wanted) and len(self.index) <= 2 * len(wanted):
            return
        longest = max((p.done for p in wanted.values()), default=0)
        cache = self.cache
        shape = (len(wanted), cache.heads, longest, cache.dim)
        self.index = {key: g for g, key in enumerate(wanted)}
        self.generation += 1
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
    """Which rows attend to which prefix of a stack."""

    stack: PrefixStack
    place: Tensor  # [rows] where a row's queries go among groups × most
    most: int  # rows per group, at most
    lengths: Tensor  # [rows] how many of the prefix's tokens the row sees
    longest: int
    generation: int  # of the stack that this belongs to

    @staticmethod
    def of(requests: list[EngineRequest], stack: PrefixStack) -> SharedPart | None:
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
        return SharedPart(stack, torch.from_numpy(place).to(device), most, lengths, int(shared.max()), stack.generation)


class RowsAttention:
    """Attention of some rows' new tokens (all have ``width`` of them, padded) over what they share and own.

    One instance serves all layers of a step: indices and masks are made once.
    """

    def __init__(
        self, cache: KVCache, shared: SharedPart | None, first: int, owned: Tensor, width: int, fresh: Tensor
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
