"""Trajectories that a run of recollect has stored, with the ids and log-probabilities that were sampled."""

from __future__ import annotations

from recollect.registries import DOMAINS
from recollect.trajectories.codec import decode
from recollect.trajectories.field_names import UNKNOWN, NotATrajectory, action, rest
from recollect.trajectories.schema import Record
from recollect.types import Action, BadInput, Task, Trajectory


def fits(row: Record) -> bool:
    """Whether a record is one of a run's."""
    turns = row.get("turns")
    return isinstance(turns, list) and "sample" in row and all(isinstance(t, dict) and "prompt_ids" in t for t in turns)


def read(row: Record) -> Record:
    """A run's trajectory; without tools, every turn but the last is an action of its role."""
    try:
        task, made = decode(row, "the record")
    except BadInput as error:
        raise NotATrajectory(str(error)) from None
    actions = [action(i, a.tool or UNKNOWN, a.input, a.output) for i, a in enumerate(made.actions, 1)]
    if not actions:
        actions = [action(i, t.role or UNKNOWN, t.completion.text) for i, t in enumerate(made.turns[:-1], 1)]
    fields = {str(i): kept for i, a in enumerate(made.actions) if (kept := _unusual(a))}
    used = ("question", "answer", "reward", "success", "actions", "sample")
    more = {"sample": made.sample, **({"action_fields": fields} if fields else {})}
    return {
        "task_id": f"{made.task_id}#{made.sample}",
        "domain": task.source if task.source in DOMAINS else None,
        "question": task.question,
        "actions": actions,
        "final_answer": made.answer or None,
        "success": _succeeded(task, made),
        "reward": row.get("reward"),
        "metadata": rest(row, used, more),
    }


def _unusual(done: Action) -> Record:
    """What a unified action has no field for."""
    return ({"outcome": done.outcome} if done.outcome != "ok" else {}) | ({"turn": done.turn} if done.turn else {})


def _succeeded(task: Task, made: Trajectory) -> bool | None:
    """The verdict of the domain's check; without one, False for a failure, else whether the reward is 1 or 0."""
    if made.success is not None:
        return bool(made.success)
    if made.failure is not None:
        return False
    reward = None if made.score is None else made.score.total
    return None if reward is None or 0 < reward < 1 or not task.answers else reward >= 1
