"""The text of a choice while it is sampled: every id is decoded once or twice, every character looked at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

UNFINISHED = "\ufffd"  # what half a character decodes to
LONGEST_HELD = 64  # ids in a row that end in half a character; after so many the rest is sent in whole


class Stop:
    """A stop string, and how much of it the text ends with (Knuth, Morris and Pratt)."""

    def __init__(self, text: str) -> None:
        self.text, self.matched = text, 0
        self.back = [0]  # by characters matched: how many of them begin the string again
        matched = 0
        for char in text[1:]:
            while matched and char != text[matched]:
                matched = self.back[matched - 1]
            matched += char == text[matched]
            self.back.append(matched)

    def take(self, char: str) -> bool:
        """Go on by a character; True when the string is there in whole."""
        while self.matched and char != self.text[self.matched]:
            self.matched = self.back[self.matched - 1]
        self.matched += char == self.text[self.matched]
        return self.matched == len(self.text)


class Spoken:
    """One choice: told of its ids again and again, it says what is new and can be sent.

    That is no half character, and nothing that is or may turn out to be a stop string.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stops: Sequence[str]) -> None:
        self.decode, self.stops = decode, [Stop(text) for text in stops]
        self.sent = 0  # characters
        self._from = self._read = 0  # ids from the first on give the context in which those from the second on are read
        self._held = ""  # read, but not sent
        self._ended = False

    def more(self, ids: Sequence[int]) -> str:
        """What can be sent now that these are all the ids."""
        if self._ended:
            return ""
        for char in self._new(ids):
            self._held += char
            if [stop for stop in self.stops if stop.take(char)]:  # all of them go on
                self._ended = True
                break
        kept = max((stop.matched for stop in self.stops), default=0)
        out = self._held[: len(self._held) - kept]
        self._held = self._held[len(out) :]
        self.sent += len(out)
        return out

    def _new(self, ids: Sequence[int]) -> str:
        """The text of the ids that were not read; nothing while it ends in half a character."""
        before, now = self.decode(ids[self._from : self._read]), self.decode(ids[self._from :])
        if now.endswith(UNFINISHED):
            self._ended = len(ids) - self._read > LONGEST_HELD
            return ""
        self._from, self._read = self._read, len(ids)
        return now[len(before) :]
