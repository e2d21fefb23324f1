"""What the decoding rows are, on the device: read by captured graphs, written by the host when rows come or go."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from recollect.engine.cuda.attention_kernels import Prefixes, Together, decode
from recollect.engine.cuda.device_cache import DeviceCache
from recollect.engine.cuda.prefix_pieces import PROGRAMS, divide
from recollect.engine.cuda.sampling_kernels import SHIFT, sample_and_advance
from recollect.engine.prefix import ROOM, Prefix
from recollect.engine.row_state import STOPS, RowState
from recollect.models.attention import Scoring

NUMBERS = ("token", "position", "own", "shared", "slot", "count", "noise", "top_k", "limit", "ended")


def bucket(count: int) -> int:
    """The rows of the graph that serves so many: powers of two, then steps of 32."""
    return 1 << (count - 1).bit_length() if count <= 32 else -(-count // 32) * 32


class DeviceRows:
    """Arrays over rows in fixed places of the device's memory, and the plan that attends with them."""

    keep: Tensor | None = None

    def __init__(self, rows: int, cache: DeviceCache, heads: int) -> None:
        size, device = bucket(rows), cache.device
        self.cache, self.size = cache, size
        self.group = heads // cache.heads  # heads that share their keys
        self.numbers = torch.zeros(len(NUMBERS), size, dtype=torch.int64, device=device)
        self.reals = torch.zeros(2, size, dtype=torch.float64, device=device)
        self.bases = torch.zeros(size, dtype=torch.int64, device=device)
        self.rooms = torch.zeros(size, dtype=torch.int64, device=device)
        self.readers = torch.zeros(size, dtype=torch.int32, device=device)
        self.parts = torch.zeros(size, dtype=torch.int32, device=device)
        self.pieces = torch.zeros(max(PROGRAMS, 4 * size), 6, dtype=torch.int32, device=device)
        self.stops = torch.full((size, STOPS), -1, dtype=torch.int64, device=device)
        self.results = torch.zeros(size, dtype=torch.int64, device=device)  # tokens, and how rows ended
        self.logprobs = torch.zeros(size, dtype=torch.float32, device=device)
        self.counts = torch.zeros(size * cache.heads, dtype=torch.int32, device=device)
        self.prefixes: Prefixes | None = None
        self.rows = 0
        self.generation = 0  # how often memory that graphs read was allocated

    def __getattr__(self, name: str) -> Tensor:
        if name in NUMBERS:
            return self.numbers[NUMBERS.index(name), : self.rows]
        raise AttributeError(name)

    @property
    def total(self) -> int:
        """How many flat tokens there are: one for each row."""
        return self.rows

    def upload(self, state: RowState) -> tuple[int, int, int, bool, bool]:
        """Bring the device up to date with the host; returns what decides which graph serves it."""
        n = len(state.requests)
        self.rows = bucket(n)
        numbers = torch.zeros(len(NUMBERS), self.size, dtype=torch.int64, pin_memory=True)
        host = numbers.numpy()
        each = np.arange(n)
        host[0, :n] = state.ids[each, state.count[:n] - 1]
        for row in np.flatnonzero(state.count[:n] == 0):  # it begins with the last token of its prompt
            host[0, row] = state.requests[row].prompt[-1]
        host[1, :n] = state.shared[:n] + state.owned[:n]
        host[2, :n], host[3, :n] = state.owned[:n], state.shared[:n]
        host[4] = np.arange(self.size)
        host[5, :n], host[6, :n], host[7, :n] = state.count[:n], state.noise[:n], state.top_k[:n]
        host[8, :n] = state.limit[:n]
        self.numbers.copy_(numbers, non_blocking=True)
        if state.stops.shape[1] != self.stops.shape[1]:
            self.stops = self.stops.new_empty(self.size, state.stops.shape[1])
            self.generation += 1
        self.stops[:n].copy_(torch.from_numpy(state.stops[:n]).pin_memory(), non_blocking=True)
        reals = torch.ones(2, self.size, dtype=torch.float64, pin_memory=True)
        reals[0, :n], reals[1, :n] = (torch.from_numpy(x[:n]) for x in (state.temperature, state.top_p))
        self.reals.copy_(reals, non_blocking=True)
        tile, pieces = self._upload_prefixes(state)
        plain = bool((state.top_p[:n] >= 1).all() and (state.top_k[:n] <= 0).all())
        greedy = not plain and bool((state.temperature[:n] <= 0).any())
        return self.rows, tile, pieces, plain, greedy

    def _upload_prefixes(self, state: RowState) -> tuple[int, int]:
        """Upload where prefixes are and who reads them; returns queries of a tile, and pieces (prefix_pieces.py)."""
        members: dict[int, list[int]] = {}
        found = {}
        for row, request in enumerate(state.requests):
            if request.prefix is not None and request.shared:
                members.setdefault(id(request.prefix), []).append(row)
                found[id(request.prefix)] = request.prefix
        if not members:
            self.prefixes = None
            return 0, 0
        if max(map(len, members.values())) == 1:
            alone = {rows[0]: found[key] for key, rows in members.items()}
            self._place([alone.get(row) for row in range(self.rows)])
            self.prefixes = Prefixes(self.bases, self.rooms)
            return 1, 0
        counts = [len(rows) for rows in members.values()]
        longest = [int(state.shared[rows].max()) for rows in members.values()]
        pieces = divide(longest, counts, self.group, self.cache.heads, self.rows)
        readers, parts = np.concatenate([*members.values()]), np.zeros(self.size, np.int32)
        parts[readers] = np.repeat(pieces.parts, counts)
        for target, made in (
            (self.readers, readers.astype(np.int32)), (self.parts, parts), (self.pieces, pieces.table),
        ):  # fmt: skip
            target[: len(made)].copy_(torch.from_numpy(made).pin_memory(), non_blocking=True)
        self._place([*found.values()])
        programs = len(pieces.table)
        together = Together(self.readers, self.pieces[:programs], self.parts, pieces.tile)
        self.prefixes = Prefixes(self.bases, self.rooms, together)
        return pieces.tile, programs

    def _place(self, prefixes: Sequence[Prefix | None]) -> None:
        """Where prefixes are."""
        places = [(0, ROOM) if p is None else (p.memory.data_ptr(), p.room) for p in prefixes]
        bases, rooms = torch.tensor(places, dtype=torch.int64).t().contiguous().pin_memory()
        self.bases[: len(places)].copy_(bases, non_blocking=True)
        self.rooms[: len(places)].copy_(rooms, non_blocking=True)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """One layer's attention (see recollect.models.attention)."""
        keys, values = self.cache.keys[layer].transpose(2, 3), self.cache.values[layer]
        return decode(
            q, k, v, keys, values, self.slot, self.own, self.shared, self.prefixes, self.counts, layer, scoring
        )

    def sample(self, logits: Tensor) -> None:
        """Sample without top-p and top-k, and take in what was sampled."""
        numbers = dict(zip(NUMBERS, self.numbers, strict=True))
        sample_and_advance(logits, self.reals[0], numbers, self.stops, self.results, self.logprobs)

    def advance(self, ids: Tensor, logprobs: Tensor) -> None:
        """Take in what was sampled, of rows that have not ended: the next step starts from it."""
        goes_on, stopped = self.ended == 0, (self.stops[: self.rows] == ids[:, None]).any(1)
        end = stopped.long() + 2 * (self.count + 1 >= self.limit).long()
        for target, made in (
            (self.results[: self.rows], ids + (end << SHIFT)),
            (self.logprobs[: self.rows], logprobs),
            (self.token, ids),
        ):
            target.copy_(torch.where(goes_on, made, target))
        for name in ("position", "own", "count"):
            getattr(self, name).add_(goes_on)
        self.ended.copy_(torch.where(goes_on, end, self.ended))
