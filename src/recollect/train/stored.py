"""Stored trajectories as the carriers that training knows."""

from __future__ import annotations

from typing import Any

from recollect.data.seeds import turns_of
from recollect.types import Completion, Score, Trajectory, Turn


def as_trajectory(row: dict[str, Any]) -> Trajectory:
    """An attempt as it was, with the ids that were sampled and, where they were kept, their log-probabilities."""
    turns = [_turn(turn) for turn in turns_of(row) or ()]
    made = Trajectory(str(row["task_id"]), int(row.get("sample") or 0), turns)
    made.answer, made.stop = str(row.get("answer") or row.get("final_answer") or ""), str(row.get("stop") or "")
    if row.get("reward") is not None and not row.get("failure"):
        made.score = Score(float(row["reward"]), dict(row.get("parts") or {}))
    return made


def _turn(row: dict[str, Any]) -> Turn:
    ids, logprobs = tuple(row["ids"]), tuple(row.get("logprobs") or ())
    completion = Completion(ids, logprobs, row.get("stop", "stop"), int(row.get("version", -1)), row.get("text", ""))
    trainable, temperature = bool(row.get("trainable", True)), float(row.get("temperature", 1.0))
    return Turn(str(row["role"]), tuple(row["prompt_ids"]), completion, trainable, temperature)


def is_sampled(trajectory: Trajectory) -> bool:
    """True when every trained token has the log-probability that it was sampled with."""
    trained = [t.completion for t in trajectory.turns if t.trainable]
    return any(c.ids for c in trained) and all(len(c.ids) == len(c.logprobs) for c in trained)
