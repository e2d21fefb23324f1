"""What the server sampled for a job, kept until it is trained on, also through a kill of the server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, cast

from recollect.files.output import write_atomic
from recollect.types import Completion, Message

KEPT_ROUNDS = 8  # a client that holds groups back for longer gets them tokenised
FILE = "sampled.jsonl"


@dataclass(frozen=True)
class SampledCompletion:
    """A completion as it was sampled, and as the client saw it."""

    messages: tuple[Message, ...]
    text: str  # what the client was told
    prompt_ids: tuple[int, ...]
    completion: Completion
    temperature: float
    round: int
    turn: int  # which completion of the round it is since the client asked what is pending; 0: it came before that


@dataclass
class SampledStore:
    """The completions of a job that may come back."""

    path: Path
    rows: list[SampledCompletion] = field(default_factory=list)
    spent: set[int] = field(default_factory=set)  # places of those that were trained on
    first: int = 0  # the place of rows[0]

    def add(self, row: SampledCompletion) -> None:
        """Keep one more."""
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(_stored(row)) + "\n")

    def items(self) -> list[tuple[int, SampledCompletion]]:
        """All of them by place."""
        return list(enumerate(self.rows, self.first))

    def spend(self, places: Sequence[int], number: int) -> None:
        """These were trained on in a round; what is of rounds long ago is forgotten."""
        self.spent |= set(places)
        old = sum(row.round <= number - KEPT_ROUNDS for row in self.rows)
        if old:
            self.rows, self.first = self.rows[old:], self.first + old
            self.spent = {place for place in self.spent if place >= self.first}
        lines = [
            json.dumps(_stored(row) | {"spent": True} if place in self.spent else _stored(row)) + "\n"
            for place, row in self.items()
        ]
        write_atomic(self.path, "".join(lines))

    @staticmethod
    def read(path: Path) -> SampledStore:
        """What was kept; the last line of a killed server may be cut."""
        made = SampledStore(path)
        for line in path.read_text().splitlines() if path.is_file() else []:
            try:
                row = json.loads(line)
                made.rows.append(_read(row))
            except (ValueError, KeyError, TypeError):
                break
            if row.get("spent"):
                made.spent.add(len(made.rows) - 1)
        return made


def _stored(row: SampledCompletion) -> dict[str, Any]:
    done = row.completion
    return {
        "messages": [[m.role, m.content] for m in row.messages],
        "text": row.text,
        "prompt_ids": list(row.prompt_ids),
        "ids": list(done.ids),
        "logprobs": list(done.logprobs),
        "stop": done.stop,
        "version": done.version,
        "whole": done.text,
        "temperature": row.temperature,
        "round": row.round,
        "turn": row.turn,
    }


def _read(row: dict[str, Any]) -> SampledCompletion:
    stop = cast(Literal["stop", "length"], row["stop"])
    done = Completion(tuple(row["ids"]), tuple(row["logprobs"]), stop, int(row["version"]), row["whole"])
    messages = tuple(Message(role, content) for role, content in row["messages"])
    return SampledCompletion(
        messages, row["text"], tuple(row["prompt_ids"]), done, row["temperature"], row["round"], row["turn"]
    )
