"""Stored trajectories: ``encode`` makes a row of an attempt at a task, ``decode`` reads it back.

Everything in the carriers is stored but ``Trajectory.world``, ``Completion.message`` (an endpoint's own form of a
reply), and what a task has besides its questions and answers. Log-probabilities keep ``DECIMALS`` decimals. What is not
finite is stored as null and read back as NaN. ``decode`` also reads the rows of earlier versions, which lack some
fields, and rows in unified form, which keep most of them in their metadata.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from recollect.trajectories.stored_images import file_name, images_of, placed, read_images, with_images
from recollect.types import Action, BadInput, Completion, Failure, Image, Score, Task, Trajectory, Turn

Row = dict[str, Any]
DECIMALS = 6  # of a stored log-probability
ANSWERING = "qa"  # the role whose turns are final responses
SPECIAL = ("question_answers", "role_rewards", "question_rewards", "memory_events")  # of some attempts only


def encode(task: Task, made: Trajectory, questions: Sequence[Row] = (), exact: bool = False) -> Row:
    """An attempt as a plain object, ids and log-probabilities included; ``questions`` are those of the task.

    ``exact`` leaves log-probabilities as they are.
    """
    score = made.score
    special = {
        "question_answers": made.answers,
        "role_rewards": score.roles if score else {},
        "question_rewards": list(score.questions) if score else [],
        "memory_events": made.events,
    }
    return {
        "task_id": made.task_id,
        "sample": made.sample,
        "source": task.source,
        "question": task.question,
        "answers": list(task.answers),
        "answer": made.answer,
        **({"asked": list(questions)} if made.answers and questions else {}),
        "stop": made.stop,
        "reward": score.total if score else None,
        "parts": score.parts if score else {},
        "failure": {"kind": made.failure.kind, "message": made.failure.message} if made.failure else None,
        "notes": made.notes,
        **{name: value for name, value in special.items() if value},
        "tool_calls": made.tool_calls,
        "tool_reward": made.tool_reward,
        "actions": [_action_row(action) for action in made.actions],
        "success": made.success,
        **({"images": {i.digest: file_name(i) for i in images}} if (images := images_of(made)) else {}),
        "turns": [_turn_row(turn, exact) for turn in made.turns],
    }


def _action_row(action: Action) -> Row:
    return {
        "tool": action.tool,
        "input": action.input,
        "output": action.output,
        "outcome": action.outcome,
        "turn": action.turn,
    }


def _turn_row(turn: Turn, exact: bool) -> Row:
    """A turn; ``is_final`` is the number of the question that it answers, 0 in turns that answer none."""
    done = turn.completion
    prompt, images = placed(turn.prompt_ids)
    return {
        "role": turn.role,
        "question": turn.question,
        "is_final": turn.question or int(turn.role == ANSWERING),
        "prompt_ids": prompt,
        **({"images": images} if images else {}),
        "ids": list(done.ids),
        "logprobs": list(done.logprobs) if exact else [round(p, DECIMALS) for p in done.logprobs],
        "text": done.text,
        "stop": done.stop,
        "version": done.version,
        "trainable": turn.trainable,
        "is_trainable": turn.trainable,
        "temperature": turn.temperature,
    }


def decode(row: Mapping[str, Any], place: str) -> tuple[Task, Trajectory]:
    """The attempt of a row, and what the row says about its task; ``place`` is for messages."""
    flat = _flat(row)
    try:
        return _task(flat), _trajectory(flat, place)
    except KeyError as error:
        raise BadInput(f"{place}: a trajectory as a run stores it lacks {error.args[0]}") from None
    except BadInput:
        raise
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise BadInput(f"{place}: not a trajectory as a run stores it: {error}") from None


def _flat(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row with the names that a run gives its fields; one in unified form keeps most of them in its metadata."""
    about = row.get("metadata")
    if isinstance(row.get("turns"), list) or not isinstance(about, Mapping):
        return row
    own = {name: value for name, value in row.items() if value is not None}
    return {**about, **own, "task_id": task_id_of(row), "source": source_of(row), "answer": row.get("final_answer")}


def _task(row: Mapping[str, Any]) -> Task:
    asked = row.get("asked")
    fields = {"questions": [_question(q) for q in asked]} if isinstance(asked, list) else {}
    answers = tuple(map(str, row.get("answers") or ()))
    return Task(task_id_of(row), str(row.get("question", "")), None, answers, source_of(row), fields)


def _question(asked: Mapping[str, Any]) -> Row:
    """A question as a data row has it."""
    given = {"question": asked["question"], "answer": asked["answers"], "position": asked.get("position")}
    return {**given, **({"data_source": asked["source"]} if asked.get("source") else {})}


def _trajectory(row: Mapping[str, Any], place: str) -> Trajectory:
    reward, failure, about = stored_reward(row, place), row.get("failure"), row.get("action_fields") or {}
    images = read_images(row, place)
    actions = [_action(action, about.get(str(i)) or {}) for i, action in enumerate(row.get("actions") or ())]
    return Trajectory(
        str(row["task_id"]),
        int(row.get("sample") or 0),
        [_turn(turn, images, place) for turn in turns_of(row) or ()],
        str(row.get("answer") or ""),
        str(row.get("stop") or ""),
        None if reward is None else _score(row, reward),
        Failure(failure["kind"], str(failure["message"])) if failure else None,
        [str(note) for note in row.get("notes") or ()],
        {str(name): int(count) for name, count in (row.get("tool_calls") or {}).items()},
        float(row.get("tool_reward") or 0.0),
        actions,
        row.get("success"),
        None,
        [str(answer) for answer in row.get("question_answers") or ()],
        [dict(event) for event in row.get("memory_events") or ()],
    )


def _score(row: Mapping[str, Any], total: float) -> Score:
    parts, roles = row.get("parts") or {}, row.get("role_rewards") or {}
    questions = tuple(map(_number, row.get("question_rewards") or ()))
    return Score(total, {k: _number(v) for k, v in parts.items()}, {k: _number(v) for k, v in roles.items()}, questions)


def _action(row: Mapping[str, Any], more: Mapping[str, Any]) -> Action:
    outcome, turn = row.get("outcome") or more.get("outcome") or "ok", row.get("turn") or more.get("turn") or 0
    return Action(str(row["tool"]), row["input"], str(row["output"]), str(outcome), int(turn))


def _turn(row: Mapping[str, Any], images: Mapping[str, Image], place: str) -> Turn:
    """A turn. The first versions named its question ``is_final`` and did not say ``is_trainable``."""
    logprobs = tuple(map(_number, row.get("logprobs") or ()))
    stop, version = row.get("stop", "stop"), int(row.get("version", -1))
    done = Completion(_ids(row["ids"]), logprobs, stop, version, row.get("text", ""))
    question = int(row.get("question", row.get("is_final")) or 0)
    trainable = bool(row.get("is_trainable", row.get("trainable", True)))
    prompt = with_images(_ids(row["prompt_ids"]), row.get("images"), images, place)
    there = tuple(images[str(about["image"])] for about in row.get("images") or ())
    return Turn(str(row["role"]), prompt, done, trainable, float(row.get("temperature", 1)), question, there)


def _ids(given: Any) -> tuple[int, ...]:
    if min(array("q", given), default=0) < 0:
        raise ValueError("a token id is negative")
    return tuple(given)


def _number(given: Any) -> float:
    return math.nan if given is None else float(given)


def stored_reward(row: Mapping[str, Any], place: str) -> float | None:
    """The reward that a row records; None where it records none."""
    given = row.get("reward")
    if given is None:
        return None
    try:
        reward = float(given)
    except (TypeError, ValueError):
        reward = math.nan
    if not math.isfinite(reward):
        raise BadInput(f"{place}: reward has to be a number or null, not {str(given)[:60]!r}")
    return reward


def turns_of(row: Mapping[str, Any]) -> list[Row] | None:
    """The turns of a stored attempt, with ids; unified ones keep them in their metadata. None: it has none."""
    about = row.get("metadata")
    for turns in (row.get("turns"), about.get("turns") if isinstance(about, Mapping) else None):
        if isinstance(turns, list) and all(isinstance(t, Mapping) and "ids" in t for t in turns):
            return turns
    return None


def has_outcome(row: Mapping[str, Any]) -> bool:
    """False for an attempt of recollect's own without a reward: it has failed on the way."""
    return row.get("reward") is not None or turns_of(row) is None


def task_id_of(row: Mapping[str, Any]) -> str:
    """The task that an attempt is one at; unified ones keep it in their metadata, beside an id of their own."""
    about = row.get("metadata")
    kept = about.get("task_id") if isinstance(about, Mapping) else None
    return str(kept or row.get("task_id", ""))


def source_of(row: Mapping[str, Any]) -> str:
    """The data source of an attempt's task; unified ones name a domain instead."""
    return str(row.get("domain") or row.get("source") or "default")
