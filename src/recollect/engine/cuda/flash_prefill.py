"""Prefill on a GPU: the prompts of rows that join and chunks of prefixes, in one flat batch without masks.

A new token sees the new tokens before it, and what is known of its prefix. Both are calls over sequences of different
lengths, merged by their normalisers (packing/tree_attention.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.engine.cuda.device_cache import DeviceCache, prefix_address
from recollect.engine.flat_batch import FlatPart
from recollect.engine.prefix import Prefix, PrefixChunk
from recollect.engine.request import EngineRequest
from recollect.models.attention import Scoring
from recollect.packing.tree_attention import attend_lengths, merge, takes


def supports(model: Any, dim: int) -> bool:
    """True for a model whose attention is neither capped nor limited to a window, with heads that the kernels take."""
    config = model.config
    limited = getattr(config, "attn_logit_softcapping", None) or getattr(config, "sliding_window", None)
    return not limited and takes(model.dtype, dim)


def in_groups(joining: list[EngineRequest]) -> list[EngineRequest]:
    """Requests in the order that `FlashPrefill` takes: those without a prefix, then those of one side by side."""
    order = {(0, 0): 0}
    return sorted(joining, key=lambda r: order.setdefault(_group(r), len(order)))


def _group(request: EngineRequest) -> tuple[int, int]:
    return (id(request.prefix), request.shared) if request.shared else (0, 0)


class FlashPrefill:
    """Attention of rows that join, in slots, and of chunks of prefixes."""

    def __init__(
        self,
        cache: DeviceCache,
        slots: Sequence[int],
        joining: Sequence[EngineRequest],
        chunks: Sequence[PrefixChunk],
    ) -> None:
        self.cache, self.joining = cache, joining
        self.chunks = sorted(chunks, key=lambda c: c.prefix.done == 0)  # those that go on follow the rows
        suffixes = [len(r.suffix) for r in joining]
        lengths = np.array([*suffixes, *(count for _, count in self.chunks)])
        self.size, self.longest, self.joined = int(lengths.sum()), int(lengths.max()), len(suffixes)
        self.ends = self._ends(lengths)
        self.places = self._tensor(self._find_places(slots, suffixes))
        self._find_known(joining)

    def _find_places(self, slots: Sequence[int], suffixes: Sequence[int]) -> np.ndarray:
        """Where every token's keys and values go, as `elementwise.store_kv` takes it."""
        cache, each = self.cache, [(prefix_address(prefix), count) for prefix, count in self.chunks]
        each = [*((cache.address(slot), count) for slot, count in zip(slots, suffixes, strict=True)), *each]
        step = cache.dim * cache.dtype.itemsize
        parts = [np.tile(np.array(place)[:, None], count) for place, count in each]
        for part in parts:
            part[0] += step * np.arange(part.shape[1])
        return np.concatenate(parts, 1)

    def _find_known(self, joining: Sequence[EngineRequest]) -> None:
        """Which tokens, all side by side, see how much of which prefix."""
        self.known: list[tuple[Prefix, int]] = []
        lengths: list[int] = []
        self.start = 0
        for (_, shared), some in groupby(joining, _group):
            group = list(some)
            tokens = sum(len(r.suffix) for r in group)
            if not shared:
                self.start += tokens
                continue
            assert group[0].prefix is not None
            self.known.append((group[0].prefix, shared))
            lengths.append(tokens)
        for prefix, count in self.chunks:
            if prefix.done:
                self.known.append((prefix, prefix.done))
                lengths.append(count)
        if self.known:
            self.stop = self.start + sum(lengths)
            spans = [span for _, span in self.known]
            self.known_lengths = self._ends(lengths), self._ends(spans), max(lengths), max(spans)

    def _ends(self, lengths: Any) -> Tensor:
        return self._tensor(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self.cache.device, non_blocking=True)

    def part(self) -> FlatPart:
        """All of it: the rows' tokens, then those of prefixes."""
        tokens = [*(r.suffix for r in self.joining), *(c.tokens for c in self.chunks)]
        return FlatPart(self, tokens, [*(r.positions for r in self.joining), *(c.places for c in self.chunks)])

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring, last: bool = False) -> Tensor:
        """Queries [heads, tokens, dim] → [tokens, heads, dim]; new keys and values are stored."""
        assert scoring.window is None, "a window must be in the model's configuration"
        assert scoring.softcap is None, "a cap must be in the model's configuration"
        q, k, v = q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1)
        self._store(layer, k, v)
        if last:  # nobody reads what comes of it
            return torch.zeros_like(q)
        out, total = attend_lengths(q, k, v, scoring.scale, self.ends, self.ends, self.longest, self.longest, True)
        if self.known:
            some = slice(self.start, self.stop)
            keys = [p.keys[layer][:, :, :n].permute(2, 0, 1) for p, n in self.known]
            values = [p.values[layer][:, :n].transpose(0, 1) for p, n in self.known]
            one = len(keys) == 1
            part, weight = attend_lengths(
                q[some], keys[0] if one else torch.cat(keys), values[0] if one else torch.cat(values), scoring.scale,
                *self.known_lengths, False,
            )  # fmt: skip
            merge(out[some], total[:, some], part, weight)
        return out

    def _store(self, layer: int, k: Tensor, v: Tensor) -> None:
        from recollect.engine.cuda.elementwise import store_kv

        store_kv(k, v, self.places, layer)
