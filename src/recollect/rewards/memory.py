"""The reward of agents that read once and answer several questions: each question's own, and the memory's.

A QA turn earns its question's answer score, and what form and look-ups add. A memory turn earns the mean answer score
of the document's questions, and what its own tool calls add.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.config import Config
from recollect.data.questions import questions_of
from recollect.memory.desk import usefulness
from recollect.plugins import find
from recollect.rewards.call import call
from recollect.rewards.registry import REWARDS, reward
from recollect.rewards.trajectory import format_reward
from recollect.types import Reward, Score, Task, Trajectory

KEY = "memory.scores"


@reward(inline=True, gold=True)
async def memory_qa(task: Task, trajectory: Trajectory, config: Config) -> Score:
    """The mean answer score of a task's questions; each question's turns, and the memory's, have a reward of their own.

    memory.scores says how answers are scored, by data source; memory.format_weight and memory.tool_weight what form
    and useful tool calls add.
    """
    limits, questions = config.memory, questions_of(task)
    scores = by_source(limits.scores)
    said = trajectory.answers or [trajectory.answer]
    answered, formed, looked_up = [], [], []
    for i, (question, answer) in enumerate(zip(questions, said, strict=True), 1):
        own = part_of(trajectory, i, answer)
        judge = scores.get(question.source, scores[""])
        answered.append((await call(judge, question.task(task), own, plain=True)).total)
        formed.append(format_reward(answer, own))
        looked_up.append(usefulness(own.events))
    noted = usefulness([e for e in trajectory.events if e["question"] == 0])
    outcome = _mean(answered)
    each = [
        a + limits.format_weight * f + limits.tool_weight * u
        for a, f, u in zip(answered, formed, looked_up, strict=True)
    ]
    memory = outcome + limits.tool_weight * noted
    parts = {"answer": outcome, "format": _mean(formed), "tools_qa": _mean(looked_up), "tools_memory": noted}
    return Score(outcome, parts, {"memory": memory, "qa": _mean(each)}, (memory, *each))


def by_source(named: Sequence[str]) -> Mapping[str, Reward]:
    """Data source → how its answers are scored; under "" for all that are not named."""
    pairs = [name.partition("@") for name in named]
    return {source: find(name, REWARDS, KEY) for name, _, source in pairs}


def part_of(trajectory: Trajectory, question: int, answer: str) -> Trajectory:
    """A question's share of a trajectory, as one of its own."""
    turns = [t for t in trajectory.turns if t.question == question]
    events: list[dict[str, Any]] = [e for e in trajectory.events if e["question"] == question]
    return Trajectory(trajectory.task_id, trajectory.sample, turns, answer, trajectory.stop, events=events)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
