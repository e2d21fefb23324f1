"""The progress of an update: learners report every micro-batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from recollect.agents.progress import eta
from recollect.training.learner.learner import ReferencePolicy, ValueLearner


@contextmanager
def phase_progress(
    show: Callable[[str], None], name: str, learners: Sequence[ReferencePolicy | ValueLearner | None], passes: int = 1
) -> Iterator[None]:
    """Show how much of a phase is done while it goes on. ``passes`` of its learners over micro-batches make it up."""
    start, ended = time.monotonic(), 0

    def on_micro_batch(done: int, total: int) -> None:
        nonlocal ended
        share = (ended + done / total) / max(passes, ended + 1)
        ended += done == total
        show(f"{name} {share:.0%}, {eta(share, time.monotonic() - start)}")

    present = [learner for learner in learners if learner is not None]
    for learner in present:
        learner.watch(on_micro_batch)
    try:
        yield
    finally:
        for learner in present:
            learner.watch(None)
