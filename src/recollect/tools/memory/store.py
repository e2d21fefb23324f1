"""The memory of one trajectory: a core text and titled notes. Its tokens are counted, and its budget is kept."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from recollect.tools.memory.cut import Count, whole_sentences

CORE = "core"  # the title under which tools edit the core text


class Full(ValueError):
    """Nothing of a note fits the budget; the message is for the model."""


@dataclass
class Memory:
    """What an agent remembers. Titles are compared without case and outer spaces."""

    count: Count  # tokens of a text
    budget: int  # most tokens of core text and notes together
    core: str = ""
    notes: dict[str, str] = field(default_factory=dict)  # title → content, oldest first

    # ---- reading ----

    def find(self, title: str) -> str | None:
        """The title of a note as it is stored."""
        wanted = _key(title)
        if title in self.notes:
            return title
        return next((name for name in self.notes if _key(name) == wanted), None)

    def get(self, title: str) -> str | None:
        """The content of a note, or of the core text."""
        if _key(title) == CORE:
            return self.core or None
        found = self.find(title)
        return None if found is None else self.notes[found]

    def used(self) -> int:
        """Tokens of everything."""
        return self.count(self.core) + sum(self._cost(t, c) for t, c in self.notes.items())

    def snapshot(self) -> Memory:
        """The memory as it is now; later changes do not reach it."""
        return replace(self, notes=dict(self.notes))

    # ---- changing; each returns what was cut off, empty when everything fitted ----

    def add(self, title: str, content: str) -> str:
        """A new note; KeyError when there is one of this title. The core text is added to instead."""
        if _key(title) == CORE:
            return self._set_core(f"{self.core}\n{content}".strip())
        if self.find(title) is not None:
            raise KeyError(title)
        return self._put(title.strip(), content)

    def update(self, title: str, content: str, new_title: str | None = None) -> str:
        """Replace a note's content, and its title if a new one is given; KeyError when there is none to replace."""
        if _key(title) == CORE:
            return self._set_core(content.strip())
        found = self.find(title)
        if found is None:
            raise KeyError(title)
        named = (new_title or found).strip()
        if self.find(named) not in (None, found) or _key(named) == CORE:
            raise KeyError(named)
        before = dict(self.notes)
        del self.notes[found]
        try:
            lost = self._put(named, content)
        except Full:
            self.notes = before
            raise
        if named == found:  # an updated note keeps its place
            self.notes = {t: self.notes[t] for t in before}
        return lost

    def delete(self, title: str) -> None:
        """Remove a note (of the core text: empty it); KeyError when there is none."""
        if _key(title) == CORE and self.core:
            self.core = ""
            return
        found = self.find(title)
        if found is None:
            raise KeyError(title)
        del self.notes[found]

    # ---- the budget ----

    def _put(self, title: str, content: str) -> str:
        room = self.budget - self.used()
        fitting = _fitting(content.strip(), lambda text: self._cost(title, text) <= room)
        if fitting is None:
            raise Full(self._full())
        self.notes[title] = fitting
        return content.strip()[len(fitting) :].strip()

    def _set_core(self, text: str) -> str:
        room = self.budget - (self.used() - self.count(self.core))
        fitting = _fitting(text, lambda part: self.count(part) <= room)
        if fitting is None:
            raise Full(self._full())
        self.core = fitting
        return text[len(fitting) :].strip()

    def _full(self) -> str:
        return (
            f"The memory is full: {self.used()} of {self.budget} tokens are used, and nothing of this fits. "
            "Shorten or delete notes first."
        )

    def _cost(self, title: str, content: str) -> int:
        return self.count(f"{title}: {content}\n")


def _key(title: str) -> str:
    return " ".join(title.casefold().split())


def _fitting(text: str, fits: Count) -> str | None:
    """All of a text that fits, in whole sentences; None when it has sentences and not one fits."""
    if fits(text):
        return text
    return whole_sentences(text, lambda part: bool(fits(part))) or None
