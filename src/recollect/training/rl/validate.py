"""Validation during a run, and what follows from it: the best checkpoint, and stopping early."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from recollect.agents.progress import shown
from recollect.agents.rollout import Collector
from recollect.config import Config
from recollect.config.rules import val_only_problem
from recollect.domains.families import has_lengths, planned_turns
from recollect.eval.accuracy import accuracy
from recollect.eval.evaluate import by_length, evaluate, metric_names, validation_row
from recollect.runtime.console import Bar, Console
from recollect.runtime.error_text import shortened
from recollect.training import checkpoint
from recollect.training.rl.metrics import memory_row
from recollect.training.rl.step import Progress
from recollect.types import BadInput, Group, Task

BEST = "best"  # the checkpoint with the largest trainer.best_metric


def check_validation(cfg: Config, tasks: Sequence[Task]) -> None:
    """Refuse val_only without tasks, a best_metric that no validation computes, and patience that is never used."""
    if problem := val_only_problem(cfg, bool(tasks)):
        raise BadInput(problem)
    metric = cfg.trainer.best_metric
    if metric is None:
        if cfg.trainer.patience > 0:
            raise BadInput(f"trainer.patience={cfg.trainer.patience} needs trainer.best_metric")
        return
    known = metric_names(tasks, cfg.actor_rollout_ref.rollout.val_kwargs.n)
    if metric not in known:
        raise BadInput(
            f"trainer.best_metric={metric} is unknown; known: {', '.join(known) or 'none without val_files'}"
        )


def validate(
    collector: Collector, tasks: Sequence[Task], console: Console, title: str
) -> tuple[list[Group], dict[str, float]]:
    """Attempt the held-out tasks, say how it went, and return the attempts and the row of metrics."""
    start = time.monotonic()
    with console.progress(f"held-out tasks {title}", len(tasks)) as advance:
        groups = _attempt_shown(collector, tasks, advance)
    _say_failures(groups, console)
    found = accuracy(groups)
    console.say(
        f"held-out success {title}: {found.accuracy:.3f} (95 % {found.low:.3f}–{found.high:.3f}, n = {found.n})"
    )
    return groups, validation_row(groups) | {"time/eval": time.monotonic() - start, **memory_row()}


def final_evaluation(
    collector: Collector, tasks: Sequence[Task], console: Console
) -> tuple[list[dict[str, float]], list[Group], list[Group]]:
    """(accuracy by length, all attempts, those that count as held-out success); lengths are of made-up documents."""
    cfg = collector.cfg
    if not has_lengths(cfg):
        with console.progress("held-out tasks after training", len(tasks)) as advance:
            groups = _attempt_shown(collector, tasks, advance)
        _say_failures(groups, console)
        return [], groups, groups
    title = "reading held-out documents, sections"
    with console.progress(title, planned_turns(cfg)) as advance, shown(collector, advance):
        lengths, groups = by_length(collector, lambda count: advance("", count))
    return lengths, groups, groups[: cfg.evaluation.tasks[0]]


def _say_failures(groups: Sequence[Group], console: Console) -> None:
    """Warn of attempts that count as 0 because something failed, which says nothing about the model."""
    attempts = [t for group in groups for t in group.trajectories]
    failures = [t.failure for t in attempts if t.failure is not None]
    if failures:
        (kind, message), _ = Counter((f.kind, f.message) for f in failures).most_common(1)[0]
        reason = shortened(f"{kind}: {message}")
        console.warn(f"{len(failures)} of {len(attempts)} attempts failed and count as 0; most often {reason}")


def _attempt_shown(collector: Collector, tasks: Sequence[Task], bar: Bar) -> list[Group]:
    """Attempt tasks; the bar counts those that are done."""
    collector.on_done = lambda trajectory: bar("", 1) if trajectory.sample == 0 else None
    try:
        with shown(collector, bar):
            return evaluate(collector, tasks, "val")
    finally:
        collector.on_done = lambda trajectory: None


def judge(progress: Progress, metric: str | None, patience: int, row: Mapping[str, float]) -> bool:
    """Note a validation's value of the metric; True when it is the best so far. Out of patience, the run stops."""
    if metric is None:
        return False
    value = row[metric]
    if progress.best is None or value > progress.best:
        progress.best, progress.best_step, progress.stale = value, progress.step, 0
        return True
    progress.stale += 1
    if 0 < patience <= progress.stale:
        progress.stopped = (
            f"{progress.stale} validations without a better {metric} than {progress.best:.4g} at step "
            f"{progress.best_step}"
        )
    return False


def keep_best(folder: Path, progress: Progress) -> None:
    """Make ``best`` the checkpoint of the best step, if it is not yet (a kill may have come between)."""
    newest = folder / f"step-{progress.best_step}"
    if progress.best is None or not newest.is_dir():
        return
    if checkpoint.read_state(folder / BEST).get("step") != progress.best_step:
        checkpoint.link(newest, folder / BEST)
