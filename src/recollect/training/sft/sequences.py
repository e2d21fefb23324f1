"""Training sequences from what users have: runs, files of conversations, folders of `recollect sft-data`."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from recollect.chat import Renderer
from recollect.chat.conversation import is_conversation, read_conversation, tokenise
from recollect.files.rows import expand
from recollect.packing.samples import trajectory_samples
from recollect.rewards.trajectory_total import reward_of
from recollect.trajectories.codec import decode, has_outcome
from recollect.trajectories.field_names import NotATrajectory
from recollect.trajectories.row_templates import load
from recollect.trajectories.stored_rows import STORED, first_row, is_trajectory, trajectory_rows
from recollect.trajectories.training_rows import conversation
from recollect.trajectories.unify import unify
from recollect.types import BadInput, Sample


@dataclass
class SequenceLimits:
    """Which sequences are taken, and how long they may be."""

    min_reward: float = 0.0  # of rows that have a reward
    max_length: int = 1 << 30  # tokens
    overlong: str = "cut"  # cut, drop or error


@dataclass
class LoadedSequences:
    """Sequences, and what happened on the way."""

    samples: list[Sample] = field(default_factory=list)
    rows: int = 0  # conversations and trajectories read
    low: int = 0  # left out: their reward is too small, or they failed
    cut: int = 0
    dropped: int = 0  # left out: too long, or nothing to train on is left of them

    def summary(self) -> str:
        """One line about it."""
        notes = [(self.low, "under the reward"), (self.cut, "cut"), (self.dropped, "left out as too long")]
        extra = "".join(f", {count} {what}" for count, what in notes if count)
        tokens, trained = sum(len(s.ids) for s in self.samples), sum(int(s.mask.sum()) for s in self.samples)
        return f"{len(self.samples)} sequences from {self.rows} rows{extra}: {tokens:,} tokens, {trained:,} trained on"


def read_samples(paths: Sequence[str], renderer: Renderer, limits: SequenceLimits) -> LoadedSequences:
    """All sequences of some runs, files and folders."""
    loaded = LoadedSequences()
    for name in expand(paths):
        path = Path(name).expanduser()
        for place, samples in _sequences(path, renderer, limits, loaded):
            for sample in samples:
                take(sample, place, limits, loaded)
    return loaded


def _sequences(
    path: Path, renderer: Renderer, limits: SequenceLimits, loaded: LoadedSequences
) -> Iterator[tuple[str, list[Sample]]]:
    """(place, sequences) of every row that counts."""
    for place, row in trajectory_rows([str(path)]):
        loaded.rows += 1
        if _too_low(row, place, limits.min_reward):
            loaded.low += 1
            continue
        yield place, row_samples(row, place, loaded.rows, renderer)


def row_samples(row: dict[str, Any], place: str, index: int, renderer: Renderer) -> list[Sample]:
    """The sequences of a row: a run's very ids, a conversation, or a unified trajectory written as one."""
    if isinstance(row.get("turns"), list):
        return trajectory_samples(decode(row, place)[1], index, 0, supervised=True)
    if is_trajectory(row) and not is_conversation(row):
        try:
            said = conversation(unify(row), load(None))
        except NotATrajectory as error:
            raise BadInput(f"{place}: {error}") from None
        if said is None:
            return []
        row = said
    script = read_conversation(row, place)
    try:
        ids, mask = tokenise(script, renderer)
    except BadInput as error:
        raise BadInput(f"{place}: {error}") from None
    nothing = np.zeros(len(ids), np.float32)
    return [Sample(np.array(ids, np.int64), np.array(mask, bool), nothing, index, 0, images=script.images)]


def can_be_said(row: dict[str, Any]) -> bool:
    """Whether a row can be imitated without the ids that were sampled."""
    return is_conversation(row) or is_trajectory(row)


def _too_low(row: dict[str, Any], place: str, least: float) -> bool:
    """Whether a row's reward keeps it out. A conversation needs none; that of a trajectory is calculated if need be."""
    if not has_outcome(row):
        return True
    if row.get("reward") is None and (least <= 0 or not ("reward" in row or is_trajectory(row))):
        return False
    return reward_of(row, place) < least


def take(sample: Sample, place: str, limits: SequenceLimits, loaded: LoadedSequences) -> bool:
    """Keep a sequence, cut to the limit if it has to be; False where it is left out."""
    length = len(sample.ids)
    if length > limits.max_length:
        if limits.overlong == "error":
            raise BadInput(f"{place}: {length} tokens, more than {limits.max_length}; sft.overlong=cut or drop")
        if limits.overlong == "drop":
            loaded.dropped += 1
            return False
        for name in ("ids", "mask", "logprobs"):
            setattr(sample, name, getattr(sample, name)[: limits.max_length])
        sample.roles = []  # imitation does not tell them apart
        if not sample.mask.any():
            loaded.dropped += 1
            return False
        loaded.cut += 1
    if not sample.mask.any():
        return False
    loaded.samples.append(sample)
    return True


def holds_conversations(paths: Sequence[str]) -> bool:
    """True when the first row of some files is something to imitate, not a task to attempt."""
    first = Path(expand(paths)[0]).expanduser()
    if first.is_dir() or first.name.endswith(STORED):
        return True
    row = first_row(first)
    return row is not None and can_be_said(row)


def shuffled_part(samples: Sequence[Sample], count: int, seed: int) -> list[Sample]:
    """At most ``count`` sequences (-1: all), the same ones every time."""
    if count < 0 or count >= len(samples):
        return list(samples)
    return random.Random(f"sft-val:{seed}").sample(list(samples), count)
