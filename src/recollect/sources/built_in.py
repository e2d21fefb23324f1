"""Stored tasks that lack what their domain needs: they get what the package provides, or are left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from recollect.config import Config
from recollect.registries import AGENTS, DOMAINS
from recollect.types import BadInput, Task


def provided(tasks: Sequence[Task], cfg: Config, say: Callable[[str], None]) -> list[Task]:
    """The tasks that their domains' agents can work on; ``say`` is told which were completed or left out."""
    by_source = AGENTS.knows(cfg.agent.agent_type, "by_source")
    given, lacking, kept = Counter[str](), dict[str, list[str]](), list[Task]()
    for task in tasks:
        name = task.source if by_source else cfg.agent.agent_type
        domain = DOMAINS.get(name) if name in DOMAINS else None
        problem = domain.missing(task, cfg) if domain else ""
        if problem and domain and domain.provision:
            given[f"{name}: {domain.provision.words}"] += 1
            kept.append(domain.provision.fill(task))
        elif problem:
            lacking.setdefault(problem, []).append(task.id)
        else:
            kept.append(task)
    for words, count in given.items():
        say(f"{count} tasks bring nothing to work on; they get, {words}")
    for problem, names in lacking.items():
        say(f"{len(names)} tasks left out, {names[0]} first: {problem}")
    if not kept and lacking:
        raise BadInput(f"no task of data.train_files can be worked on: {next(iter(lacking))}")
    return kept
