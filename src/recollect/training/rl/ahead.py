"""Sampling ahead of the weights: the batch of step k is sampled by version max(0, k - L) of the weights.

Which version samples what depends on the steps alone, never on how long anything takes. Here sampling and updates take
turns; `overlap.py` has the same schedule with both side by side.
"""

from __future__ import annotations

import time

from recollect.training.rl.gather import Gathered, Gatherer, check_versions
from recollect.training.rl.metrics import rollout_times, server_metrics
from recollect.training.rl.started import Started
from recollect.training.setup import TrainedPolicy


class Ahead:
    """Provides each step's batch, and samples the one that is due ``staleness`` steps later first."""

    overlaps = False  # sampling goes on while the learner updates

    def __init__(self, gatherer: Gatherer, policy: TrainedPolicy, staleness: int, total: int) -> None:
        """``total`` is the number of steps of the run: nothing is sampled for later ones."""
        self.gatherer, self.policy, self.staleness, self.total = gatherer, policy, staleness, total
        self.ready: Started = {}
        self.waiting = True  # the learner waits whenever something is sampled
        self.sampling = 0  # the step whose batch is sampled, or was last
        self._ended = time.monotonic()

    def gather(self, step: int, position: int) -> Gathered:
        """The batch of a step. The sampler has version ``step``, unless nothing is left to be sampled."""
        start = time.monotonic()
        for number in self.missing(step):
            taken = sum(self.ready[n].batches for n in range(step, number))
            self.ready[number] = self.sample(number, position + taken, step)
        made = self.ready.pop(step)
        made.times["time/wait_for_rollout"] = time.monotonic() - start
        return made

    def missing(self, step: int) -> range:
        """The steps whose batches are due when a step begins, and have not been begun."""
        return range(max(self.ready, default=step - 1) + 1, min(step + self.staleness + 1, self.total))

    def sample(self, number: int, position: int, version: int) -> Gathered:
        """Sample the batch of a step with the weights of a version, which the sampler has."""
        start, before = time.monotonic(), self.policy.sampler.statistics()
        self.sampling = number
        made = self.gatherer.gather(number, position)
        check_versions(made.sampled, version)
        seconds, after = time.monotonic() - start, self.policy.sampler.statistics()
        made.version = version
        made.times = {"time/rollout": seconds, "time/wait_for_update": start - self._ended}
        made.times |= rollout_times(before, after, made.waited, seconds) | server_metrics(before, after)
        self._ended = time.monotonic()
        return made

    def settled(self) -> Started:
        """The batches that were sampled ahead, when nothing is under way any more."""
        return self.ready

    def catch_up(self, version: int) -> None:
        """Let the sampler be idle and have the newest weights. Here it always is and does."""

    def finish(self, version: int) -> None:
        """Sample nothing more, and let the sampler have the newest weights."""

    def close(self) -> None:
        """Sample nothing more; what is under way is dropped."""
