"""The held-out tasks of a pipeline: of data files, or made up."""

from __future__ import annotations

from recollect.config import Config
from recollect.data.files import load_tasks
from recollect.data.made_up import MADE_UP
from recollect.pipeline.plan import Plan
from recollect.types import Task


def test_tasks(plan: Plan, cfg: Config) -> list[Task]:
    """What models are measured on; made-up ones never occur among the questions."""
    return [task for domain, rows in plan.agents.items() for task in _tasks(cfg, domain, rows.test)]


def _tasks(cfg: Config, domain: str, what: int | str) -> list[Task]:
    if isinstance(what, int):
        first = cfg.evaluation.first
        return [MADE_UP[domain].held_out(cfg, 1, i) for i in range(first, first + what)]
    tasks = load_tasks(cfg, [what])
    for task in tasks:
        task.source = domain
    return tasks
