"""What brings new ranks to where lost ones were: how their objects were made, and every call since a checkpoint.

Updates are functions of what they are given, so the same calls on the same weights end with the same weights.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_CALLS = 256  # without a checkpoint; after more of them lost ranks end the run
CRITIC = "critic"  # where a checkpoint has the critic's files


@dataclass(frozen=True)
class RankCall:
    """A call of a method of an object of the ranks; ``made`` is the number that its result gets there."""

    target: int
    name: str
    given: dict[str, Any]
    made: int | None = None


@dataclass
class Journal:
    """The calls that matter. Object 0 is the learner, whose checkpoint is that of all."""

    made: list[RankCall] = field(default_factory=list)  # those that made objects
    settings: dict[tuple[int, str], RankCall] = field(default_factory=dict)  # what a checkpoint does not hold
    since: list[RankCall] = field(default_factory=list)  # those that changed weights, since the checkpoint
    kept: Path | None = None  # the newest checkpoint of this run that is in its place
    frozen: dict[int, Path] = field(default_factory=dict)  # where the weights of references are
    complete: bool = True  # False: what was there cannot be made again

    def note(self, call: RankCall) -> None:
        """Remember a call that changed something."""
        if call.name == "load" and call.target == 0:
            self.keep(0, call.given["folder"])
        elif call.name == "load" and call.given["folder"].parent == self.kept:
            return  # the critic's, of the same checkpoint
        elif call.name == "load_weights" and call.target:
            self.frozen[call.target] = call.given["folder"]
        elif call.name == "set_schedule":
            self.settings[call.target, call.name] = call
        elif call.made is None:
            self.since.append(call)
        else:
            self._new(call)
        if len(self.since) > MOST_CALLS:
            self.complete, self.since = False, []

    def _new(self, call: RankCall) -> None:
        assert call.made is not None
        if call.name == "keep_frozen" and self.since:
            self.since.append(call)  # a copy of weights that no checkpoint has
            return
        self.made.append(call)
        if call.name == "keep_frozen" and self.kept is not None:
            self.frozen[call.made] = self.kept

    def keep(self, target: int, folder: Path) -> None:
        """A checkpoint of an object is in its place."""
        self.complete = not any(call.name == "keep_frozen" for call in self.since)
        self.since = []
        if target == 0:
            self.kept = folder
        else:
            self.since.append(RankCall(target, "load", {"folder": folder}))

    def replay(self, adapted: bool) -> list[RankCall]:
        """The calls that bring new ranks to where the lost ones were; ``adapted``: references are the base model."""
        calls = [*self.made, *self.settings.values()]
        if not adapted:
            calls += [RankCall(number, "load_weights", {"folder": folder}) for number, folder in self.frozen.items()]
        if self.kept is not None:
            calls.append(RankCall(0, "load", {"folder": self.kept}))
            critics = [call.made for call in self.made if call.name == "make_critic" and call.made is not None]
            stored = self.kept / CRITIC
            calls += [RankCall(number, "load", {"folder": stored}) for number in critics if stored.is_dir()]
        return [*calls, *self.since]
