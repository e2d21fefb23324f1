"""Stored trajectories as the carriers that training knows."""

from __future__ import annotations

from typing import Any

from recollect.rewards.trajectory_total import reward_of
from recollect.trajectories.stored_rows import turns_of
from recollect.types import BadInput, Completion, Score, Trajectory, Turn


def as_trajectory(row: dict[str, Any], place: str) -> Trajectory:
    """An attempt as it was, with the ids that were sampled and, where they were kept, their log-probabilities."""
    try:
        turns = [_turn(turn) for turn in turns_of(row) or ()]
        made = Trajectory(str(row["task_id"]), int(row.get("sample") or 0), turns)
        parts = dict(row.get("parts") or {})
    except KeyError as error:
        raise BadInput(f"{place}: a trajectory as a run stores it lacks {error.args[0]}") from None
    except (TypeError, ValueError) as error:
        raise BadInput(f"{place}: not a trajectory as a run stores it: {error}") from None
    made.answer, made.stop = str(row.get("answer") or row.get("final_answer") or ""), str(row.get("stop") or "")
    if row.get("reward") is not None and not row.get("failure"):
        made.score = Score(reward_of(row, place), parts)
    return made


def _turn(row: dict[str, Any]) -> Turn:
    ids, logprobs = tuple(row["ids"]), tuple(row.get("logprobs") or ())
    completion = Completion(ids, logprobs, row.get("stop", "stop"), int(row.get("version", -1)), row.get("text", ""))
    trainable, temperature = bool(row.get("is_trainable", row.get("trainable", True))), row.get("temperature", 1.0)
    question = int(row.get("question", row.get("is_final")) or 0)
    return Turn(str(row["role"]), tuple(row["prompt_ids"]), completion, trainable, float(temperature), question)


def is_sampled(trajectory: Trajectory) -> bool:
    """True when every trained token has the log-probability that it was sampled with."""
    trained = [t.completion for t in trajectory.turns if t.trainable]
    return any(c.ids for c in trained) and all(len(c.ids) == len(c.logprobs) for c in trained)
