"""The tasks of a pipeline: of a data file, or made up."""

from __future__ import annotations

from recollect.config import Config
from recollect.data.files import load_tasks
from recollect.data.made_up import MADE_UP
from recollect.pipeline.plan import Plan
from recollect.types import Task


def questions(plan: Plan, cfg: Config, domain: str) -> list[Task]:
    """What trajectories are made for."""
    return _tasks(cfg, domain, plan.agents[domain].questions, held_out=False)


def test_tasks(plan: Plan, cfg: Config) -> list[Task]:
    """What models are measured on: never among the questions where they are made up."""
    return [t for domain, rows in plan.agents.items() for t in _tasks(cfg, domain, rows.test, held_out=True)]


def _tasks(cfg: Config, domain: str, what: int | str, held_out: bool) -> list[Task]:
    if isinstance(what, int):
        family = MADE_UP[domain]
        make = family.held_out if held_out else family.train
        return [make(cfg, 1, i) for i in range(what)]
    tasks = load_tasks(cfg, [what])
    for task in tasks:
        task.source = domain
    return tasks
