"""How far a rollout has come, for people who wait for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from recollect.console import Bar
from recollect.session import Session

EVERY_S = 1.0  # how often a rollout is looked at
ALMOST = 0.98  # the most that an attempt counts before it is done


@dataclass(frozen=True)
class RolloutProgress:
    """A rollout at one moment."""

    attempts: int
    done: int
    turns: int  # generations begun
    tokens: int  # sampled in turns that are over
    share: float  # of the work that is done, estimated
    seconds: float  # since it began

    def __str__(self) -> str:
        return (
            f"sampling {self.done}/{self.attempts} attempts, {self.turns} turns, {self.tokens} tokens, "
            f"{eta(self.share, self.seconds)}"
        )


class Watched(Protocol):
    """What can be watched: a collector."""

    on_progress: Callable[[RolloutProgress], None] | None


def eta(share: float, seconds: float) -> str:
    """How long the rest takes, at the pace so far."""
    return f"ETA {seconds / share * (1 - share):.0f} s" if share > 0 else f"{seconds:.0f} s so far"


def progress_of(sessions: Sequence[Session], seconds: float) -> RolloutProgress:
    """How far some attempts have come. Documents count by what has been read, other attempts by their turns."""
    done = [s for s in sessions if s.ended]
    usual = sum(s.asked for s in done) / len(done) if done else 0.0
    share = len(done) + sum(_share(s, usual) for s in sessions if not s.ended)
    return RolloutProgress(
        len(sessions),
        len(done),
        sum(s.asked for s in sessions),
        sum(s.sampled for s in sessions),
        share / max(1, len(sessions)),
        seconds,
    )


def _share(session: Session, usual_turns: float) -> float:
    if session.share_read:
        return ALMOST * session.share_read
    return min(ALMOST, session.asked / usual_turns) if usual_turns else 0.0


async def report(sessions: Sequence[Session], tell: Callable[[RolloutProgress], None]) -> None:
    """Tell how far attempts have come, again and again, until cancelled."""
    start = time.monotonic()
    while True:
        await asyncio.sleep(EVERY_S)
        tell(progress_of(sessions, time.monotonic() - start))


@contextmanager
def shown(collector: Watched, bar: Bar) -> Iterator[None]:
    """Show on a bar how far a collector's rollouts have come."""
    before, collector.on_progress = collector.on_progress, lambda now: bar.within(str(now))
    try:
        yield
    finally:
        collector.on_progress = before
