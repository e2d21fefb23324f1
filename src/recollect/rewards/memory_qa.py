"""The reward of agents that read once and answer several questions: each question's own, and the memory's.

A QA turn earns its question's answer score, and what form and look-ups add. A memory turn earns the mean answer score
of the document's questions, and what its own tool calls add.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from recollect.config import Config
from recollect.data.questions import questions_of
from recollect.rewards.conduct import format_reward
from recollect.rewards.decorator import reward
from recollect.rewards.reward_names import find_reward
from recollect.rewards.scoring import call
from recollect.tools.memory.workspace import usefulness
from recollect.types import Reward, Score, Task, Trajectory


@reward(inline=True, gold=True)
async def memory_qa(task: Task, trajectory: Trajectory, config: Config) -> Score:
    """The mean answer score of a task's questions; each question's turns, and the memory's, have a reward of their own.

    memory.scores says how answers are scored, by data source; memory.format_weight and memory.tool_weight what form
    and useful tool calls add.
    """
    limits, questions = config.memory, questions_of(task)
    scores = by_source(limits.scores, config)
    said = trajectory.answers or [trajectory.answer]
    parts = [part_of(trajectory, i, answer) for i, answer in enumerate(said, 1)]
    judged = [
        call(scores.get(question.source, scores[""]), question.task(task), part, plain=True)
        for question, part in zip(questions, parts, strict=True)
    ]
    found = await asyncio.gather(*judged)
    answered = [score.total for score in found]
    formed = [format_reward(part.answer, part) for part in parts]
    looked_up = [usefulness(part.events) for part in parts]
    noted = usefulness([e for e in trajectory.events if e["question"] == 0])
    outcome = _mean(answered)
    each = [
        a + limits.format_weight * f + limits.tool_weight * u
        for a, f, u in zip(answered, formed, looked_up, strict=True)
    ]
    memory = outcome + limits.tool_weight * noted
    named = {"answer": outcome, "format": _mean(formed), "tools_qa": _mean(looked_up), "tools_memory": noted}
    named |= {part: _mean([s.parts[part] for s in found if part in s.parts]) for s in found for part in s.parts}
    return Score(outcome, named, {"memory": memory, "qa": _mean(each)}, (memory, *each))


def by_source(named: Sequence[str], config: Config) -> Mapping[str, Reward]:
    """Data source → how its answers are scored; under "" for all that are not named."""
    return {source: find_reward(name, config) for name, _, source in (n.partition("@") for n in named)}


def part_of(trajectory: Trajectory, question: int, answer: str) -> Trajectory:
    """A question's share of a trajectory, as one of its own."""
    turns = [t for t in trajectory.turns if t.question == question]
    events: list[dict[str, Any]] = [e for e in trajectory.events if e["question"] == question]
    return Trajectory(trajectory.task_id, trajectory.sample, turns, answer, trajectory.stop, events=events)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
