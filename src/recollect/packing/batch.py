"""A training batch: sequences, and one axis that runs over all of their trained tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

import numpy as np

from recollect.packing.division import BatchPart
from recollect.packing.micro_batch import Packed, pack
from recollect.packing.samples import group_samples
from recollect.packing.tree import MIN_SHARE, build_tree, forest, split_to_budget
from recollect.types import Group, Image, Sample, Trajectory

T = TypeVar("T")


class MicroBatches(Sequence[Packed]):
    """Micro-batches, each laid out when it is asked for: a GPU computes one while the next is made."""

    def __init__(self, parts: Sequence[T], lay_out: Callable[[T], Packed]) -> None:
        self._made: list[Packed | None] = [None] * len(parts)
        self._make = lambda i: lay_out(parts[i])

    def __len__(self) -> int:
        return len(self._made)

    @overload
    def __getitem__(self, at: int) -> Packed: ...
    @overload
    def __getitem__(self, at: slice) -> list[Packed]: ...
    def __getitem__(self, at: int | slice) -> Packed | list[Packed]:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        made = self._made[at]
        if made is None:
            made = self._made[at] = self._make(range(len(self))[at])
        return made


@dataclass
class Batch:
    """Sequences as arrays. Arrays that end in _E run over all trained tokens, sequence after sequence."""

    sequences: list[np.ndarray]
    masks: list[np.ndarray]
    groups: np.ndarray  # [sequences]
    offsets: np.ndarray  # [sequences] first trained token of each
    trajectories_E: np.ndarray
    groups_E: np.ndarray
    sequences_E: np.ndarray
    roles_E: np.ndarray  # index into roles
    questions_E: np.ndarray  # the question that a token belongs to; 0: all of its task's
    sampler_logprobs_E: np.ndarray
    roles: list[str]
    temperature: float
    images: tuple[Image, ...] = ()  # those among the sequences' ids

    @staticmethod
    def of(samples: Sequence[Sample]) -> Batch:
        """The batch of some training sequences."""
        masks = [s.mask for s in samples]
        counts = [int(m.sum()) for m in masks]
        temperatures = {s.temperature for s in samples}
        assert len(temperatures) <= 1, "sequences of one batch are sampled at one temperature"
        logprobs = [s.logprobs[s.mask] for s in samples]
        played = [part for s, n in zip(samples, counts, strict=True) for part in s.roles or [("", n)] if part[1]]
        roles = sorted({role for role, _ in played})
        groups = np.array([s.group for s in samples], np.int64)
        return Batch(
            [s.ids for s in samples],
            masks,
            groups,
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)[:-1],
            np.repeat(np.array([s.trajectory for s in samples], np.int64), counts),
            np.repeat(groups, counts),
            np.repeat(np.arange(len(samples)), counts),
            np.repeat(np.array([roles.index(r) for r, _ in played], np.int64), [n for _, n in played]),
            np.repeat(np.array([s.question for s in samples], np.int64), counts),
            np.concatenate(logprobs) if logprobs else np.zeros(0, np.float32),
            roles,
            temperatures.pop() if temperatures else 1.0,
            tuple({image.digest: image for s in samples for image in s.images}.values()),
        )

    @property
    def entries(self) -> int:
        """How many tokens are trained on."""
        return len(self.trajectories_E)

    def pick(self, groups: Sequence[int]) -> tuple[list[int], np.ndarray]:
        """The sequences of some groups, and the places of their trained tokens."""
        rows = np.flatnonzero(np.isin(self.groups, list(groups))).tolist()
        places = [np.arange(self.offsets[r], self.offsets[r] + self.masks[r].sum()) for r in rows]
        return rows, np.concatenate(places) if places else np.zeros(0, np.int64)

    def updates(self, size: int, epochs: int) -> int:
        """How many mini-batches of ``size`` groups (0: all) so many epochs have."""
        groups = len(np.unique(self.groups))
        return epochs * -(-groups // (size or max(1, groups)))

    def mini_batches(
        self, size: int, epochs: int, seed: Sequence[int], shuffle: bool = True
    ) -> Iterator[tuple[list[int], np.ndarray]]:
        """The sequences and trained tokens of every update: all groups once per epoch, ``size`` at a time (0: all).

        One update on everything keeps the groups' order; otherwise each epoch has an order of its own, if they are to
        be shuffled.
        """
        groups = np.unique(self.groups)
        size = size or len(groups)
        for epoch in range(epochs):
            whole = epochs == 1 and size >= len(groups)
            order = groups if whole or not shuffle else np.random.default_rng([*seed, epoch]).permutation(groups)
            for start in range(0, len(order), size):
                members, entries = self.pick(order[start : start + size].tolist())
                if len(entries):
                    yield members, entries

    def packs(
        self,
        rows: Sequence[int],
        budget: int,
        min_share: int = MIN_SHARE,
        max_sequences: int | None = None,
        share: bool = True,
        part: BatchPart | None = None,
    ) -> Sequence[Packed]:
        """Micro-batches over some sequences, shared prefixes merged.

        Each has at most ``budget`` tokens and, if said, ``max_sequences`` sequences. With ``share`` False every
        sequence is a micro-batch of its own. ``part`` leaves only what one rank computes.
        """
        sequences = [self.sequences[r] for r in rows]
        masks = [self.masks[r] for r in rows]
        offsets = [int(self.offsets[r]) for r in rows]
        if not share:
            single = [build_tree([i], [sequence]) for i, sequence in enumerate(sequences)]
            mine = single if part is None else part.of(single, sequences)
            return MicroBatches(mine, lambda tree: pack([tree], masks, offsets))
        trees = forest(sequences, [int(self.groups[r]) for r in rows], min_share)
        if part is not None:
            trees = part.of(trees, sequences)
        if not trees:
            return []
        parts = split_to_budget(trees, sequences, budget, max_sequences)
        return MicroBatches(parts, lambda some: pack(some, masks, offsets))


def build_batch(groups: Sequence[Group]) -> tuple[Batch, list[Trajectory]]:
    """The batch of all valid trajectories, and those trajectories, indexed as in the batch."""
    samples, trajectories = group_samples(groups)
    return Batch.of(samples), trajectories


def fidelity(batch: Batch, trajectories: Sequence[Trajectory], version: int) -> tuple[int, int]:
    """(trained tokens, those of them that are the very ids the current policy sampled, in order, with logprobs)."""
    trained = [ids[mask] for ids, mask in zip(batch.sequences, batch.masks, strict=True)]
    ours = np.concatenate([np.zeros(0, np.int64), *trained])[np.argsort(batch.trajectories_E, kind="stable")]
    counts = np.bincount(batch.trajectories_E, minlength=len(trajectories))
    matched = 0
    for trajectory, count, end in zip(trajectories, counts, np.cumsum(counts), strict=True):
        turns = [t.completion for t in trajectory.turns if t.trainable]
        if not count or count != sum(len(c.ids) for c in turns):
            continue
        theirs = np.concatenate([np.asarray(c.ids, np.int64) for c in turns])
        current = np.repeat([c.version == version for c in turns], [len(c.ids) for c in turns])
        matched += int(((ours[end - count : end] == theirs) & current).sum())
    return len(ours), matched
