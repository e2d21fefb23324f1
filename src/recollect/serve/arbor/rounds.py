"""Rounds of a job: the client asks what is pending, samples, asks again, and fills every pending id with a group.

The client sends one group for each id that it is told of, so an id too few would delay a group, and one too many would
have a group sent twice. How many groups it has is known from what it sampled since it first asked in this round.
Samples before that and after its last question are those of a validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from recollect.serve.arbor.payloads import PostedGroup
from recollect.serve.protocol import BadRequest


@dataclass
class RoundState:
    """What a killed server has to know of the round that was open."""

    number: int = 0  # rounds that were trained
    first: int = 0  # the first id of this round
    reported: int = 0  # ids that the client was told of
    opened: bool = False  # whether it has asked
    before: int = 0  # completions sampled in this round before it asked
    during: int = 0  # … and since
    seen: int = 0  # … of which it was told in its last answer

    def stored(self) -> dict[str, Any]:
        """As it is written to a file."""
        return asdict(self)


@dataclass
class Rounds:
    """The round that is open, and the groups that were posted to it."""

    size: int  # completions of a group
    state: RoundState = field(default_factory=RoundState)
    posted: dict[int, PostedGroup] = field(default_factory=dict)
    earlier: dict[int, str] = field(default_factory=dict)  # digests of the groups of the round before, by id

    def note_sampled(self) -> None:
        """One more completion was sampled."""
        if self.state.opened:
            self.state.during += 1
        else:
            self.state.before += 1

    def pending(self) -> list[int]:
        """The ids that wait for a group."""
        first, reported = self.state.first, self.state.reported
        return [i for i in range(first, first + reported) if i not in self.posted]

    def ask(self) -> list[int]:
        """The client asks what is pending; it is told of as many ids as it has groups."""
        state = self.state
        if not state.opened:
            state.opened, state.reported = True, self._groups(state.before)
        elif state.during and not self.posted:
            state.reported, state.seen = self._groups(state.during), state.during
        return self.pending()

    def post(self, number: int | None, group: PostedGroup) -> bool:
        """Take a group; True when it was not here before. Without a number it fills the first pending id."""
        if number is not None and (known := self._known(number)) is not None:
            if known == group.digest:
                return False  # the client asks again, for it did not hear the answer
            raise BadRequest(f"batch_id {number} was filled with another group", "batch_id", 409)
        if not self.state.opened:
            self.state.opened, self.state.reported = True, 1
            number = self.state.first
        waiting = self.pending()
        number = waiting[0] if number is None else number
        if number not in waiting:
            raise BadRequest(f"batch_id {number} is not pending; {waiting} are", "batch_id")
        self.posted[number] = group
        return True

    @property
    def complete(self) -> bool:
        """Whether every id has its group."""
        return bool(self.posted) and not self.pending()

    def close(self) -> None:
        """Go on with the next round."""
        state = self.state
        self.earlier = {number: group.digest for number, group in self.posted.items()}
        self.state = RoundState(state.number + 1, state.first + max(1, state.reported))
        self.posted = {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where a killed server was."""
        self.state = RoundState(**state)

    def _known(self, number: int) -> str | None:
        """The digest of the group that an id was filled with."""
        if number in self.posted:
            return self.posted[number].digest
        return self.earlier.get(number, "" if number < self.state.first else None)

    def _groups(self, sampled: int) -> int:
        return max(1, -(-sampled // self.size))
