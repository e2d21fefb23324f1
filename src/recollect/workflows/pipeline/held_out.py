"""The held-out tasks of a pipeline: of data files, or made up."""

from __future__ import annotations

from pathlib import Path

from recollect.config import Config
from recollect.data.task_rows import load_tasks
from recollect.registries import DOMAINS, FAMILIES
from recollect.types import BadInput, Task
from recollect.workflows.pipeline.pipeline_plan import Plan


def test_tasks(plan: Plan, cfg: Config) -> list[Task]:
    """The tasks that models are measured on. Made-up ones never occur among the questions."""
    if plan.test_files:
        return [_placed(task) for task in load_tasks(cfg, plan.test_files)]
    return [task for domain, rows in plan.agents.items() for task in _tasks(cfg, domain, rows.test)]


def _placed(task: Task) -> Task:
    """A task with the domain that its row names, or its file does."""
    path = Path(task.place.partition(",")[0])
    named = (task.fields.get("domain"), task.source, path.parent.name, path.name.partition(".")[0])
    domain = next((name for name in named if name in DOMAINS), None)
    if domain is None:
        raise BadInput(f"{task.place}: it names no domain; add `domain`, one of {', '.join(DOMAINS)}")
    task.source = str(domain)
    if problem := DOMAINS[task.source].missing(task, Config()):
        provision = DOMAINS[task.source].provision
        if provision is None:
            raise BadInput(f"{task.place}: {problem}")
        return provision.fill(task)
    return task


def _tasks(cfg: Config, domain: str, what: int | str) -> list[Task]:
    if isinstance(what, int):
        first = cfg.evaluation.first
        return [FAMILIES[domain].held_out(cfg, 1, i) for i in range(first, first + what)]
    tasks = load_tasks(cfg, [what])
    for task in tasks:
        task.source = domain
    return tasks
