"""From trajectories to training sequences: the prefix rule.

While a turn's prompt extends the previous prompt + completion, the turns are one sequence; where it does not (a memory
agent starts a fresh context), a new sequence opens. Only ids that a trainable role sampled are trained on.
"""

from __future__ import annotations

from collections.abc import Sequence

from recollect.types import Group, Sample, Trajectory


def trajectory_samples(trajectory: Trajectory, index: int, group: int, supervised: bool = False) -> list[Sample]:
    """The training sequences of one trajectory; sequences without a trainable token are left out.

    Reinforcement refuses turns without the sampler's log-probabilities; supervised training does not need them.
    """
    samples: list[Sample] = []
    current: Sample | None = None
    for turn in trajectory.turns:
        prompt, done = list(turn.prompt_ids), turn.completion
        logprobs = list(done.logprobs) if turn.trainable and not supervised else [0.0] * len(done.ids)
        if len(done.ids) != len(logprobs):
            raise ValueError(
                f"role {turn.role} of {trajectory.task_id} is trained but has no log-probabilities for its ids: "
                "its policy is an outside one; bind the role as not trainable"
            )
        extends = (
            current is not None
            and len(prompt) >= len(current.ids)
            and current.temperature == turn.temperature
            and current.question == turn.question
            and prompt[: len(current.ids)] == current.ids
        )
        if not extends or current is None:
            current = Sample([], [], [], index, group, turn.temperature, question=turn.question)
            samples.append(current)
        seen = prompt[len(current.ids) :]
        current.ids += seen + list(done.ids)
        current.mask += [False] * len(seen) + [turn.trainable] * len(done.ids)
        current.logprobs += [0.0] * len(seen) + logprobs
        current.roles += [""] * len(seen) + [turn.role] * len(done.ids)
    return [s for s in samples if any(s.mask)]


def group_samples(groups: Sequence[Group]) -> tuple[list[Sample], list[Trajectory], list[int]]:
    """All sequences of the valid trajectories, those trajectories, and the group of each."""
    samples: list[Sample] = []
    trajectories: list[Trajectory] = []
    group_of: list[int] = []
    for g, group in enumerate(groups):
        for trajectory in group.trajectories:
            if trajectory.valid:
                samples += trajectory_samples(trajectory, len(trajectories), g)
                trajectories.append(trajectory)
                group_of.append(g)
    return samples, trajectories, group_of
