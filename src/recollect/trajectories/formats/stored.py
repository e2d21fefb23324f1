"""Trajectories that a run of recollect has stored, with the ids and log-probabilities that were sampled."""

from __future__ import annotations

from recollect.registries import DOMAINS
from recollect.trajectories.field_names import action, rest
from recollect.trajectories.schema import Record


def fits(row: Record) -> bool:
    """Whether a record is one of a run's."""
    turns = row.get("turns")
    return isinstance(turns, list) and "sample" in row and all(isinstance(t, dict) and "prompt_ids" in t for t in turns)


def read(row: Record) -> Record:
    """A run's trajectory; without tools, every turn but the last is an action of its role."""
    calls, turns = row.get("actions") or [], row["turns"]
    actions = [action(i, a["tool"] or "unknown", a["input"], a["output"]) for i, a in enumerate(calls, 1)]
    if not calls:
        actions = [action(i, str(t["role"]), t["text"]) for i, t in enumerate(turns[:-1], 1)]
    outcomes = {str(i): {"outcome": a["outcome"]} for i, a in enumerate(calls) if a.get("outcome", "ok") != "ok"}
    used = ("question", "answer", "reward", "success", "actions", "sample")
    more = {"sample": row["sample"], **({"action_fields": outcomes} if outcomes else {})}
    return {
        "task_id": f"{row['task_id']}#{row['sample']}",
        "domain": row["source"] if row.get("source") in DOMAINS else None,
        "question": row["question"],
        "actions": actions,
        "final_answer": row["answer"] if row["answer"] != "" else None,
        "success": _succeeded(row),
        "reward": row["reward"],
        "metadata": rest(row, used, more),
    }


def _succeeded(row: Record) -> bool | None:
    """What the domain's check said; without one a failure or no reward is none, and the full reward is one."""
    if row.get("success") is not None:
        return bool(row["success"])
    if row.get("failure") is not None:
        return False
    reward = row["reward"]
    return None if reward is None or 0 < reward < 1 or not row.get("answers") else reward >= 1
