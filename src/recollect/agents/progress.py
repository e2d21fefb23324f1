"""How far a rollout has come, for people who wait for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from recollect.agents.session import Session
from recollect.runtime.console import Bar

EVERY_S = 1.0  # how often a rollout is looked at


@dataclass(frozen=True)
class RolloutProgress:
    """A rollout at one moment."""

    attempts: int
    done: int
    turns: int  # generations begun
    tokens: int  # sampled in turns that are over
    share: float  # of the turns that are made, estimated; 0: unknown
    seconds: float  # since it began

    def __str__(self) -> str:
        return (
            f"sampling {self.done}/{self.attempts} attempts, {self.turns} turns, {self.tokens} tokens, "
            f"{eta(self.share, self.seconds)}"
        )


class ReportsProgress(Protocol):
    """What can be watched: a collector."""

    on_progress: Callable[[RolloutProgress], None] | None


def eta(share: float, seconds: float) -> str:
    """How long the rest takes, at the pace so far."""
    return f"ETA {seconds / share * (1 - share):.0f} s" if share > 0 else f"{seconds:.0f} s so far"


def progress_of(sessions: Sequence[Session], seconds: float) -> RolloutProgress:
    """The progress of some attempts: turns that were made, out of turns that are expected."""
    done = [s for s in sessions if s.ended]
    usual = sum(s.asked for s in done) / len(done) if done else 0.0
    expected = [_expected_turns(s, usual) for s in sessions]
    turns = sum(s.asked for s in sessions)
    known = [n for n in expected if n is not None]
    share = turns / sum(known) if turns and len(known) == len(expected) else 0.0
    return RolloutProgress(len(sessions), len(done), turns, sum(s.sampled for s in sessions), share, seconds)


def _expected_turns(session: Session, usual: float) -> float | None:
    """Expected turns of an attempt, by the share of its document that is read or by other attempts; None: unknown."""
    if session.ended:
        return session.asked
    if session.share_read:
        return session.asked / session.share_read
    return usual if session.asked < usual else None


async def report(sessions: Sequence[Session], tell: Callable[[RolloutProgress], None]) -> None:
    """Tell how far attempts have come, again and again, until cancelled."""
    start = time.monotonic()
    while True:
        await asyncio.sleep(EVERY_S)
        tell(progress_of(sessions, time.monotonic() - start))


@contextmanager
def shown(collector: ReportsProgress, bar: Bar, when: Callable[[], bool] = lambda: True) -> Iterator[None]:
    """Show on a bar how far a collector's rollouts have come, whenever ``when`` says so."""
    before, collector.on_progress = collector.on_progress, lambda now: bar.within(str(now)) if when() else None
    try:
        yield
    finally:
        collector.on_progress = before
