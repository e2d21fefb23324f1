"""Which requests share what, and which of them join the next step."""

from __future__ import annotations

import numpy as np

from recollect.engine.prefix import BLOCK, Prefix, PrefixCache, block_hashes, clusters, common, deepest
from recollect.engine.request import Request
from recollect.engine.rows import Cache

LONG = 256  # a prompt with more tokens of its own than this is read as a prefix, with blockwise attention
SHORT = 32  # the same where attention is compiled, which does short ends of prompts best
SCORES = 1 << 27  # attention scores that joining rows may need at once


class Scheduler:
    """Requests that wait and prefixes that are being read."""

    def __init__(
        self, cache: Cache, prefixes: PrefixCache, max_rows: int, max_tokens: int, heads: int, long: int
    ) -> None:
        self.cache, self.prefixes = cache, prefixes
        self.max_rows, self.max_tokens, self.heads = max_rows, max_tokens, heads
        self.long = long
        self.scores: int | None = SCORES
        self.together = False  # a row may join in the step that reads the last of its prefix
        self.worth = 0.0  # a shorter part of a prefix than this is computed again rather than copied
        self.waiting: list[Request] = []
        self.reading: list[Prefix] = []
        self._alone: dict[int, Request] = {}  # rows that share nothing, by what their prompts begin with
        self._rows: list[Request] = []

    def reset(self) -> None:
        """Forget everything."""
        self.waiting, self.reading = [], []
        self._alone.clear()
        self.prefixes.clear()

    def admit(self, rows: list[Request]) -> tuple[list[Request], list[tuple[Prefix, int]]]:
        """Requests that join the step, and prefixes to read in it with how many tokens of each."""
        self._rows = rows
        for request in [r for r in self.waiting if r.abandoned]:
            request.release()
        self.waiting = [r for r in self.waiting if not r.abandoned]
        self._place([r for r in self.waiting if not r.placed])
        room = max(0, self.max_rows - len(rows))
        joining = self._joining(room, self.max_tokens, {})
        for request in joining:
            if request.prefix is None and len(request.prompt) > 2 * BLOCK:
                for block in block_hashes(request.prompt):
                    self._alone.setdefault(block, request)
        budget = self.max_tokens - len(rows) - sum(len(r.suffix) for r in joining)
        reading, unfinished = [], []
        for prefix in self.reading:
            left = len(prefix.ids) - prefix.done
            count = min(left, max(0, budget))
            if count:
                reading.append((prefix, count))
                budget -= count
            if count < left:
                unfinished.append(prefix)
        self.reading = unfinished
        if self.together and reading:
            known = {id(prefix): prefix.done + count for prefix, count in reading}
            joining += self._joining(room - len(joining), budget, known)
        return joining, reading

    def left(self, request: Request) -> None:
        """A row is gone: nobody can copy from it any more."""
        if request.prefix is not None and request.prefix.passing and request.prefix.users == 1:
            self.prefixes.drop(request.prefix)
        if request.prefix is None and len(request.prompt) > 2 * BLOCK:
            for block in block_hashes(request.prompt):
                if self._alone.get(block) is request:
                    del self._alone[block]

    def keep(self, request: Request, row: int, sampled: list[int]) -> None:
        """Keep a finished row's keys and values: its conversation goes on."""
        ids = np.concatenate([request.prompt, np.array(sampled[:-1], np.int64)])  # the last token was never computed
        if self.prefixes.holds(ids):  # the same was asked and said before
            return
        prefix = self._new_prefix(ids)
        self._copy(prefix, request.prefix, request.shared)
        self._copy_row(prefix, row, request.shared, len(ids))
        self.prefixes.add(prefix)

    def _place(self, fresh: list[Request]) -> None:
        """Find what each new request shares with something known, or with the other new ones."""
        for request in fresh:
            request.placed = True
            prefix, shared = self.prefixes.match(request.prompt)
            row = deepest(self._alone, request.prompt)
            if row is not None:
                more = common(row.prompt, request.prompt[:-1])
                if more >= max(BLOCK, shared + BLOCK):
                    prefix, shared = self._promote(row, more), more
            if prefix is not None:
                request.attach(prefix, shared)
        for members, shared in clusters([r.prompt for r in fresh]):
            group = [fresh[i] for i in members]
            if len(group) > 1 and shared >= min(r.shared for r in group) + BLOCK:
                self._share(group, shared)
            for request in group:
                if len(request.suffix) > self.long:
                    self._share([request], len(request.prompt) - 1)

    def _share(self, group: list[Request], shared: int) -> None:
        """Have the beginning of these prompts computed once, starting from what is known of it."""
        known = max(group, key=lambda r: r.shared)
        prefix = self._new_prefix(group[0].prompt[:shared])
        if known.prefix is not None and known.ready and known.shared >= self.worth * shared:
            prefix.done = min(known.shared, shared)
            self._copy(prefix, known.prefix, prefix.done)
        for request in group:
            request.attach(prefix, shared)
        prefix.passing = len(group) == 1 and shared <= LONG
        self.prefixes.add(prefix)
        self.reading.append(prefix)

    def _promote(self, row: Request, shared: int) -> Prefix:
        """Make a prefix of what a row computed for itself."""
        prefix = self._new_prefix(row.prompt[:shared])
        self._copy_row(prefix, self._rows.index(row), 0, shared)
        self.prefixes.add(prefix)
        return prefix

    def _new_prefix(self, ids: np.ndarray) -> Prefix:
        c = self.cache
        return Prefix(ids, c.layers, c.heads, c.dim, c.dtype, c.device)

    def _copy(self, target: Prefix, source: Prefix | None, count: int) -> None:
        for layer in range(self.cache.layers if source is not None and count else 0):
            target.keys[layer][:, :, :count] = source.keys[layer][:, :, :count]  # type: ignore[union-attr]
            target.values[layer][:, :count] = source.values[layer][:, :count]  # type: ignore[union-attr]

    def _copy_row(self, target: Prefix, row: int, start: int, end: int) -> None:
        for layer in range(self.cache.layers):
            target.keys[layer][:, :, start:end] = self.cache.keys[layer][row, :, :, : end - start]
            target.values[layer][:, start:end] = self.cache.values[layer][row, :, : end - start]
        target.done = end

    def _joining(self, room: int, budget: int, known: dict[int, int]) -> list[Request]:
        """Ready requests, first come first served, as many as fit the room, the tokens and the attention scores.

        With ``known``, those that wait for one of its prefixes, of which so much is known after this step; others, and
        the first that does not fit the budget, wait for the next.
        """
        joining: list[Request] = []
        width, span = 1, 1
        for request in self.waiting:
            own = len(request.suffix)
            ready = request.ready
            if known:
                ready = request.prefix is not None and known.get(id(request.prefix), 0) >= request.shared
            if not ready or len(joining) == room:
                continue
            width, span = max(width, own), max(span, request.shared + own)
            scores = (len(joining) + 1) * width * span * self.heads
            too_much = own > budget or (self.scores is not None and scores > self.scores)
            if (joining or known) and too_much:
                break
            joining.append(request)
            budget -= own
        chosen = set(map(id, joining))
        self.waiting = [r for r in self.waiting if id(r) not in chosen]
        return joining
