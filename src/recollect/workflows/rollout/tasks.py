"""The tasks of `recollect rollout`: one question, a data file, or made-up ones."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from recollect.config import Config
from recollect.data.task_rows import load_tasks
from recollect.registries import DOMAINS, FAMILIES
from recollect.runtime.error_text import listed
from recollect.types import BadInput, Task


@dataclass(frozen=True)
class RolloutTasks:
    """What the user wants attempted; one of question, questions, data and made_up."""

    domain: str
    question: str | None = None
    context: Path | None = None  # of the question
    answer: str | None = None  # accepted for the question
    data: str | None = None
    made_up: int = 0
    held_out: bool = False
    questions: tuple[str, ...] = ()  # several of them, with the same context


def tasks_of(asked: RolloutTasks, cfg: Config) -> list[Task]:
    """The tasks, in order. A corpus that the question comes with is put into the configuration."""
    if asked.made_up < 0:
        raise BadInput(f"--tasks {asked.made_up}: how many made-up tasks? It must be positive")
    given = [name for name in ("question", "questions", "data", "made_up") if getattr(asked, name)]
    if len(given) != 1:
        raise BadInput("give one of --question TEXT, --data FILE and --tasks N")
    if asked.data is not None:
        if asked.context is not None:
            raise BadInput("--context belongs to --question; the tasks of --data bring their own")
        return _complete(load_tasks(cfg, [asked.data]), asked.domain, cfg)
    if asked.made_up:
        family = FAMILIES[asked.domain]
        make = (lambda i: family.held_out(cfg, 1, i)) if asked.held_out else (lambda i: family.train(cfg, 0, i))
        return [make(i) for i in range(asked.made_up)]
    if asked.questions:
        tasks = [_single(replace(asked, question=text), cfg) for text in asked.questions]
        return [replace(task, id=f"question-{i}") for i, task in enumerate(tasks, 1)]
    return [_single(asked, cfg)]


def _complete(tasks: list[Task], domain: str, cfg: Config) -> list[Task]:
    """The tasks of a file; one that its domain cannot work on is refused with its place."""
    for task in tasks:
        if problem := DOMAINS[domain].missing(task, cfg):
            raise BadInput(f"{task.place}: {problem}; it has {listed(task.fields)}")
    return tasks


def _single(asked: RolloutTasks, cfg: Config) -> Task:
    assert asked.question is not None
    if not asked.question.strip():
        raise BadInput("the question is empty")
    domain = DOMAINS[asked.domain]
    if asked.context is None and domain.context_needed:
        raise BadInput(domain.context_needed)
    answers = (asked.answer,) if asked.answer is not None else ()
    task = Task("question", asked.question, None, answers, asked.domain)
    if asked.context is not None:
        path = asked.context.expanduser()
        if not path.exists():
            raise BadInput(f"--context {path}: there is no such file or folder")
        task = domain.context(task, path, cfg)
    return domain.provision.fill(task) if domain.provision and domain.missing(task, cfg) else task


def answered_from(asked: RolloutTasks, cfg: Config) -> str:
    """What a question is answered from, in words; empty for one that needs nothing but itself."""
    if asked.context is not None:
        return str(asked.context)
    domain = DOMAINS[asked.domain]
    searched = cfg.search.corpus or cfg.search.endpoint if domain.searches else None
    return searched or (f"{domain.provision.words} (--context gives others)" if domain.provision else "")
