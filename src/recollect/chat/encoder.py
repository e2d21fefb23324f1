"""Tokenising long texts that begin alike, or that have a known piece: what is known is not tokenised again.

The attempts at a task begin their prompts with the same section. The rest of such a text is tokenised from a blank some
tokens before the place where it parts from a known one. Those tokens must come out as they did before; if they do not,
the whole text is tokenised. Pieces that stand anywhere are told before they are shown (see pieces.py). Tokenizers that
do not part words are not helped if they weigh tokens by scores (Unigram): their sums round differently in a part.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from recollect.chat.known_texts import KnownTexts, common_start
from recollect.chat.pieces import CHECKED, LONG, OVERLAP, SEARCHED, KnownPieces
from recollect.chat.tokens import Tokens

SHORT = 512  # characters below which a text is tokenised whole
LEAST_SHARED = 256  # characters that two texts must begin with alike
WORTH = 256  # characters that are not known, from which a text is worth remembering
KEPT = 2 << 20  # characters of texts that are remembered; a token of them takes some hundred bytes
PART = 1 << 16  # characters that are counted in one go
LOST = 8  # tokens that a cut may add


def splits_locally(backend: Any) -> bool:
    """False where a whole text's best split is searched for: which of two equals is found hangs on all before them."""
    if type(backend.model).__name__ != "Unigram":
        return True
    text = "a b" if backend.normalizer is None else backend.normalizer.normalize_str("a b")
    return backend.pre_tokenizer is not None and len(backend.pre_tokenizer.pre_tokenize_str(text)) > 1


class Beginning(NamedTuple):
    """The known ids of a text's first ``at`` characters, and the ids that must follow."""

    ids: list[int]
    at: int
    next: list[int]


NOTHING = Beginning([], 0, [])


class Encoder:
    """Ids of texts by a fast tokenizer's backend."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.least = SHORT if splits_locally(backend) else sys.maxsize  # shorter texts are tokenised whole
        self.known = KnownTexts()  # texts that were tokenised whole
        self.pieces = KnownPieces()

    def encode(self, text: str) -> list[int]:
        """The same as the backend's own ids."""
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of several texts, by few calls, which use every core; equal texts are tokenised once."""
        distinct = list(dict.fromkeys(texts))
        made = self._by_pieces(distinct)
        left = [text for text in distinct if text not in made]
        begun = {text: self._beginning(text) for text in left}
        if fresh := self._new_beginnings(begun):
            made |= {whole.text: whole.ids for whole in fresh}
            begun = {text: self._longer(text, known) for text, known in begun.items() if text not in made}
        made |= self._continued(begun)
        return [made[text].copy() for text in texts]

    def at_least(self, text: str, enough: int) -> int:
        """A number of tokens that a text has at least, counted in parts until there are enough."""
        count = 0
        for start in range(0, len(text), PART):
            part = text[start : start + PART].encode("utf-8", "replace").decode()
            count += max(0, len(self._ids(part)) - LOST)
            if count > enough:
                break
        return count

    def _ids(self, text: str) -> list[int]:
        (made,) = self.backend.encode_batch_fast([text], add_special_tokens=False)  # fast: nobody asks where they stand
        return list(made.ids)

    def _by_pieces(self, texts: Iterable[str]) -> dict[str, list[int]]:
        """The ids of texts of which a known piece is more than their known beginning."""
        made = {}
        for text in texts:
            piece = self.pieces.find(text) if len(text) >= max(LONG, self.least) else None
            if piece is not None and piece[0].covered > self.known.nearest(text)[1]:
                ids = piece[0].within(text, piece[1], self._ids)
                if ids is not None:
                    made[text] = ids
        return made

    def _new_beginnings(self, begun: Mapping[str, Beginning]) -> list[Tokens]:
        """Texts of which less than half is known, tokenised whole and remembered; of several that begin alike, one."""
        fresh: list[Tokens] = []
        for text in sorted(text for text in begun if len(text) >= self.least + WORTH):
            at = begun[text].at
            new = len(text) - at
            if new < max(at, WORTH) or (fresh and common_start(fresh[-1].text, text) - at >= new / 2):
                continue
            fresh.append(Tokens(self.backend, text))
        found = self.backend.encode_batch([whole.text for whole in fresh], add_special_tokens=False) if fresh else []
        for whole, encoding in zip(fresh, found, strict=True):
            whole.take(encoding)
            self.known.add(whole, KEPT)
        return fresh

    def _continued(self, begun: dict[str, Beginning]) -> dict[str, list[int]]:
        """The ids of texts, each tokenised from where its known beginning ends."""
        rests = [text[beginning.at :] for text, beginning in begun.items()]
        found = self.backend.encode_batch_fast(rests, add_special_tokens=False) if rests else []
        made = {}
        for (text, (known, _, expected)), rest in zip(begun.items(), found, strict=True):
            ids = rest.ids
            made[text] = [*known, *ids] if ids[: len(expected)] == expected else self._ids(text)
        return made

    def _longer(self, text: str, known: Beginning) -> Beginning:
        """What is known of a beginning after texts were remembered, where much was not known before."""
        return self._beginning(text) if len(text) - known.at >= WORTH else known

    def _beginning(self, text: str) -> Beginning:
        """What is known of a text's beginning: up to a blank some tokens before it parts from another text."""
        if len(text) < self.least:
            return NOTHING
        known, shared = self.known.nearest(text)
        if known is None or shared < LEAST_SHARED:
            return NOTHING
        last = bisect_right(known, shared, key=lambda span: span[1])  # tokens within what is shared
        for cut in range(last - OVERLAP, max(0, last - OVERLAP - SEARCHED), -1):
            at = known.parts_at(cut)
            if at is not None:
                return Beginning(known.ids[:cut], at, known.ids[cut : cut + CHECKED])
        return NOTHING
