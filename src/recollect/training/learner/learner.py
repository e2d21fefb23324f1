"""The learner interface: what the trainer calls, wherever the learner computes.

Batches go in, arrays over their trained tokens and plain numbers come out. Models, optimizers, devices, micro-batches
and memory are a learner's own business: it may be this process or many ranks. Weights leave it in two ways: into a
folder (`export`, `save`) or into a sampler (`sync`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from recollect.config import Optim
from recollect.packing.batch import Batch
from recollect.packing.micro_batch import Packed
from recollect.samplers.sampler import TakesWeights
from recollect.types import Sample

Watcher = Callable[[int, int], None]  # is called with (micro-batches done, all of them) of a pass
Metrics = dict[str, float]


@dataclass(frozen=True)
class ModelFacts:
    """What others need to know about a learner's model."""

    window: int  # tokens of a sequence
    vocabulary: int  # ids that it knows
    trained: int  # parameters that learn
    note: str = ""  # how it is computed, where that is not the fast way


@dataclass(frozen=True)
class PolicyTargets:
    """What a policy update is made from. Arrays run over all trained tokens of the batch."""

    advantages: np.ndarray
    old: np.ndarray | None = None  # log-probabilities before the update; None: the update is on-policy
    reference: np.ndarray | None = None  # log-probabilities of the reference policy, where the loss needs them


class ReferencePolicy(Protocol):
    """A policy that stays as it is, to measure how far another one has moved."""

    def logprobs(self, batch: Batch) -> np.ndarray:
        """[E] the log-probability of every trained token."""

    def load_weights(self, folder: Path) -> None:
        """Take the weights of a checkpoint."""

    def watch(self, watcher: Watcher | None) -> None:
        """Call ``watcher`` after every micro-batch; None removes it."""


class Learner(ReferencePolicy, Protocol):
    """The policy that is trained, and its optimizer."""

    @property
    def facts(self) -> ModelFacts:
        """What its model is."""

    def divergence(self, batch: Batch, reference: ReferencePolicy) -> np.ndarray:
        """[E] the exact divergence from a reference of this learner, over the whole vocabulary."""

    def update(
        self,
        batch: Batch,
        targets: PolicyTargets,
        reference: ReferencePolicy | None = None,
        seed: Sequence[int] = (0,),
        place: int | None = None,
    ) -> Metrics:
        """All mini-batches and epochs of one RL step; returns metrics averaged over the updates.

        ``place`` is where the step stands in the learning rate's schedule; None: every update moves on by one.
        ``reference`` is for losses with the exact divergence.
        """

    def imitate(self, item: Sequence[Sample] | Packed) -> Metrics:
        """One supervised update: the mean loss over all trained tokens, and what happened."""

    def imitation_scores(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """[E] −log p of every trained token, and whether it would have been the first choice."""

    def keep_reference(self) -> ReferencePolicy:
        """A frozen copy of the policy as it is now; for a LoRA model, its base."""

    def make_critic(self, updates: int) -> ValueLearner:
        """The critic that the configuration asks for: beside this policy, or on its body."""

    def with_optimizer(self, optim: Optim, updates: int) -> Learner:
        """A learner of the same weights with an optimizer and a schedule of its own."""

    def set_schedule(self, updates: int) -> None:
        """Set the number of updates of the learning-rate schedule."""

    def short_of_memory(self) -> bool:
        """True when an update may need the memory that sampling holds."""

    def save(self, folder: Path, bases: Path) -> None:
        """Write weights and optimizer into a folder; a base that is nowhere else to load from goes below ``bases``."""

    def keep(self, folder: Path) -> None:
        """A checkpoint that `save` wrote is in its place, the critic's too: what is lost can start again from there."""

    def load(self, folder: Path) -> None:
        """Take what `save` wrote."""

    def export(self, folder: Path, dtype: str) -> None:
        """Write the plain model, adapters merged, as transformers and vLLM load it."""

    def sync(self, sampler: TakesWeights, version: int) -> None:
        """Give a sampler the weights as they are now, under a version."""

    def close(self) -> None:
        """Nothing more will be asked of it: end the processes that it has, if any."""


class ValueLearner(Protocol):
    """The critic: what return it expects from each state, and its optimizer."""

    def values(self, batch: Batch) -> np.ndarray:
        """[E] the value of the state before every trained token."""

    def updates(self, batch: Batch) -> int:
        """How many updates it makes from a batch."""

    def update(
        self,
        batch: Batch,
        returns: np.ndarray,
        old_values: np.ndarray,
        seed: Sequence[int] = (0,),
        head_only: bool = False,
        place: int | None = None,
    ) -> Metrics:
        """All mini-batches and epochs of one step; ``head_only`` leaves a body that the policy shares as it is."""

    def watch(self, watcher: Watcher | None) -> None:
        """Call ``watcher`` after every micro-batch; None removes it."""

    def save(self, folder: Path) -> None:
        """Write weights and optimizer into a folder."""

    def load(self, folder: Path) -> None:
        """Take what `save` wrote."""
