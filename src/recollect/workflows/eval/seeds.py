"""`recollect eval --model DIR --data FILE --seeds N`: measure a model on a file with several seeds, with a card.

A file of tasks is attempted by the agent: success of every seed, and of all of them with a 95 % interval over tasks. A
file of conversations, such as one of `recollect sft-data`, is predicted, for which no seed matters: loss and token
accuracy, means over all trained tokens as `recollect sft` reports them, with intervals over conversations.
"""

from __future__ import annotations

import asyncio
import json
import math
import statistics
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from recollect.agents.progress import shown
from recollect.agents.rollout import Collector
from recollect.config import Config
from recollect.eval.accuracy import mean_score, of_scores
from recollect.eval.card import card
from recollect.eval.evaluate import evaluate
from recollect.eval.output_folder import STAMP, file_place, file_stamp, refuse_others
from recollect.files.locks import lock_folder
from recollect.files.output import refuse_unwritable, write_atomic
from recollect.models.checkpoints import find_checkpoint
from recollect.rewards.before_run import check_reward
from recollect.runtime.console import Console
from recollect.runtime.error_text import listed
from recollect.samplers.bindings import acting_roles
from recollect.samplers.checkpoint_roles import config_of
from recollect.sources.task_stream import held_out
from recollect.training.setup import build_learner
from recollect.training.sft.measure import conversation_scores, per_token
from recollect.training.sft.sequences import holds_conversations, read_samples
from recollect.training.sft.sources import limits_of
from recollect.types import BadInput, Group


def run_seeds(
    model: str, data: Sequence[str], seeds: int, settings: list[str], out: Path | None, console: Console
) -> dict[str, Any]:
    """Measure, write metrics.json with its card, the card alone as card.json, and return the metrics."""
    if seeds < 1:
        raise BadInput(f"--seeds {seeds} must be at least 1")
    path, run = find_checkpoint(model)
    files = f"data.val_files={json.dumps(list(data))}"
    cfg = config_of(run, [*settings, files])
    numbers = [cfg.trainer.seed + i for i in range(seeds)]
    stamp = file_stamp(cfg, path, numbers) if out is None else None  # it reads all weights
    place = out or file_place(path, run, data, str(stamp))
    refuse_unwritable(place, "the results" if out is None else f"--out {out}")
    with lock_folder(place, f"the place of the results, {place},"):
        stamp = stamp or file_stamp(cfg, path, numbers)
        refuse_others(place / "metrics.json", stamp, path)
        result: dict[str, Any] = {"model": path, "data": list(data), "seeds": numbers, STAMP: stamp}
        result |= _measured(cfg, path, numbers, console)
        _store(place, result, cfg, path, data, numbers)
    for name, row in result["metrics"].items():
        console.say(f"{name}: {row['mean']:.4f} (95 % {row['low']:.4f}–{row['high']:.4f}, n = {row['n']})")
    console.say(f"results: {place / 'metrics.json'}")
    return result


def _measured(cfg: Config, path: str, seeds: Sequence[int], console: Console) -> dict[str, Any]:
    """Conversations are predicted once; tasks are attempted with every seed."""
    if not holds_conversations(cfg.data.val_files):
        return _attempted(cfg, path, seeds, console)
    if len(seeds) > 1:
        console.say(f"conversations are predicted, not sampled: all {len(seeds)} seeds give the same")
    return _predicted(cfg, path)


def _store(
    place: Path, result: dict[str, Any], cfg: Config, path: str, data: Sequence[str], numbers: Sequence[int]
) -> None:
    result["card"] = card(cfg, path, data, numbers)
    write_atomic(place / "metrics.json", json.dumps(result, indent=2) + "\n")
    write_atomic(place / "card.json", json.dumps(result["card"], indent=2) + "\n")


def _attempted(cfg: Config, path: str, seeds: Sequence[int], console: Console) -> dict[str, Any]:
    """Success of an agent that samples anew for every seed."""
    cfg = deepcopy(cfg)
    if len(seeds) > 1 and not cfg.actor_rollout_ref.rollout.val_kwargs.do_sample:
        cfg.actor_rollout_ref.rollout.val_kwargs.do_sample = True
        console.say("several seeds: replies are sampled (val_kwargs.temperature), not greedy")
    tasks = held_out(cfg)
    check_reward(cfg, tasks, console.say)
    policies = acting_roles(cfg, path, {}, max((t.question for t in tasks), key=len))
    runs: list[list[Group]] = []
    with console.progress("held-out tasks", len(tasks) * len(seeds)) as advance:
        for seed in seeds:
            cfg.trainer.seed, cfg.actor_rollout_ref.rollout.seed = seed, None
            collector = Collector(
                cfg, policies.bindings, lambda trajectory: advance("", 1) if trajectory.sample == 0 else None
            )
            try:
                with shown(collector, advance):
                    runs.append(evaluate(collector, tasks, "val"))
            finally:
                asyncio.run(collector.close())
    policies.close()
    sources = dict.fromkeys(t.source for t in tasks)
    metrics = {"accuracy": over_seeds(runs)}
    if len(sources) > 1:
        metrics |= {f"accuracy/{s}": over_seeds([[g for g in r if g.task.source == s] for r in runs]) for s in sources}
    failures = sum(t.failure is not None for groups in runs for g in groups for t in g.trajectories)
    return {"kind": "tasks", "metrics": metrics, "failures": failures}


def over_seeds(runs: Sequence[Sequence[Group]]) -> dict[str, Any]:
    """The mean over tasks of their means over seeds, its interval, and every seed's own rate."""
    scores = [[mean_score(g.trajectories) for g in groups] for groups in runs]
    found = of_scores([statistics.fmean(task) for task in zip(*scores, strict=True)])
    each = [statistics.fmean(row) for row in scores]
    spread = statistics.stdev(each) if len(each) > 1 else 0.0
    return {"mean": found.accuracy, "low": found.low, "high": found.high, "n": found.n, "seeds": each, "std": spread}


def _predicted(cfg: Config, path: str) -> dict[str, Any]:
    """Loss and token accuracy of a model on conversations."""
    cfg = deepcopy(cfg)
    cfg.actor_rollout_ref.model.path, cfg.actor_rollout_ref.model.lora_rank = path, 0
    learner, renderer = build_learner(cfg, cfg.sft.optim, 1)
    limits = replace(limits_of(cfg, learner.facts.window), min_reward=0.0)  # all that the file holds
    samples = read_samples(cfg.data.val_files, renderer, limits).samples
    if not samples:
        raise BadInput(f"nothing to measure on in {listed(cfg.data.val_files)}")
    rows = conversation_scores(learner, samples)
    metrics = {}
    for place, (name, most) in enumerate((("loss", math.inf), ("token_accuracy", 1.0))):
        mean, low, high = per_token(rows[:, place], rows[:, 2])
        metrics[name] = {"mean": mean, "low": max(0.0, low), "high": min(most, high), "n": len(rows)}
    return {"kind": "conversations", "metrics": metrics}
