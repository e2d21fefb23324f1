"""How often a model solves held-out tasks, domain by domain."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from recollect.agents.progress import shown
from recollect.agents.rollout import Collector
from recollect.eval.evaluate import by_source, val_sampling
from recollect.models.checkpoints import find_checkpoint
from recollect.rewards.before_run import check_reward
from recollect.rewards.trajectory_total import calculator
from recollect.runtime.console import Console
from recollect.samplers.bindings import acting_roles
from recollect.types import Group
from recollect.workflows.pipeline.held_out import test_tasks
from recollect.workflows.pipeline.pipeline_plan import Plan
from recollect.workflows.rollout.generate import record_of


def measure(plan: Plan, model: str, title: str, console: Console) -> dict[str, dict[str, float]]:
    """domain → success rate with its interval and the number of tasks."""
    cfg = plan.config({})
    tasks = test_tasks(plan, cfg)
    check_reward(cfg, tasks, console.say)
    path, _ = find_checkpoint(model)
    policies = acting_roles(cfg, path, {}, max((t.question for t in tasks), key=len))
    collector = Collector(cfg, policies.bindings)

    async def work() -> Any:
        try:
            return await collector.collect(tasks, 1, val_sampling(cfg), "test")
        finally:
            await collector.close()

    with console.progress(f"{title}: held-out tasks", len(tasks)) as advance:
        collector.on_done = lambda trajectory: advance("", 1)
        with shown(collector, advance):
            groups = asyncio.run(work())
    policies.close()
    return {domain: {**found.row(), **_means(plan, groups, domain)} for domain, found in by_source(groups).items()}


def _means(plan: Plan, groups: Sequence[Group], domain: str) -> dict[str, float]:
    """Mean reward and efficiency of the attempts of a domain, as far as the plan asks for them."""
    wanted = {"total" if name == "reward" else name for name in plan.metrics if name != "accuracy"}
    if not wanted:
        return {}
    rewards, attempts = calculator(plan.weights), [g for g in groups if g.task.source == domain]
    parts = [
        rewards.calculate_reward(record_of(g.task, made, domain, "model", True))
        for g in attempts
        for made in g.trajectories
    ]
    means = {name: sum(p[name] for p in parts) / len(parts) for name in wanted}
    return {("reward" if name == "total" else name): round(value, 6) for name, value in sorted(means.items())}
