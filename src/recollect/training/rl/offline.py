"""Reinforcement without sampling: one epoch over stored trajectories (`data.offline_files`).

Attempts at one task are a group, as in sampling; tasks that were attempted once are compared with the others of their
source in the batch. The ratio of the loss is taken to the log-probabilities that the attempts were sampled with.
Trajectories that have none cannot be reinforced and are imitated first, those that reached `sft.min_reward`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from recollect.chat import Renderer
from recollect.config import Config
from recollect.images.image_ids import FIRST
from recollect.rewards.trajectory_total import reward_of
from recollect.training.rl.gather import Gathered
from recollect.training.sft.batches import StoredBatches
from recollect.training.sft.sequences import can_be_said, row_samples
from recollect.trajectories.codec import decode, has_outcome, turns_of
from recollect.trajectories.stored_rows import is_trajectory, trajectory_rows
from recollect.types import BadInput, Group, Sample, Task, Trajectory


@dataclass
class Stored:
    """What was read."""

    groups: list[Group] = field(default_factory=list)  # attempts that can be reinforced, by task
    imitated: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # rows for SFT, with their places
    unused: int = 0  # neither: failed, without reward, or of too little reward


def read_offline(cfg: Config, say: Callable[[str], None]) -> Stored:
    """The stored trajectories that a run learns from; it says which of them can only be imitated."""
    stored = Stored()
    groups: dict[tuple[str, str], Group] = {}
    for place, row in trajectory_rows(cfg.data.offline_files):
        known = row.get("reward") is not None or is_trajectory(row)  # or can be calculated
        if not known or not has_outcome(row) or row.get("failure"):
            stored.unused += 1
            continue
        task, attempt = decode(row, place) if turns_of(row) is not None else (None, None)
        if task is not None and attempt is not None and is_sampled(attempt):
            key = (place.rpartition(",")[0], task.id)
            groups.setdefault(key, Group(task, [])).trajectories.append(attempt)
        elif reward_of(row, place) >= cfg.sft.min_reward and (attempt is not None or can_be_said(row)):
            stored.imitated.append((place, row))
        else:
            stored.unused += 1
    least = cfg.data.min_reward
    stored.groups = [g for g in groups.values() if least is None or max(t.reward for t in g.trajectories) >= least]
    attempts = sum(len(g.trajectories) for g in stored.groups)
    say(f"offline: {attempts} attempts at {len(stored.groups)} tasks carry sampled ids and log-probabilities")
    if stored.imitated:
        say(f"offline: {len(stored.imitated)} trajectories carry none; they are used for SFT only")
    if stored.unused:
        say(f"offline: {stored.unused} trajectories are not used: failed, without reward, or of too little")
    if not stored.groups and not stored.imitated:
        raise BadInput("nothing to learn from in data.offline_files; see data.min_reward and sft.min_reward")
    if len({turn.temperature for g in stored.groups for t in g.trajectories for turn in t.turns}) > 1:
        raise BadInput("data.offline_files were sampled at several temperatures; give those of one")
    _plan_imitation(cfg, stored)
    return stored


def is_sampled(trajectory: Trajectory) -> bool:
    """True when every trained token has the log-probability that it was sampled with."""
    trained = [t.completion for t in trajectory.turns if t.trainable]
    return any(c.ids for c in trained) and all(len(c.ids) == len(c.logprobs) for c in trained)


def _plan_imitation(cfg: Config, stored: Stored) -> None:
    """One epoch of SFT over what can only be imitated, unless the settings say how many updates."""
    if not stored.imitated:
        cfg.sft.steps = 0
    elif cfg.sft.steps == 0:
        cfg.sft.steps = -(-len(stored.imitated) // min(cfg.sft.batch_size, len(stored.imitated)))


def imitation(cfg: Config, stored: Stored, renderer: Renderer) -> StoredBatches:
    """The batches of SFT."""
    samples: list[Sample] = []
    for i, (place, row) in enumerate(stored.imitated):
        samples += row_samples(row, place, i, renderer)
    if stored.imitated and not samples:
        raise BadInput(f"{stored.imitated[0][0]}: no turn of these trajectories can be learned from: none is trainable")
    return StoredBatches(samples, cfg.sft.batch_size, cfg.trainer.seed)


def check_ids(stored: Stored, vocabulary: int, sees: bool = True) -> None:
    """Refuse ids of another tokenizer, as far as they can be told, and images where the model reads text alone."""
    if not sees and any(turn.images for g in stored.groups for t in g.trajectories for turn in t.turns):
        raise BadInput("data.offline_files hold images, and the model reads text alone; name one that sees")
    turns = (turn for g in stored.groups for t in g.trajectories for turn in t.turns)
    ids = (i for t in turns for i in (*t.prompt_ids, *t.completion.ids))
    largest = max((i for i in ids if i < FIRST), default=0)
    if largest >= vocabulary:
        raise BadInput(f"data.offline_files hold the id {largest}, and the model knows {vocabulary}: another tokenizer")


class OfflineStream:
    """Stored groups, step by step: the tasks of a step, and what stands in for sampling them."""

    def __init__(self, cfg: Config, stored: Stored) -> None:
        self.cfg, self.groups = cfg, stored.groups
        self.rows = [g.task for g in stored.groups]

    def steps(self) -> int:
        """One pass over everything."""
        return -(-len(self.groups) // self.cfg.data.train_batch_size)

    def take(self, step: int) -> list[Task]:
        """The tasks of a step."""
        return [g.task for g in self._batch(step)]

    def gather(self, step: int, position: int) -> Gathered:
        """The groups of a step, as if they had just been sampled."""
        groups = self._batch(position)
        return Gathered(compared(groups), groups, None, 1)

    def _batch(self, step: int) -> list[Group]:
        size = self.cfg.data.train_batch_size
        return self.groups[step * size : (step + 1) * size]


def compared(groups: list[Group]) -> list[Group]:
    """Groups in which something can be compared: tasks of one attempt join those of their source."""
    alone: dict[str, list[Trajectory]] = {}
    for group in groups:
        if len(group.trajectories) == 1:
            alone.setdefault(group.task.source, []).extend(group.trajectories)
    together = [Group(Task(f"all of {source}", ""), attempts) for source, attempts in alone.items()]
    return [*(g for g in groups if len(g.trajectories) > 1), *together]
