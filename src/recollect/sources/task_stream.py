"""The stream of training tasks of a run, made up or from files. The tasks of a step depend only on the step."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence

from recollect.config import Config
from recollect.config.aliases import AGENT_NAMES, task_seed
from recollect.data.sections import agents_named, recut
from recollect.data.task_rows import load_tasks, tasks_of
from recollect.domains.families import has_lengths, made_up
from recollect.registries import AGENTS
from recollect.sources.built_in import provided
from recollect.sources.prompt_limits import token_counter, within_limits
from recollect.sources.stored_tasks import create_rl_dataset
from recollect.sources.tasks_of_runs import completed
from recollect.trajectories.stored_rows import holds_trajectories
from recollect.types import BadInput, Task

MADE_UP_TASKS = 256  # validation tasks of families without lengths


def training_tasks(cfg: Config, say: Callable[[str], None]) -> list[Task]:
    """The tasks of data.train_files, at most data.train_max_samples of them."""
    tasks, most = _all_tasks(cfg, say), cfg.data.train_max_samples
    if not 0 <= most < len(tasks):
        return tasks
    say(f"{most} of {len(tasks)} tasks: data.train_max_samples={most}")
    if not cfg.data.shuffle:
        return tasks[:most]
    return [tasks[i] for i in sorted(random.Random(f"tasks:{task_seed(cfg)}").sample(range(len(tasks)), most))]


def _all_tasks(cfg: Config, say: Callable[[str], None]) -> list[Task]:
    """All tasks of data.train_files; of stored trajectories those that reached data.min_reward."""
    data = cfg.data
    if data.min_reward is None and not holds_trajectories(data.train_files):
        return load_tasks(cfg, data.train_files)
    least = -math.inf if data.min_reward is None else data.min_reward
    seeds = create_rl_dataset(data.train_files, least, say)
    floor = "" if data.min_reward is None else f" with a reward of at least {least:g}"
    say(f"{len(seeds)} tasks of stored trajectories{floor}")
    if not seeds:
        raise BadInput(f"no trajectory of data.train_files reached data.min_reward={least:g}")
    rows = completed(seeds, cfg, lambda theirs: training_tasks(theirs, lambda text: None), say)
    return provided(tasks_of(cfg, ((f"task {row['id']}", row) for row in rows)), cfg, say)


class TaskStream:
    """Training tasks, step by step."""

    def __init__(self, cfg: Config, say: Callable[[str], None] = lambda text: None) -> None:
        self.cfg = cfg
        rows = training_tasks(cfg, say) if cfg.data.train_files else []
        refuse_unseen(rows or [_made_up(cfg)], cfg)
        self.rows = within_limits(rows, cfg, True, say)
        for line in about_rows(self.rows, cfg):
            say(line)
        kind = cfg.agent.agent_type
        if AGENTS.knows(kind, "question_alone") and any(task.context for task in rows):
            say(f"the agent {kind} asks the question alone; data.context_key={cfg.data.context_key} is not read")
        if cfg.data.train_files and len(self.rows) < cfg.data.train_batch_size:
            raise BadInput(
                f"data.train_files hold {len(self.rows)} tasks, fewer than data.train_batch_size="
                f"{cfg.data.train_batch_size}"
            )

    def steps(self) -> int:
        """The steps of the run: as configured, or whole passes over the data."""
        trainer = self.cfg.trainer
        if trainer.total_training_steps is not None:
            return trainer.total_training_steps
        if not self.rows:
            raise BadInput("made-up documents have no end: set trainer.total_training_steps")
        return trainer.total_epochs * (len(self.rows) // self.cfg.data.train_batch_size)

    def take(self, step: int) -> list[Task]:
        """The tasks of step ``step`` (from 0)."""
        size, seed = self.cfg.data.train_batch_size, task_seed(self.cfg)
        if not self.rows:
            return [made_up(self.cfg).train(self.cfg, step, step * size + i) for i in range(size)]
        per_epoch = len(self.rows) // size
        epoch, place = divmod(step, per_epoch)
        order = list(range(len(self.rows)))
        if self.cfg.data.shuffle:
            random.Random(f"epoch:{seed}:{epoch}").shuffle(order)
        return [self.rows[i] for i in order[place * size : (place + 1) * size]]


def about_rows(tasks: Sequence[Task], cfg: Config) -> Iterator[str]:
    """Messages about rows that name an agent and about given sections that are cut; several agents are refused."""
    override, kind = cfg.actor_rollout_ref.rollout.agent_name_override, cfg.agent.agent_type
    named = {name: AGENT_NAMES.get(name, name) for name in agents_named(tasks)}
    if kind in named.values() and len(set(named.values())) > 1 and not override:
        raise BadInput(
            f"the rows name several agents under agent_name ({', '.join(named)}), and a run has one; choose it with "
            "actor_rollout_ref.rollout.agent_name_override"
        )
    for name, agent in named.items():
        how = "is" if agent == kind else "is overridden by"
        if name != kind:
            yield f"agent_name={name} of the data {how} the agent {kind}"
    if said := recut(tasks, cfg, lambda: token_counter(cfg)):
        yield said


def held_out(cfg: Config, multiple: int = 1, count: int | None = None) -> list[Task]:
    """Validation tasks: from data.val_files, else made-up documents of never-seen names and values."""
    limit = cfg.data.val_max_samples
    if cfg.data.val_files:
        rows = load_tasks(cfg, cfg.data.val_files)[: limit if limit >= 0 else None]
        refuse_unseen(rows, cfg)
        return within_limits(rows, cfg, False, lambda text: None)
    if cfg.data.train_files:
        return []
    plan = dict(zip(cfg.evaluation.lengths, cfg.evaluation.tasks, strict=False)) if has_lengths(cfg) else {}
    size = count or (limit if limit >= 0 else plan.get(multiple, MADE_UP_TASKS))  # those that are measured at the end
    first = cfg.evaluation.first
    return [made_up(cfg).held_out(cfg, multiple, i) for i in range(first, first + size)]


def _made_up(cfg: Config) -> Task:
    """A task of the family that is trained on, which the agent has to be able to attempt."""
    task, spec = made_up(cfg).train(cfg, 0, 0), AGENTS.of(cfg.agent.agent_type)
    if spec and spec.task_problem and (problem := spec.task_problem(cfg, task)):
        raise BadInput(f"data.made_up={cfg.data.made_up}, agent.agent_type={spec.name}: {problem}")
    return task


def refuse_unseen(tasks: Sequence[Task], cfg: Config) -> None:
    """Refuse images in the tasks of a run whose model reads text alone."""
    task = next((task for task in tasks if task.images), None)
    if task is None or any(where.startswith("endpoint:") for where in cfg.roles.values()):
        return
    from recollect.models.kind_check import sees
    from recollect.models.load import load_config

    path = cfg.actor_rollout_ref.model.path
    if not sees(load_config(path)):
        raise BadInput(
            f"{task.place or task.id}: an image in the prompt, and {path} reads text alone; name a model that sees"
        )


def sources(tasks: Sequence[Task]) -> list[str]:
    """The data sources of some tasks, in order of appearance."""
    return list(dict.fromkeys(t.source for t in tasks))
