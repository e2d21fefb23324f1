"""The trajectory reward while an agent is being trained: the same calculator that scores files."""

from __future__ import annotations

from typing import Any

from recollect.registries import DOMAINS
from recollect.rewards.decorator import reward
from recollect.rewards.trajectory_total import calculator
from recollect.rewards.weights import FALLBACK
from recollect.types import BadInput, Task, Trajectory


def _check(domain: str = "", weights: str = "") -> None:
    """The domain must exist, and the file of weights must be readable and valid."""
    if domain and domain not in DOMAINS:
        raise BadInput(f"the domain {domain} is unknown; known: {', '.join(DOMAINS)}")
    calculator(weights or None)


@reward("trajectory", inline=True, check=_check)
def trajectory_reward(
    answer: str, task: Task, trajectory: Trajectory, domain: str = "", weights: str = ""
) -> dict[str, float]:
    """Completion, efficiency, quality and reasoning by domain: `domain`, else the data source, else as mhqa."""
    found = domain or (task.source if task.source in DOMAINS else FALLBACK)
    parts = calculator(weights or None).calculate_reward(as_record(answer, task, trajectory), found)
    return {"reward": parts.pop("total"), **parts}


def as_record(answer: str, task: Task, trajectory: Trajectory) -> dict[str, Any]:
    """An attempt as the calculator reads it."""
    return {
        "question": task.question,
        "final_answer": answer,
        "success": trajectory.success,
        "actions": [{"tool": a.tool, "input": a.input, "output": a.output} for a in trajectory.actions],
        "metadata": {"answers": list(task.answers)},
    }
