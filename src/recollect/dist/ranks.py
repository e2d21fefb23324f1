"""The ranks, seen from the driver: started, called together, watched, and ended with it."""

from __future__ import annotations

import selectors
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from recollect.dist.channel import Closed, Garbled, Stuck
from recollect.dist.machine import Machine, NodeLost
from recollect.dist.place import RankPlace
from recollect.dist.rank_member import END_S, RankMember, start_here, start_there
from recollect.types import BadInput

START_S = 900.0  # a large model takes its time to load
LOOK_S = 0.5  # between looks at the clock
SILENT_S = 10.0  # a rank that has not said for so long that it is alive is the one that is stuck

Passed = Callable[[int, int], None]

_texts = lambda found: isinstance(found, str)
_counts = lambda found: isinstance(found, list) and len(found) == 2 and all(type(n) is int for n in found)
SAYS: dict[str, Callable[[Any], bool]] = {  # kinds of messages, and what each of them holds
    "alive": lambda found: type(found) is int,  # passes so far
    "passed": _counts,  # of how many in a call
    "item": lambda found: True,
    "done": lambda found: True,
    "memory": _texts,
    "refused": _texts,
    "failed": lambda found: isinstance(found, list) and len(found) == 2 and all(map(_texts, found)),
}


class RankLost(Exception):
    """A rank ended, hangs, or ran out of memory: the ranks are gone and can be started again."""

    def __init__(self, text: str, memory: bool = False) -> None:
        super().__init__(text)
        self.memory = memory


@dataclass(frozen=True)
class RankNodes:
    """Machines for ranks, as many on each, and the address at which those reach this process."""

    machines: Sequence[Machine]
    here: str


class RankFailed(Exception):
    """What a call raised inside the ranks, which are still there."""


class Ranks:
    """All ranks. A call goes to every one; the first one's answer is the answer."""

    def __init__(self, worker: str, settings: Any, place: RankPlace, nodes: RankNodes | None = None) -> None:
        """``worker`` is the class that does the work in each rank; ``place`` is that of rank 0."""
        self.folder = tempfile.mkdtemp(prefix="recollect-ranks-")
        place = replace(place, meeting=str(Path(self.folder) / "meeting"))
        each = place.size // (1 if nodes is None else len(nodes.machines))
        places = [replace(place, rank=rank, local=rank % each) for rank in range(place.size)]
        self.deadline_s = place.deadline_s
        self.members: list[RankMember] = []
        self._end = weakref.finalize(self, end, self.members, self.folder)
        try:
            if nodes is None:
                self.members.extend(start_here(place) for place in places)
            else:
                self.members.extend(_on(nodes, places))
            for member in self.members:
                member.channel.limit(self.deadline_s)
                try:
                    member.channel.send({"worker": worker, "place": asdict(member.place), "settings": settings})
                except Closed as error:
                    self._lost(member, "starting", error)
            self.about = self._answer("starting", START_S)
        except BaseException:
            self.close()
            raise

    def call(
        self, target: int, name: str, given: dict[str, Any], made: int | None = None, passed: Passed | None = None
    ) -> Any:
        """Call a method of an object in every rank; ``made`` is the number that its result gets there."""
        self._ask(target, name, given, made)
        return self._answer(name, self.deadline_s, passed)

    def stream(self, target: int, name: str, given: dict[str, Any]) -> Iterator[Any]:
        """What a method yields in the first rank, one by one."""
        self._ask(target, name, given, None)
        done = False
        try:
            yield from self._items(name)
            done = True
        finally:
            if not done:  # they are in the middle of something that nobody waits for any more
                self.close()

    def _ask(self, target: int, name: str, given: dict[str, Any], made: int | None) -> None:
        for member in self.members:
            try:
                member.channel.send({"target": target, "call": name, "given": given, "made": made})
            except Closed as error:
                self._lost(member, name, error)

    def _answer(self, what: str, deadline_s: float, passed: Passed | None = None) -> Any:
        found = list(self._items(what, deadline_s, passed, last=True))
        return found[-1]

    def _items(
        self, what: str, deadline_s: float | None = None, passed: Passed | None = None, last: bool = False
    ) -> Iterator[Any]:
        """What the first rank sends, until every rank is done; with ``last`` also what the call returned."""
        deadline_s = deadline_s or self.deadline_s
        waiting, failed, result = {m.rank for m in self.members}, [], None
        moved = time.monotonic()
        for member in self.members:
            member.heard = moved
        with selectors.DefaultSelector() as selector:
            for member in self.members:
                selector.register(member.channel.socket, selectors.EVENT_READ, member)
            while waiting:
                for key, _ in selector.select(LOOK_S):
                    member = key.data
                    try:
                        kind, value = said(member.channel.receive())
                    except Closed as error:
                        self._lost(member, what, error)
                    member.heard = time.monotonic()
                    if kind != "alive":
                        moved = member.heard
                    if kind == "alive":
                        member.passes = value
                    elif kind == "passed":
                        if member.rank == 0 and passed is not None:
                            passed(*value)
                    elif kind == "item":
                        if member.rank == 0:
                            yield value
                        moved = time.monotonic()
                    elif kind == "memory":
                        self.close()
                        raise RankLost(f"{member.name} ran out of memory in {what}: {value}", memory=True)
                    else:
                        waiting.discard(member.rank)
                        if kind != "done":
                            failed.append((kind, value))
                            deadline_s = min(deadline_s, SILENT_S)  # the others may wait for this one for ever
                        elif member.rank == 0:
                            result = value
                if waiting and time.monotonic() - moved > deadline_s:
                    self._stuck(waiting, what, deadline_s, failed)
        if failed:
            _raise(failed)
        if last:
            yield result

    def _stuck(self, waiting: set[int], what: str, deadline_s: float, failed: list[tuple[str, Any]]) -> None:
        """End everything and say who is stuck; after an error in one rank, say that."""
        now = time.monotonic()
        silent = [m for m in self.members if m.rank in waiting and now - m.heard > SILENT_S]
        member = silent[0] if silent else min((m for m in self.members if m.rank in waiting), key=lambda m: m.passes)
        how = "has said nothing" if silent else f"is alive, but has not gone on after {member.passes} passes,"
        text = f"{member.name} {how} for {deadline_s:g} s in {what}"
        self.close()
        if failed:
            _raise(failed)
        raise RankLost(text)

    def _lost(self, member: RankMember, what: str, why: Closed) -> NoReturn:
        """End everything and say who is gone, or says what cannot be read."""
        if isinstance(why, Stuck | Garbled):
            self.close()
            said = "hangs" if isinstance(why, Stuck) else "sent what cannot be read"
            raise RankLost(f"{member.name} {said} in {what}: {why}")
        gone, how = member, None
        until = time.monotonic() + END_S  # a connection may be gone a moment before its process
        while how is None and time.monotonic() < until:
            ended = ((m, m.process.ended()) for m in self.members)
            gone, how = next((found for found in ended if found[1] is not None), (member, None))
            time.sleep(0.0 if how is not None else LOOK_S / 10)
        text = f"{gone.name} ended in {what} ({how or 'its connection is gone'})"
        self.close()
        raise RankLost(text)

    def close(self) -> None:
        """End all ranks; nothing of them is left."""
        self._end()

    @property
    def closed(self) -> bool:
        """Whether they are gone."""
        return not self._end.alive


def said(message: Any) -> tuple[str, Any]:
    """What kind of message a rank sent, and what it says."""
    if isinstance(message, dict) and len(message) == 1:
        ((kind, value),) = message.items()
        if SAYS.get(kind, lambda found: False)(value):
            return kind, value
    raise Garbled("it is none of the messages of a rank")


def _raise(failed: list[tuple[str, Any]]) -> None:
    for kind, value in failed:
        if kind == "refused":
            raise BadInput(value)
    name, text = failed[0][1]
    raise RankFailed(f"{name}: {text}")


def _on(nodes: RankNodes, places: Sequence[RankPlace]) -> Sequence[RankMember]:
    """Start ranks on nodes; one that cannot start is lost as one that ends."""
    try:
        return start_there(places, nodes.machines, nodes.here, START_S)
    except (OSError, NodeLost) as error:
        raise RankLost(str(error)) from None


def end(members: list[RankMember], folder: str) -> None:
    """Kill the ranks and remove what they met by."""
    for member in members:
        member.channel.close()
        member.process.kill()
    for member in members:
        member.process.close()
    shutil.rmtree(folder, ignore_errors=True)
