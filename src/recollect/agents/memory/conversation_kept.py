"""What a conversation leaves in a memory of turns, sessions or observations; all attempts at it share this."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from recollect.agents.first_prompt import shortened
from recollect.agents.memory.conversation_units import Unit, units
from recollect.chat import Renderer
from recollect.retrieval.dense import Embedder
from recollect.retrieval.text_index import TextIndex
from recollect.types import Task


@dataclass
class Kept:
    """What is remembered: units that are searched, or one text; either as it was after each session."""

    units: list[Unit] = field(default_factory=list)
    ends: list[int] = field(default_factory=lambda: [0])  # how many units there were after so many sessions
    texts: list[str] = field(default_factory=list)  # recurrent: the text after so many sessions
    index: TextIndex | None = None
    tokens: int = 0
    refused: list[Unit] = field(default_factory=list)  # what the budget had no room for

    def at(self, position: int | None) -> int:
        """The number of sessions that had been read when a question is asked."""
        last = max(len(self.ends), len(self.texts)) - 1
        return last if position is None else min(position, last)


def fitting(text: str, renderer: Renderer, room: int, truncation: str) -> tuple[str, int]:
    """A text of at most ``room`` tokens, and how many were left out."""
    spans = renderer.spans(text)
    return shortened(text, spans, room, truncation), max(0, len(spans) - room)


class OneText:
    """What every question is shown where nothing is searched, cut once for all of them: so their prompts share it."""

    def __init__(self, kept: Kept, renderer: Renderer, room: int) -> None:
        self.kept, self.renderer, self.room = kept, renderer, room
        self._cut: dict[int, tuple[str, int]] = {}

    def at(self, place: int) -> tuple[str, int]:
        """The text after so many sessions within ``room`` tokens, and how many were left out."""
        if place not in self._cut:
            kept = self.kept
            text = kept.texts[place] if kept.texts else "\n".join(unit.text for unit in kept.units[: kept.ends[place]])
            self._cut[place] = fitting(text, self.renderer, self.room, "left" if kept.texts else "center")
        return self._cut[place]


@dataclass(frozen=True)
class Rules:
    """How units are made and kept."""

    kind: str
    dates: bool
    budget: int | None  # tokens; None: any number, and nothing is searched
    renderer: Renderer
    embedder: Embedder | None


class _Conversation:
    """A task's conversation, equal to others that say the same."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.digest = _digest(_Same((task.context, task.fields.get("observations"))))

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Conversation) and self.digest == other.digest


class _Same:
    """Objects that are equal only to themselves."""

    def __init__(self, things: tuple[Any, ...]) -> None:
        self.things = things

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.things)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and all(a is b for a, b in zip(self.things, other.things, strict=True))


@lru_cache(maxsize=256)
def _digest(same: _Same) -> bytes:
    context, observations = same.things
    text = json.dumps([list(context), observations], default=str, ensure_ascii=False)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def kept_units(task: Task, rules: Rules) -> Kept:
    """As many units as the budget takes, in their order, and an index of them. It is shared: nobody may change it."""
    return _kept(_Conversation(task), rules)


@lru_cache(maxsize=16)
def _kept(conversation: _Conversation, rules: Rules) -> Kept:
    kept = Kept()
    for own in units(conversation.task, rules.kind, rules.dates):
        for unit in own:
            cost = len(rules.renderer.encode(f"{unit.text}\n"))
            if rules.budget is not None and kept.tokens + cost > rules.budget:
                kept.refused.append(unit)
                continue
            kept.tokens += cost
            kept.units.append(unit)
        kept.ends.append(len(kept.units))
    if rules.budget is not None:
        kept.index = indexed([unit.text for unit in kept.units], rules.embedder)
    return kept


def indexed(texts: Sequence[str], embedder: Embedder | None) -> TextIndex:
    """Texts that can be searched."""
    index = TextIndex(embedder)
    for text in texts:
        index.add(text)
    return index
