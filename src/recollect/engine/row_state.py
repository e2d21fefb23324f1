"""What is known of every row, as arrays, so that a step's bookkeeping is a few vector operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from recollect.engine.request import EngineRequest
from recollect.engine.stops import ends
from recollect.images.image_ids import rotary_shift

STOPS = 8  # stop ids of a row, at first
_FIELDS = (
    "temperature",
    "top_p",
    "top_k",
    "noise",
    "count",
    "limit",
    "owned",
    "shared",
    "shift",
    "slot",
    "prefix",
    "since",
    "stops",
    "has_stop_strings",
    "has_grammar",
    "ids",
    "logprobs",
)


class RowState:
    """Arrays over rows; the first ``len(requests)`` of them are in use."""

    def __init__(self, rows: int) -> None:
        self.requests: list[EngineRequest] = []
        self.temperature = np.zeros(rows, np.float32)
        self.top_p = np.ones(rows, np.float64)
        self.top_k = np.zeros(rows, np.int64)
        self.noise = np.zeros(rows, np.int64)
        self.count = np.zeros(rows, np.int64)  # tokens sampled
        self.limit = np.zeros(rows, np.int64)
        self.owned = np.zeros(rows, np.int64)  # own tokens with keys and values in the cache
        self.shared = np.zeros(rows, np.int64)
        self.shift = np.zeros(rows, np.int64)  # of rotary positions, by the images of the prompt
        self.slot = np.zeros(rows, np.int64)  # of the KV cache
        self.prefix = np.full(rows, -1, np.int64)  # number of the prefix that it attends to; -1: none
        self.since = np.zeros(rows, np.int64)  # where steps run ahead of the host: the first that it takes part in
        self.stops = np.full((rows, STOPS), -1, np.int64)
        self.has_stop_strings = np.zeros(rows, bool)
        self.has_grammar = np.zeros(rows, bool)
        self.ids = np.zeros((rows, 64), np.int64)  # sampled
        self.logprobs = np.zeros((rows, 64), np.float32)

    def add(self, request: EngineRequest, slot: int | None = None) -> None:
        """A row for a request whose prompt is prefilled, in a slot of its own choice or that of its place."""
        i, s = len(self.requests), request.sampling
        self.slot[i] = i if slot is None else slot
        self.prefix[i] = -1 if request.prefix is None or not request.shared else request.prefix.number
        self.requests.append(request)
        self.temperature[i], self.top_p[i], self.top_k[i] = s.temperature, s.top_p, s.top_k
        self.noise[i], self.count[i], self.limit[i] = request.noise, 0, s.max_tokens
        self.owned[i], self.shared[i] = len(request.suffix), request.shared
        self.shift[i] = rotary_shift(request.prompt)
        while len(s.stop_ids) > self.stops.shape[1]:
            self.stops = np.concatenate([self.stops, np.full_like(self.stops, -1)], 1)
        self.stops[i] = -1
        self.stops[i, : len(s.stop_ids)] = s.stop_ids
        self.has_stop_strings[i] = bool(s.stop)
        self.has_grammar[i] = request.matcher is not None

    def append(self, ids: np.ndarray, logprobs: np.ndarray, rows: np.ndarray | None = None) -> None:
        """One more sampled token for every row, or for some."""
        if rows is None:
            rows = np.arange(len(self.requests))
        count = self.count[rows]
        if int(count.max()) == self.ids.shape[1]:
            self.ids = np.concatenate([self.ids, np.zeros_like(self.ids)], 1)
            self.logprobs = np.concatenate([self.logprobs, np.zeros_like(self.logprobs)], 1)
        self.ids[rows, count] = ids
        self.logprobs[rows, count] = logprobs
        self.count[rows] = count + 1

    def last_ids(self) -> np.ndarray:
        """[rows] the newest sampled token of each."""
        n = len(self.requests)
        return self.ids[np.arange(n), self.count[:n] - 1]

    def next_positions(self) -> np.ndarray:
        """[rows] the rotary position of that token, whose keys and values are not in the cache yet."""
        n = len(self.requests)
        return self.shared[:n] + self.owned[:n] + self.shift[:n]

    def ended_by(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which rows these tokens, sampled next, stop, and which they bring to their limit."""
        n = len(self.requests)
        return (self.stops[:n] == ids[:, None]).any(1), self.count[:n] + 1 >= self.limit[:n]

    def ended_by_text(self, decode: Callable[[Sequence[int]], str], rows: np.ndarray) -> np.ndarray:
        """Which of these rows end with one of their stop strings."""
        found = np.zeros(len(rows), bool)
        for place in np.flatnonzero(self.has_stop_strings[rows]):
            i = rows[place]
            found[place] = ends(self.ids[i, : self.count[i]].tolist(), self.requests[i].sampling.stop, decode)
        return found

    def remove(self, row: int) -> EngineRequest:
        """Take a row out; the last row takes its place."""
        request, last = self.requests[row], len(self.requests) - 1
        if row != last:
            for name in _FIELDS:
                array = getattr(self, name)
                array[row] = array[last]
            self.requests[row] = self.requests[last]
        self.requests.pop()
        return request
