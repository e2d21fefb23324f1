"""What a reward is handed: the names it asks for, of one attempt or of many, and what is refused before a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from recollect.rewards.convention import (
    SPOKEN,
    convention_of,
    is_rollout_context,
    refuse_unclear_rows,
    row_answer,
    taken_by_name,
    takes_everything,
    wants_object,
)
from recollect.rewards.decorator import marks_of
from recollect.rewards.messages import final_response, messages_of
from recollect.types import BadInput, Reward, Task, Trajectory


def known_names(reward: Reward, task: Task, trajectory: Trajectory) -> dict[str, Any]:
    """Everything a reward may ask for by name, as its convention has it."""
    own = {"question": task.question, "context": task.context}
    accepted = {"golden_answers": list(task.answers)}
    if convention_of(reward) == "verl":
        return {**own, **task.fields, **_as_in_verl(task, trajectory)}
    if convention_of(reward) == "recollect":
        said = {"answer": trajectory.answer, "task": task, "trajectory": trajectory}
        return {**own, **task.fields, **accepted, **said}
    last = dict.fromkeys(SPOKEN, final_response(task, trajectory))
    as_object = wants_object(taken_by_name(reward).get("trajectory"))
    spoken = {"task": task, "trajectory": trajectory if as_object else messages_of(task, trajectory)}
    row = {k: v for k, v in task.fields.items() if k != "final_response"}
    return {**last, "id": task.id, **own, **accepted, **row_answer(task), **row, **spoken}


def _as_in_verl(task: Task, trajectory: Trajectory) -> dict[str, Any]:
    """The four arguments of a verl reward. What is accepted is as the row has it, else one answer or all of them."""
    row = task.fields.get("reward_model")
    accepted = task.answers[0] if len(task.answers) == 1 else list(task.answers)
    return {
        "data_source": task.source,
        "solution_str": trajectory.turns[-1].completion.text if trajectory.turns else "",
        "ground_truth": row.get("ground_truth", accepted) if isinstance(row, Mapping) else accepted,
        "extra_info": task.fields.get("extra_info") or {},
    }


def arguments(reward: Reward, task: Task, trajectory: Trajectory) -> dict[str, Any]:
    """What a reward asks for by name; with ``**kwargs`` it gets everything."""
    return _choose(reward, known_names(reward, task, trajectory))


def batch_arguments(reward: Reward, tasks: Sequence[Task], trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """The same for a reward of many trajectories: ``trajectories``, ``tasks``, and a list for every other name."""
    rows = [known_names(reward, task, trajectory) for task, trajectory in zip(tasks, trajectories, strict=True)]
    names = dict.fromkeys(name for row in rows for name in row if name not in ("task", "trajectory"))
    lists: dict[str, Any] = {name: [row.get(name) for row in rows] for name in names}
    return _choose(reward, {**lists, "tasks": list(tasks), "trajectories": list(trajectories)})


def check_names(reward: Reward, tasks: Sequence[Task], key: str = "agent.reward_name") -> None:
    """Refuse a reward that asks for a name that no task has, before anything runs. A sum is looked at part by part."""
    fields = {name: None for task in tasks for name in task.fields}
    answers = ("",) if any(len(task.answers) == 1 for task in tasks) else ()
    found = Task("", "", answers=answers, fields=fields)
    for part in parts_of(reward):
        refuse_unclear_rows(part, tasks, f"{key}: the reward")
        try:
            if marks_of(part).level == "trajectory":
                arguments(part, found, Trajectory("", 0))
            else:
                batch_arguments(part, [found], [Trajectory("", 0)])
        except ValueError as error:
            raise BadInput(f"{key}: {error}") from None


def parts_of(reward: Reward) -> Iterator[Callable[..., Any]]:
    """The functions of a sum, or the reward itself."""
    yield from [part for _, _, part in getattr(reward, "parts", ())] or [reward]


def _choose(reward: Reward, known: Mapping[str, Any]) -> dict[str, Any]:
    wanted = {n: p for n, p in taken_by_name(reward).items() if not is_rollout_context(p)}
    missing = [name for name, p in wanted.items() if name not in known and p.default is p.empty]
    if missing:
        raise ValueError(f"the reward wants {missing[0]}; there are {', '.join(known)}{_hint(missing[0])}")
    if takes_everything(reward):
        bound = getattr(reward, "keywords", None) or {}
        return {n: v for n, v in known.items() if n not in bound and (n in wanted or n != "prediction")}
    return {name: known[name] for name in wanted if name in known}


def _hint(name: str) -> str:
    """Why a name of AgentFly's is not there."""
    reasons = {
        "env": "an environment of AgentFly's does not exist here: read `trajectory`",
        "final_responses": "with `trajectories`, `final_response` is the list",
        "predictions": "with `trajectories`, `final_response` is the list",
    }
    return f" ({reasons[name]})" if name in reasons else ""
