"""What memory tools work on in one conversation, and a record of what each call was good for.

A call is useful when it changed the memory, or found something that this conversation had not found yet. What a chunk's
own later calls undo was not useful, nor is bringing back what the memory once held. Listing is neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.retrieval.dense import Embedder
from recollect.retrieval.text_index import TextIndex
from recollect.tools.memory.store import Memory

Held = set[tuple[str, str]]  # (title, content) of every note that stood at the end of a chunk


@dataclass
class MemoryWorkspace:
    """The memory as one conversation has it."""

    memory: Memory
    chunk: int = 0  # the chunk that is being read; 0: none
    question: int = 0  # the question that is being answered; 0: none
    top_k: int = 5  # what a search finds unless it asks for another number
    source: TextIndex | None = None  # the document's chunks, where searches look in them
    read: int = 0  # how many of them had been read
    embedder: Embedder | None = None
    held: Held = field(default_factory=set)
    events: list[dict[str, Any]] = field(default_factory=list)
    _found: set[Any] = field(default_factory=set)

    def changed(self, tool: str, title: str, before: Mapping[str, str]) -> None:
        """Note a call that may have changed a note; ``before`` is what ``state`` said before it."""
        now = state(self.memory)
        titles = [t for t in {**before, **now} if before.get(t) != now.get(t)] or [title]
        for name in titles:
            self._event(tool, name, before.get(name) != now.get(name), before=before.get(name), after=now.get(name))

    def found(self, tool: str, query: str, items: Sequence[Any]) -> None:
        """Note a look-up and what it found."""
        new = [item for item in items if item not in self._found]
        self._found.update(items)
        self._event(tool, query, bool(new))

    def other(self, tool: str, title: str, useful: bool | None) -> None:
        """Note a call that changed and found nothing: useful False; None when it should not count."""
        self._event(tool, title, useful)

    def settle(self, before: Mapping[str, str]) -> None:
        """At the end of a chunk: count only the changes that lasted and wrote something new."""
        now = state(self.memory)
        last = {e["title"]: i for i, e in enumerate(self.events) if "after" in e}
        for i, event in enumerate(self.events):
            if "after" not in event or not event["useful"]:
                continue
            title = event["title"]
            lasting = last[title] == i and now.get(title) != before.get(title)
            event["useful"] = lasting and (title, now.get(title, "")) not in self.held
        self.held |= set(now.items()) | {(title, "") for title in before if title not in now}

    def _event(self, tool: str, title: str, useful: bool | None, **more: Any) -> None:
        self.events.append(
            {"chunk": self.chunk, "question": self.question, "tool": tool, "title": title, "useful": useful, **more}
        )


def state(memory: Memory) -> dict[str, str]:
    """Title → content of everything, the core text included."""
    return {**({"core": memory.core} if memory.core else {}), **memory.notes}


def usefulness(events: Sequence[Mapping[str, Any]]) -> float:
    """The share of the calls that were useful, 0 without any; listing does not count."""
    counted = [bool(e["useful"]) for e in events if e["useful"] is not None]
    return sum(counted) / len(counted) if counted else 0.0
