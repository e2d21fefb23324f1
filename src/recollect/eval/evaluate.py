"""Running an agent over held-out tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from recollect.agents.rollout import Collector
from recollect.config import Config
from recollect.config.aliases import sampling_seed
from recollect.domains.families import made_up
from recollect.eval.accuracy import Accuracy, accuracy
from recollect.eval.many_samples import SCORES, at_n
from recollect.sources.task_stream import held_out
from recollect.types import Group, Sampling, Task


def val_sampling(cfg: Config) -> Sampling:
    """How validation samples: greedy unless val_kwargs.do_sample."""
    val = cfg.actor_rollout_ref.rollout.val_kwargs
    temperature = val.temperature if val.do_sample else 0.0
    asked = cfg.agent.max_tokens_per_turn or cfg.actor_rollout_ref.rollout.response_length
    limit = asked or cfg.data.max_response_length
    return Sampling(temperature, val.top_p, val.top_k, limit, seed=sampling_seed(cfg))


def evaluate(collector: Collector, tasks: Sequence[Task], key: str) -> list[Group]:
    """Attempt every task with validation sampling, data.val_batch_size of them side by side."""
    cfg = collector.cfg
    n, size = cfg.actor_rollout_ref.rollout.val_kwargs.n, cfg.data.val_batch_size or max(1, len(tasks))
    groups: list[Group] = []
    for start in range(0, len(tasks), size):
        groups += asyncio.run(collector.collect(tasks[start : start + size], n, val_sampling(cfg), key))
    return groups


def split_by_source(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups of each data source, in order of appearance."""
    out: dict[str, list[Group]] = {}
    for group in groups:
        out.setdefault(group.task.source, []).append(group)
    return out


def by_source(groups: Sequence[Group]) -> dict[str, Accuracy]:
    """Accuracy per data source."""
    return {source: accuracy(part) for source, part in split_by_source(groups).items()}


def validation_row(groups: Sequence[Group]) -> dict[str, float]:
    """The metrics of a validation: per data source, accuracy and what n samples say, with intervals."""
    row: dict[str, float] = {}
    for source, part in split_by_source(groups).items():
        found = accuracy(part)
        row |= {f"val/{source}/{name}": value for name, value in found.row().items()}
        for name, score in at_n(part).items():
            row[f"val/{source}/{name}"] = score.accuracy
            row[f"val/{source}/{name}/low"], row[f"val/{source}/{name}/high"] = score.low, score.high
    return row


def metric_names(tasks: Sequence[Task], n: int) -> list[str]:
    """The metrics of a validation that can be compared: what trainer.best_metric may name."""
    names = ["accuracy", *(f"{name}@{n}" for name in SCORES)]
    return [f"val/{source}/{name}" for source in dict.fromkeys(t.source for t in tasks) for name in names]


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
        rows.append({"multiple": multiple, "chunks": made_up(cfg).sections(cfg, multiple), **accuracy(part).row()})
    return rows, groups
