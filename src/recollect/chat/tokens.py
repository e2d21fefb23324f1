"""The tokens of a long text, computed lazily: their number, and the span of each."""

from __future__ import annotations

from functools import cached_property
from threading import Lock
from typing import Any


class Tokens:
    """A text by a fast tokenizer's backend, tokenised when it is first asked about; other threads run meanwhile."""

    def __init__(self, backend: Any, text: str) -> None:
        self.backend, self.text = backend, text
        self._made: Any = None
        self._lock = Lock()

    @property
    def made(self) -> Any:
        """The backend's encoding. Threads that want it at once wait for the first of them."""
        if self._made is None:
            with self._lock:
                if self._made is None:  # a batch, for which the backend lets other threads run
                    (self._made,) = self.backend.encode_batch([self.text], add_special_tokens=False)
        return self._made

    def take(self, made: Any) -> None:
        """Take the backend's encoding, where it was made with those of others."""
        self._made = made

    def __len__(self) -> int:
        return len(self.made)

    def __getitem__(self, token: int) -> tuple[int, int]:
        """Its first character and the one after its last; padding has none."""
        start, end = self.made.token_to_chars(token) or (0, 0)
        return start, end

    @cached_property
    def ids(self) -> list[int]:
        return list(self.made.ids)

    def parts_at(self, token: int) -> int | None:
        """The character before which the text can be cut in front of a token: a blank after a word; else None."""
        at = self[token - 1][1]
        before, after = self.text[at - 1 : at], self.text[at : at + 1]
        if not after.isspace() or before.isspace() or self[token][0] < at:  # or within a character of several tokens
            return None
        return at if after == " " or before.isalnum() else None  # a sign and the line's end may be one token
