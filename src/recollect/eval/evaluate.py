"""Running an agent over held-out tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from recollect.config import Config
from recollect.data.tasks import held_out
from recollect.eval.accuracy import Accuracy, accuracy
from recollect.rollout import Collector
from recollect.types import Group, Sampling, Task


def val_sampling(cfg: Config) -> Sampling:
    """How validation samples: greedy unless val_kwargs.do_sample."""
    val = cfg.actor_rollout_ref.rollout.val_kwargs
    temperature = val.temperature if val.do_sample else 0.0
    limit = cfg.data.max_response_length
    return Sampling(temperature, val.top_p, val.top_k, limit, seed=cfg.trainer.seed)


def evaluate(collector: Collector, tasks: Sequence[Task], key: str) -> list[Group]:
    """Attempt every task with validation sampling."""
    cfg = collector.cfg
    n = cfg.actor_rollout_ref.rollout.val_kwargs.n
    return asyncio.run(collector.collect(tasks, n, val_sampling(cfg), key))


def by_source(groups: Sequence[Group]) -> dict[str, Accuracy]:
    """Accuracy per data source."""
    names = dict.fromkeys(g.task.source for g in groups)
    return {name: accuracy([g for g in groups if g.task.source == name]) for name in names}


def by_length(
    collector: Collector, turn_done: Callable[[int], None] = lambda turns: None
) -> tuple[list[dict[str, float]], list[Group]]:
    """Accuracy at multiples of the training length, on made-up documents; all lengths are read side by side."""
    cfg = collector.cfg
    plan = [(m, held_out(cfg, m, n)) for m, n in zip(cfg.evaluation.lengths, cfg.evaluation.tasks, strict=True)]
    before = collector.on_done
    collector.on_done = lambda trajectory: turn_done(len(trajectory.turns))
    try:
        groups = evaluate(collector, [t for _, tasks in plan for t in tasks], "val")
    finally:
        collector.on_done = before
    rows, start = [], 0
    for multiple, tasks in plan:
        part = groups[start : start + len(tasks)]
        start += len(tasks)
        rows.append({"multiple": multiple, "chunks": multiple * cfg.data.needle.chunks, **accuracy(part).row()})
    return rows, groups
