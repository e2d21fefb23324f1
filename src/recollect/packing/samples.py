"""From trajectories to training sequences: the prefix rule.

While a turn's prompt extends the previous prompt + completion, the turns are one sequence; where it does not (a memory
agent starts a fresh context), a new sequence opens. Only ids that a trainable role sampled are trained on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from recollect.types import Group, Sample, Trajectory, Turn


def trajectory_samples(trajectory: Trajectory, index: int, group: int, supervised: bool = False) -> list[Sample]:
    """The training sequences of one trajectory; sequences without a trainable token are left out.

    Reinforcement refuses turns without the sampler's log-probabilities; supervised training does not need them.
    """
    chains: list[tuple[np.ndarray, list[Turn]]] = []  # ids so far, and the turns that made them
    for turn in trajectory.turns:
        prompt, sampled = _ids(turn.prompt_ids), _ids(turn.completion.ids)
        if turn.trainable and not supervised and len(turn.completion.logprobs) != len(sampled):
            raise ValueError(
                f"role {turn.role} of {trajectory.task_id} is trained but has no log-probabilities for its ids: "
                "its policy is an outside one; bind the role as not trainable"
            )
        ids = np.concatenate([prompt, sampled])
        if chains and _extends(prompt, turn, *chains[-1]):
            chains[-1] = ids, [*chains[-1][1], turn]
        else:
            chains.append((ids, [turn]))
    made = [_sample(ids, turns, index, group, supervised) for ids, turns in chains]
    return [s for s in made if s.mask.any()]


def _ids(tokens: Sequence[int]) -> np.ndarray:
    return np.asarray(tokens, np.int64)


def _extends(prompt: np.ndarray, turn: Turn, before: np.ndarray, turns: list[Turn]) -> bool:
    """Whether a turn goes on from what is there."""
    same = (turn.temperature, turn.question) == (turns[0].temperature, turns[0].question)
    return same and len(prompt) >= len(before) and np.array_equal(prompt[: len(before)], before)


def _sample(ids: np.ndarray, turns: list[Turn], index: int, group: int, supervised: bool) -> Sample:
    """One sequence: the last turn's prompt and completion hold those of the turns before."""
    mask, logprobs = np.zeros(len(ids), bool), np.zeros(len(ids), np.float32)
    roles = []
    for turn in turns:
        if turn.trainable:
            start, done = len(turn.prompt_ids), turn.completion
            mask[start : start + len(done.ids)] = True
            if not supervised:
                logprobs[start : start + len(done.ids)] = done.logprobs
            roles.append((turn.role, len(done.ids)))
    first = turns[0]
    return Sample(ids, mask, logprobs, index, group, first.temperature, roles, first.question, turns[-1].images)


def group_samples(groups: Sequence[Group]) -> tuple[list[Sample], list[Trajectory]]:
    """All sequences of the valid trajectories, and those trajectories."""
    samples: list[Sample] = []
    trajectories: list[Trajectory] = []
    for g, group in enumerate(groups):
        for trajectory in group.trajectories:
            if trajectory.valid:
                samples += trajectory_samples(trajectory, len(trajectories), g)
                trajectories.append(trajectory)
    return samples, trajectories
