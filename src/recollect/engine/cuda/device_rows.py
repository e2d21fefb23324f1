"""What the decoding rows are, on the device: read and moved on by captured graphs, told by the host when it changes.

A row's numbers stay in the column of its slot. A step works on the rows that the host's table names, in its order
(row_kernels.py), so rows may come and go while the step before is still under way. All that the host has to say goes to
the device in one copy.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from recollect.engine.cuda.attention_kernels import Prefixes, Together, decode
from recollect.engine.cuda.device_cache import DeviceCache
from recollect.engine.cuda.pinned import PinnedRing
from recollect.engine.cuda.prefix_pieces import PROGRAMS, divide
from recollect.engine.cuda.row_kernels import take_rows
from recollect.engine.cuda.sampling_kernels import SHIFT, sample_and_advance
from recollect.engine.masks import Allowed, allowed_ids, word_count
from recollect.engine.row_state import STOPS, RowState
from recollect.models.attention import Scoring

NUMBERS = ("token", "position", "own", "shared", "slot", "count", "noise", "top_k", "limit", "ended")


class StepKind(NamedTuple):
    """What decides which graph serves a step."""

    rows: int
    tile: int  # queries of a tile that attends to shared prefixes; 0: there is no prefix, 1: none is shared
    pieces: int  # of shared prefixes (prefix_pieces.py), at most
    plain: bool  # no row has top-p or top-k, and all ids are allowed
    greedy: bool  # some row has temperature 0, where rows are not plain
    limited: bool = False  # some row may not sample every id (engine/masks.py)


def bucket(count: int) -> int:
    """The rows of the graph that serves so many."""
    if count <= 64:
        return 1 << (count - 1).bit_length()
    step = max(32, 1 << (count - 1).bit_length() - 2)  # two between powers of two
    return -(-count // step) * step


class DeviceRows:
    """Arrays over rows and slots in fixed places of the device's memory, and the plan that attends with them."""

    keep: Tensor | None = None

    def __init__(self, rows: int, cache: DeviceCache, heads: int) -> None:
        size, device = bucket(rows), cache.device
        self.cache, self.size = cache, size
        self.group = heads // cache.heads  # heads that share their keys
        self.numbers = torch.zeros(len(NUMBERS), size, dtype=torch.int64, device=device)
        self.reals = torch.zeros(2, size, dtype=torch.float64, device=device)
        self.kept = torch.zeros(len(NUMBERS), size + 1, dtype=torch.int64, device=device)
        self.kept[NUMBERS.index("ended"), size] = 1  # the last column is nobody's: it fills a graph's rows up
        self.kept[NUMBERS.index("slot"), size] = -1
        self.kept_reals = torch.ones(2, size + 1, dtype=torch.float64, device=device)
        self.counts = torch.zeros(size * cache.heads, dtype=torch.int32, device=device)
        self.results = torch.zeros(2, size, dtype=torch.int64, device=device)  # by slot: tokens and ends, and …
        self.logprobs = self.results[1].view(torch.float64)
        self.seen = torch.zeros(1, dtype=torch.int64, device=device)  # serial number of the host's table
        self.pieces = max(PROGRAMS, 4 * size)  # that a table may have
        self.words = torch.zeros(self.size, 0, dtype=torch.int32, device=device)  # of ids that rows may sample
        self.limited = torch.zeros(0, dtype=torch.bool, device=device)
        self.serial = 0
        self.kind = StepKind(0, 0, 0, True, False)
        self.generation = 0  # how often memory that graphs read was allocated
        self._allocate(STOPS)

    def _allocate(self, stops: int) -> None:
        """Memory for so many stop ids of each row, and the table with them."""
        size, device = self.size, self.cache.device
        each = [1, *[size] * 6, len(NUMBERS) * size, 2 * size, stops * size, 6 * self.pieces]
        bounds = [0, *np.cumsum(each).tolist()]
        host, table = PinnedRing(bounds[-1]), torch.zeros(bounds[-1], dtype=torch.int64, device=device)
        kept = torch.full((2 * size + 1, stops), -1, dtype=torch.int64, device=device)
        self._bounds, self._host, self.table = bounds, host, table  # all of it or, without memory, nothing
        self.stops, self.kept_stops = kept[:size], kept[size:]
        parts = [table[a:b] for a, b in pairwise(bounds)]
        self.told, self.order, self.fresh, self.bases, self.rooms, self.readers, self.parts = parts[:7]
        self.given = parts[7].view(-1, size), parts[8].view(torch.float64).view(2, size), parts[9].view(size, stops)
        self.piece_table = parts[10].view(-1, 6)
        self.generation += 1

    def __getattr__(self, name: str) -> Tensor:
        if name in NUMBERS:
            return self.numbers[NUMBERS.index(name), : self.rows]
        raise AttributeError(name)

    @property
    def rows(self) -> int:
        """How many rows a step has, those of nobody included."""
        return self.kind.rows

    @property
    def total(self) -> int:
        """How many flat tokens there are: one for each row."""
        return self.rows

    # ---- what the host says ----

    def upload(self, state: RowState, fresh: np.ndarray) -> StepKind:
        """Say which rows take part from now on, and which of them are new; returns what decides which graph serves."""
        n = len(state.requests)
        if state.stops.shape[1] != self.stops.shape[1]:
            kept = self.kept_stops
            self._allocate(state.stops.shape[1])
            self.kept_stops[:, : kept.shape[1]] = kept
        self.serial += 1
        with self._host.next() as host:
            told, order, new, bases, rooms, readers, parts, numbers, reals, stops, pieces = (
                host[a:b] for a, b in zip(self._bounds, self._bounds[1:], strict=False)
            )
            told[0] = self.serial
            order[:n], order[n:] = state.slot[:n], self.size
            new[:] = 0
            new[fresh] = 1
            by_row = numbers.reshape(-1, self.size)
            by_row[0, fresh] = [state.requests[row].prompt[-1] for row in fresh.tolist()]  # not prefilled
            by_row[1, fresh] = state.shared[fresh] + state.owned[fresh]
            for place, array in enumerate((state.owned, state.shared, state.slot, state.count, state.noise)):
                by_row[2 + place, fresh] = array[fresh]
            by_row[7, fresh], by_row[8, fresh], by_row[9, fresh] = state.top_k[fresh], state.limit[fresh], 0
            real = reals.view(np.float64).reshape(2, self.size)
            real[0, fresh], real[1, fresh] = state.temperature[fresh], state.top_p[fresh]
            stops.reshape(self.size, -1)[fresh] = state.stops[fresh]
            tile, count = self._describe_prefixes(state, bases, rooms, readers, parts, pieces.reshape(-1, 6))
            self._host.copy_to(self.table)
        limited = bool(state.has_grammar[:n].any())
        plain = not limited and bool((state.top_p[:n] >= 1).all() and (state.top_k[:n] <= 0).all())
        greedy = not plain and bool((state.temperature[:n] <= 0).any())
        return StepKind(bucket(n), tile, count, plain, greedy, limited)

    def limit_ids(self, state: RowState, vocabulary: int) -> None:
        """Say which ids each row may sample in the next step."""
        if self.words.shape[1] != word_count(vocabulary):
            self.words = torch.full((self.size, word_count(vocabulary)), -1, dtype=torch.int32, device=self.told.device)
            self.limited = torch.zeros(self.size, dtype=torch.bool, device=self.told.device)
        n, words = len(state.requests), allowed_ids(state, vocabulary)
        if words is not None:
            self.words[:n].copy_(torch.from_numpy(words))
        self.limited[:n].copy_(torch.from_numpy(state.has_grammar[:n].copy()))

    def _describe_prefixes(
        self, state: RowState, bases: np.ndarray, rooms: np.ndarray, readers: np.ndarray, parts: np.ndarray,
        pieces: np.ndarray,
    ) -> tuple[int, int]:  # fmt: skip
        """Where prefixes are and who reads them; returns queries of a tile, and the number of pieces."""
        n = len(state.requests)
        parts[:] = 0
        with_prefix = np.flatnonzero(state.prefix[:n] >= 0)
        if not len(with_prefix):
            return 0, 0
        _, first, which, counts = np.unique(
            state.prefix[with_prefix], return_index=True, return_inverse=True, return_counts=True
        )
        found = [state.requests[row].prefix for row in with_prefix[first].tolist()]
        places = np.array([(p.memory.data_ptr(), p.room) for p in found if p is not None])
        if counts.max() == 1:  # bases and rooms are those of rows
            bases[:], rooms[:] = 0, 32
            bases[with_prefix], rooms[with_prefix] = places[which].T
            return 1, 0
        bases[: len(found)], rooms[: len(found)] = places.T
        by_prefix = with_prefix[np.argsort(which, kind="stable")]
        starts = np.cumsum(counts) - counts
        longest = np.maximum.reduceat(state.shared[by_prefix], starts)
        work = divide(longest.tolist(), counts.tolist(), self.group, self.cache.heads, bucket(n))
        readers[: len(by_prefix)] = by_prefix
        parts[by_prefix] = np.repeat(work.parts, counts)
        pieces[: len(work.table)] = work.table
        pieces[len(work.table) :] = 0
        return work.tile, len(work.table)

    # ---- what graphs do ----

    @property
    def moved(self) -> tuple[Tensor, ...]:
        """What a step changes for good."""
        return self.kept, self.kept_reals, self.kept_stops, self.results, self.seen

    def begin(self) -> None:
        """The first thing of a step: the numbers of its rows, in the order that the host says."""
        kept = self.kept, self.kept_reals, self.kept_stops
        made = self.numbers, self.reals, self.stops
        take_rows(self.rows, self.order, self.fresh, self.told, self.seen, self.given, kept, made)

    @property
    def prefixes(self) -> Prefixes | None:
        """The prefixes that rows attend to."""
        if self.kind.tile <= 1:
            return Prefixes(self.bases, self.rooms) if self.kind.tile else None
        together = Together(self.readers, self.piece_table[: self.kind.pieces], self.parts, self.kind.tile)
        return Prefixes(self.bases, self.rooms, together)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scoring: Scoring) -> Tensor:
        """One layer's attention (see recollect.models.attention)."""
        keys, values = self.cache.keys[layer].transpose(2, 3), self.cache.values[layer]
        return decode(
            q, k, v, keys, values, self.slot, self.own, self.shared, self.prefixes, self.counts, layer, scoring
        )

    @property
    def allowed(self) -> Allowed:
        """The ids that the step's rows may sample."""
        return Allowed(self.words[: self.rows], self.limited[: self.rows])

    def sample(self, logits: Tensor) -> None:
        """Sample without top-p and top-k, and take in what was sampled."""
        numbers, kept = (dict(zip(NUMBERS, x, strict=True)) for x in (self.numbers, self.kept))
        said = self.results[0], self.logprobs, self.told, self.seen
        sample_and_advance(logits, self.reals[0], numbers, self.stops, self.order, kept, *said)

    def advance(self, ids: Tensor, logprobs: Tensor) -> None:
        """Take in what was sampled, of rows that have not ended: the next step starts from it."""
        goes_on, stopped = self.ended == 0, (self.stops[: self.rows] == ids[:, None]).any(1)
        end = stopped.long() + 2 * (self.count + 1 >= self.limit).long()
        order, step = self.order[: self.rows], goes_on.long()
        made = {"token": ids, "position": self.position + step, "own": self.own + step, "count": self.count + step}
        for name, value in {**made, "ended": end}.items():
            before = getattr(self, name)
            self.kept[NUMBERS.index(name)].index_copy_(0, order, torch.where(goes_on, value, before))
        for target, value in ((self.results[0], ids + (end << SHIFT)), (self.logprobs, logprobs.double())):
            padded = torch.nn.functional.pad(target, (0, 1))  # nobody's column
            target.copy_(padded.index_copy(0, order, torch.where(goes_on, value, padded[order]))[:-1])
        self.seen.copy_(self.told)
