"""The learner of several ranks as the trainer has it: it holds no weights, and asks the ranks for everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from recollect.config import Config, Optim
from recollect.dist.ranks import RankLost
from recollect.models.device import pick_device, pick_dtype
from recollect.packing.batch import Batch
from recollect.packing.micro_batch import Packed
from recollect.samplers.sampler import TakesWeights
from recollect.training.learner.learner import Metrics, ModelFacts, PolicyTargets, ReferencePolicy, Watcher
from recollect.training.learner.ranks.journal import RankCall
from recollect.training.learner.ranks.learner_ranks import LearnerRanks, emptied
from recollect.training.learner.ranks.rank_settings import Handle
from recollect.types import Sample


class RanksObject:
    """An object that every rank has, by its number."""

    def __init__(self, ranks: LearnerRanks, number: int) -> None:
        self.ranks, self.number = ranks, number
        self._watcher: Watcher | None = None

    def ask(self, name: str, changes: bool = False, **given: Any) -> Any:
        """Call a method of it in every rank."""
        return self.ranks.do(RankCall(self.number, name, given), changes, self._watcher)

    def make(self, name: str, **given: Any) -> int:
        """Call a method that makes another object; returns that one's number."""
        number = self.ranks.number()
        self.ranks.do(RankCall(self.number, name, given, number), changes=True)
        return number

    def watch(self, watcher: Watcher | None) -> None:
        """Call ``watcher`` after every micro-batch of the first rank."""
        self._watcher = watcher


class RanksPolicy(RanksObject):
    """A policy that the ranks hold."""

    def logprobs(self, batch: Batch) -> np.ndarray:
        """[E] the log-probability of every trained token."""
        found: np.ndarray = self.ask("logprobs", batch=batch)
        return found

    def load_weights(self, folder: Path) -> None:
        """Take the weights of a checkpoint."""
        self.ask("load_weights", changes=True, folder=folder)


class RanksLearner(RanksPolicy):
    """The policy that the ranks train."""

    def __init__(self, cfg: Config, ranks: LearnerRanks, number: int = 0) -> None:
        super().__init__(ranks, number)
        self.cfg = cfg

    @property
    def facts(self) -> ModelFacts:
        """What the model is."""
        found: ModelFacts = self.ranks.ranks.about
        place = self.ranks.place
        spread = f"{place.shards} of them share the weights" if place.shards > 1 else "each has all weights"
        nodes = self.ranks.nodes
        where = f"this machine's {place.device.upper()}s"
        if nodes is not None:
            where = f"the {place.device.upper()}s of {len(nodes.machines)} nodes"
        note = f"{place.size} ranks train on {where}; {spread}"
        return replace(found, note="; ".join(part for part in (found.note, note) if part))

    # ---- RL ----

    def divergence(self, batch: Batch, reference: ReferencePolicy) -> np.ndarray:
        """[E] the exact divergence from a reference of this learner."""
        found: np.ndarray = self.ask("divergence", batch=batch, reference=_handle(reference))
        return found

    def update(
        self,
        batch: Batch,
        targets: PolicyTargets,
        reference: ReferencePolicy | None = None,
        seed: Sequence[int] = (0,),
        place: int | None = None,
    ) -> Metrics:
        """All mini-batches and epochs of one RL step."""
        other = None if reference is None else _handle(reference)
        given = {"batch": batch, "targets": targets, "reference": other, "seed": tuple(seed), "place": place}
        made: Metrics = self.ask("update", changes=True, **given)
        return made

    def keep_reference(self) -> RanksPolicy:
        """A frozen copy of the policy as it is now."""
        return RanksPolicy(self.ranks, self.make("keep_frozen"))

    def make_critic(self, updates: int) -> RanksCritic:
        """The critic that the configuration asks for."""
        return RanksCritic(self.ranks, self.make("make_critic", updates=updates))

    def short_of_memory(self) -> bool:
        """True when an update may need the memory that sampling holds."""
        return True

    # ---- SFT ----

    def imitate(self, item: Sequence[Sample] | Packed) -> Metrics:
        """One supervised update."""
        given = item if isinstance(item, Packed) else list(item)
        made: Metrics = self.ask("imitate", changes=True, item=given)
        return made

    def imitation_scores(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """[E] −log p of every trained token, and whether it would have been the first choice."""
        found: tuple[np.ndarray, np.ndarray] = self.ask("imitation_scores", batch=batch)
        return found

    def with_optimizer(self, optim: Optim, updates: int) -> RanksLearner:
        """A learner of the same weights with an optimizer and a schedule of its own."""
        return RanksLearner(self.cfg, self.ranks, self.make("with_optimizer", optim=optim, updates=updates))

    def set_schedule(self, updates: int) -> None:
        """Set the number of updates of the learning-rate schedule."""
        self.ask("set_schedule", changes=True, updates=updates)

    # ---- weights ----

    def save(self, folder: Path, bases: Path) -> None:
        """Write weights and optimizer into a folder."""
        call = RankCall(self.number, "save", {"folder": folder.absolute(), "bases": bases.absolute()})
        self.ranks.do(call, passed=self._watcher, again=lambda: emptied(folder))

    def keep(self, folder: Path) -> None:
        """A checkpoint that was saved is in its place: lost ranks start again from there."""
        self.ranks.journal.keep(self.number, folder.absolute())

    def load(self, folder: Path) -> None:
        """Take what `save` wrote."""
        self.ask("load", changes=True, folder=folder.absolute())

    def export(self, folder: Path, dtype: str) -> None:
        """Write the plain model, adapters merged."""
        self.ask("export", folder=folder.absolute(), dtype=dtype)

    def sync(self, sampler: TakesWeights, version: int) -> None:
        """Give a sampler the weights as they are now, in the type that it computes in."""
        kind = pick_dtype(self.cfg.actor_rollout_ref.rollout.dtype, pick_device(self.cfg.trainer.device))
        call, lost = RankCall(self.number, "weights", {"dtype": str(kind).removeprefix("torch.")}), 0
        while True:
            try:
                sampler.take_weights(version, self.ranks.stream(call))
                return
            except RankLost as error:
                lost += 1
                self.ranks.restart(error, lost)

    def close(self) -> None:
        """End the ranks."""
        self.ranks.close()


class RanksCritic(RanksObject):
    """The critic that the ranks train."""

    def values(self, batch: Batch) -> np.ndarray:
        """[E] the value of the state before every trained token."""
        found: np.ndarray = self.ask("values", batch=batch)
        return found

    def updates(self, batch: Batch) -> int:
        """How many updates it makes from a batch."""
        found: int = self.ask("updates", batch=batch)
        return found

    def update(
        self,
        batch: Batch,
        returns: np.ndarray,
        old_values: np.ndarray,
        seed: Sequence[int] = (0,),
        head_only: bool = False,
        place: int | None = None,
    ) -> Metrics:
        """All mini-batches and epochs of one step."""
        given = {"batch": batch, "returns": returns, "old_values": old_values, "seed": tuple(seed)}
        made: Metrics = self.ask("update", changes=True, **given, head_only=head_only, place=place)
        return made

    def save(self, folder: Path) -> None:
        """Write weights and optimizer into a folder."""
        call = RankCall(self.number, "save", {"folder": folder.absolute()})
        self.ranks.do(call, passed=self._watcher, again=lambda: emptied(folder))

    def load(self, folder: Path) -> None:
        """Take what `save` wrote."""
        self.ask("load", changes=True, folder=folder.absolute())


def _handle(reference: ReferencePolicy) -> Handle:
    """What a reference is called in the ranks, whose it has to be."""
    assert isinstance(reference, RanksPolicy), "a learner compares itself with a reference that it has made"
    return Handle(reference.number)
