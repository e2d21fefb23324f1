"""Sampling beside the updates, in a thread with event loops of its own, by the schedule of `ahead.py`.

The sampler holds one version at a time. A version enters when the batch before has ended; until then its weights wait
in host memory, so that the learner can go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING

from recollect.config import Config
from recollect.config.staleness import overlaps
from recollect.runtime.event_loop import TimedRuns
from recollect.samplers.sampler import NamedWeights
from recollect.training.rl.ahead import Ahead
from recollect.training.rl.gather import Gathered, Gatherer
from recollect.training.rl.started import Started
from recollect.training.setup import TrainedPolicy

if TYPE_CHECKING:
    from torch import Tensor

LOOK_S = 1.0  # between looks at the thread
END_S = 30.0  # for rollouts that are dropped to end


@dataclass(frozen=True)
class Order:
    """A batch to sample, and the weights that the sampler takes before."""

    number: int
    version: int
    weights: list[tuple[str, Tensor]] | None  # None: it has them


class HeldWeights:
    """Takes a version of the weights as a sampler does, and keeps it in host memory."""

    def __init__(self) -> None:
        self.weights: list[tuple[str, Tensor]] = []

    def take_weights(self, version: int, weights: NamedWeights | None) -> None:
        """Copy the weights."""
        assert weights is not None, "weights that a sampler shares with the learner cannot be held"
        self.weights = [(name, weight.detach().to("cpu", copy=True)) for name, weight in weights]


class Overlapped(Ahead):
    """Samples in a thread. What others call runs in the thread of the learner."""

    overlaps = True

    def __init__(self, gatherer: Gatherer, policy: TrainedPolicy, staleness: int, total: int) -> None:
        super().__init__(gatherer, policy, staleness, total)
        self.waiting = False
        self._runs = TimedRuns()
        gatherer.run = self._runs.run
        self._orders: SimpleQueue[Order | None] = SimpleQueue()
        self._changed = threading.Condition()  # guards what follows, and `ready`
        self._under_way: dict[int, None] = {}
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._position = 0  # batches of tasks that were taken
        self._version = 0  # that the sampler has, or will have when all orders are done

    def gather(self, step: int, position: int) -> Gathered:
        """The batch of a step; that of step + staleness is begun with the weights as they are now."""
        start, syncing = time.monotonic(), 0.0
        if self._thread is None:
            self._begin(position)
        if step in self._under_way or step in self.ready:
            self._wait(lambda: step in self.ready)
        if due := self.missing(step):
            before = time.monotonic()
            weights = self._hand_over(step)
            syncing = time.monotonic() - before
            self._order([Order(number, step, weights if number == due[0] else None) for number in due])
        self._wait(lambda: step in self.ready)
        with self._changed:
            made, made.goes_on = self.ready.pop(step), True
        made.times |= {"time/wait_for_rollout": time.monotonic() - start - syncing, "time/sync": syncing}
        return made

    def missing(self, step: int) -> range:
        """The steps whose batches are due when a step begins, and have not been begun."""
        with self._changed:
            begun = max([*self.ready, *self._under_way], default=step - 1)
        return range(begun + 1, min(step + self.staleness + 1, self.total))

    def settled(self) -> Started:
        """The batches that were sampled ahead, when nothing is under way any more."""
        self._wait(lambda: not self._under_way)
        return self.ready

    def catch_up(self, version: int) -> None:
        """Let the sampler be idle and have the newest weights."""
        self.settled()
        if self._thread is not None and self._version != version:
            self.policy.sync(version)
            self._version = version

    def finish(self, version: int) -> None:
        """Sample nothing more, and let the sampler have the newest weights."""
        self.close()
        if self._thread is not None:
            assert not self._thread.is_alive(), "a rollout that was dropped goes on"
            self.policy.sync(version)

    def close(self) -> None:
        """Sample nothing more; what is under way is dropped."""
        if self._thread is not None:
            self._runs.cancel()
            self._orders.put(None)
            self._thread.join(END_S)

    # ---- in the learner's thread ----

    def _begin(self, position: int) -> None:
        """Start the thread; the sampler has the learner's weights, and batches of a checkpoint may be ready."""
        self._position = position + sum(made.batches for made in self.ready.values())
        self._version = self.policy.sampler.version
        self._ended = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="rollout", daemon=True)
        self._thread.start()

    def _hand_over(self, version: int) -> list[tuple[str, Tensor]] | None:
        """Give the sampler the learner's weights, if it is idle; otherwise a copy that it takes later."""
        if self._version == version:
            return None
        self._version = version
        with self._changed:
            idle = not self._under_way
        if idle:
            self.policy.sync(version)
            return None
        held = HeldWeights()
        self.policy.learner.sync(held, version)
        return held.weights

    def _order(self, orders: list[Order]) -> None:
        with self._changed:
            self._under_way |= dict.fromkeys(order.number for order in orders)
        for order in orders:
            self._orders.put(order)

    def _wait(self, done: Callable[[], bool]) -> None:
        """Wait for the thread; what went wrong there is raised here."""
        self.waiting = True
        try:
            with self._changed:
                while not done():
                    if self._error is not None:
                        raise self._error
                    assert self._thread is not None
                    assert self._thread.is_alive(), "the thread that samples has ended"
                    self._changed.wait(LOOK_S)
        finally:
            self.waiting = False

    # ---- in the thread ----

    def _work(self) -> None:
        """Sample one batch after another."""
        while (order := self._orders.get()) is not None:
            try:
                if order.weights is not None:
                    self.policy.sampler.take_weights(order.version, order.weights)
                made = self.sample(order.number, self._position, order.version)
            except BaseException as error:
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return
            self._position += made.batches
            with self._changed:
                self.ready[order.number] = made
                del self._under_way[order.number]
                self._changed.notify_all()


def sampling_ahead(cfg: Config, gatherer: Gatherer, policy: TrainedPolicy, total: int) -> Ahead | None:
    """What samples ahead of the weights for a run of so many steps; None where steps are synchronous."""
    if not cfg.trainer.max_staleness:
        return None
    kind = Overlapped if overlaps(cfg) else Ahead
    return kind(gatherer, policy, cfg.trainer.max_staleness, total)
