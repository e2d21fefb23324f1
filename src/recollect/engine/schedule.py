"""Which requests share what, and which of them join the next step."""

from __future__ import annotations

import numpy as np

from recollect.engine.backend import AdmissionRules
from recollect.engine.kv_cache import KVCache
from recollect.engine.prefix import BLOCK, Prefix, PrefixCache, PrefixChunk, block_hashes, clusters, common, deepest
from recollect.engine.request import EngineRequest
from recollect.engine.row_state import RowState

TEMPORARY = 256  # a prefix of one request with no more tokens than this is not kept after it


class Scheduler:
    """Requests that wait and prefixes that are being prefilled."""

    def __init__(
        self, cache: KVCache, rules: AdmissionRules, prefixes: PrefixCache, max_rows: int, max_tokens: int
    ) -> None:
        self.cache, self.rules, self.prefixes = cache, rules, prefixes
        self.max_rows, self.max_tokens = max_rows, max_tokens
        self.waiting: list[EngineRequest] = []
        self.prefilling: list[Prefix] = []
        self._alone: dict[int, EngineRequest] = {}  # rows that share nothing, by what their prompts begin with

    def reset(self) -> None:
        """Forget everything."""
        self.waiting, self.prefilling = [], []
        self._alone.clear()
        self.prefixes.clear()

    def admit(self, rows: RowState) -> tuple[list[EngineRequest], list[PrefixChunk]]:
        """The requests that join the step, and the chunks of prefixes that are prefilled in it."""
        for request in [r for r in self.waiting if r.abandoned]:
            request.release()
        self.waiting = [r for r in self.waiting if not r.abandoned]
        self._match([r for r in self.waiting if not r.matched], rows)
        room = max(0, self.max_rows - len(rows.requests))
        joining = self._joining(room, self.max_tokens, {})
        for request in joining:
            if request.prefix is None and len(request.prompt) > 2 * BLOCK:
                for block in block_hashes(request.prompt):
                    self._alone.setdefault(block, request)
        budget = self.max_tokens - len(rows.requests) - sum(len(r.suffix) for r in joining)
        chunks, unfinished = list[PrefixChunk](), []
        for prefix in self.prefilling:
            left = len(prefix.ids) - prefix.done
            count = min(left, max(0, budget))
            if count:
                chunks.append(PrefixChunk(prefix, count))
                budget -= count
            if count < left:
                unfinished.append(prefix)
        self.prefilling = unfinished
        if self.rules.join_early and chunks:
            known = {id(prefix): prefix.done + count for prefix, count in chunks}
            joining += self._joining(room - len(joining), budget, known)
        return joining, chunks

    def left(self, request: EngineRequest) -> None:
        """A row is gone: nobody can copy from it any more."""
        if request.prefix is not None and request.prefix.temporary and request.prefix.users == 1:
            self.prefixes.drop(request.prefix)
        if request.prefix is None and len(request.prompt) > 2 * BLOCK:
            for block in block_hashes(request.prompt):
                if self._alone.get(block) is request:
                    del self._alone[block]

    def keep(self, request: EngineRequest, slot: int, sampled: list[int]) -> None:
        """Keep a finished row's keys and values: its conversation goes on."""
        ids = np.concatenate([request.prompt, np.array(sampled[:-1], np.int64)])  # the last token was never computed
        if self.prefixes.holds(ids):  # the same was asked and said before
            return
        prefix = self.cache.new_prefix(ids)
        self._copy(prefix, request.prefix, request.shared)
        self.cache.copy_row(prefix, slot, request.shared, len(ids))
        self.prefixes.add(prefix)

    def _match(self, fresh: list[EngineRequest], rows: RowState) -> None:
        """Find what each new request shares with something known, or with the other new ones."""
        for request in fresh:
            request.matched = True
            prefix, shared = self.prefixes.match(request.prompt)
            row = deepest(self._alone, request.prompt)
            if row is not None:
                more = common(row.prompt, request.prompt[:-1])
                if more >= max(BLOCK, shared + BLOCK):
                    prefix, shared = self._promote(int(rows.slot[rows.requests.index(row)]), row, more), more
            if prefix is not None:
                request.attach(prefix, shared)
        for members, shared in clusters([r.prompt for r in fresh]):
            group = [fresh[i] for i in members]
            if len(group) > 1 and shared >= min(r.shared for r in group) + BLOCK:
                self._share(group, shared)
            for request in group:
                if len(request.suffix) > self.rules.long:
                    self._share([request], len(request.prompt) - 1)

    def _share(self, group: list[EngineRequest], shared: int) -> None:
        """Have the beginning of these prompts computed once, starting from what is known of it."""
        known = max(group, key=lambda r: r.shared)
        prefix = self.cache.new_prefix(group[0].prompt[:shared])
        if known.prefix is not None and known.ready and known.shared >= self.rules.min_reuse * shared:
            prefix.done = min(known.shared, shared)
            self._copy(prefix, known.prefix, prefix.done)
        for request in group:
            request.attach(prefix, shared)
        prefix.temporary = len(group) == 1 and shared <= TEMPORARY
        self.prefixes.add(prefix)
        self.prefilling.append(prefix)

    def _promote(self, slot: int, row: EngineRequest, shared: int) -> Prefix:
        """Make a prefix of what a row computed for itself."""
        prefix = self.cache.new_prefix(row.prompt[:shared])
        self.cache.copy_row(prefix, slot, 0, shared)
        self.prefixes.add(prefix)
        return prefix

    def _copy(self, target: Prefix, source: Prefix | None, count: int) -> None:
        if source is not None and count:
            self.cache.copy_prefix(target, source, count)

    def _joining(self, room: int, budget: int, known: dict[int, int]) -> list[EngineRequest]:
        """Ready requests, first come first served, as many as fit the rows, the tokens and the pairs of attention.

        With ``known``, those that wait for one of its prefixes, of which so much is known after this step; others, and
        the first that does not fit the budget, wait for the next.
        """
        joining: list[EngineRequest] = []
        width, span = 1, 1
        for request in self.waiting:
            own = len(request.suffix)
            ready = request.ready
            if known:
                ready = request.prefix is not None and known.get(id(request.prefix), 0) >= request.shared
            if not ready or len(joining) == room:
                continue
            width, span = max(width, own), max(span, request.shared + own)
            pairs, most = (len(joining) + 1) * width * span, self.rules.max_pairs
            too_much = own > budget or (most is not None and pairs > most)
            if (joining or known) and too_much:
                break
            joining.append(request)
            budget -= own
        chosen = set(map(id, joining))
        self.waiting = [r for r in self.waiting if id(r) not in chosen]
        return joining
