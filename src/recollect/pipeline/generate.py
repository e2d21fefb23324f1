"""Trajectories of every domain: the scripted expert, or a model, attempts the questions."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from recollect.chat import Renderer
from recollect.chat.schemas import as_list
from recollect.config import Config
from recollect.console import Console
from recollect.data.made_up import MADE_UP, expert_policy
from recollect.domains.registry import DOMAINS
from recollect.eval.command import build_policy
from recollect.models.load import EMBEDDED, load_tokenizer
from recollect.models.tiny import SCRATCH
from recollect.pipeline.plan import Plan
from recollect.pipeline.tasks import questions
from recollect.rollout import Collector
from recollect.run import dump, trajectory_rows, write_atomic
from recollect.session import Binding
from recollect.types import Sampling, Task

AT_ONCE = 64  # tasks attempted side by side


def generate(plan: Plan, domain: str, out: Path, console: Console) -> int:
    """Write the trajectories of a domain, one in each line; returns how many."""
    cfg = plan.config({})
    tasks = questions(plan, cfg, domain)
    roles = policy(plan, cfg, domain, tasks)
    collector = Collector(cfg, roles)
    lines: list[str] = []
    temperature = 0.0 if plan.samples == 1 else cfg.actor_rollout_ref.rollout.temperature
    sampling = Sampling(temperature, max_tokens=cfg.data.max_response_length, seed=cfg.trainer.seed)

    async def work(advance: Any) -> None:
        try:
            for start in range(0, len(tasks), AT_ONCE):
                part = tasks[start : start + AT_ONCE]
                groups = await collector.collect(part, plan.samples, sampling, "generate")
                for group in groups:
                    about = {"task": _kept(group.task), "system": _system(cfg, domain, collector)}
                    about["asked"] = DOMAINS[domain].ask(group.task)
                    lines.extend(dump({**row, **about}) for row in trajectory_rows([group]))
                advance("", len(part))
        finally:
            await collector.close()

    with console.progress(f"generate {domain}: tasks", len(tasks)) as advance:
        asyncio.run(work(advance))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(out, "".join(f"{line}\n" for line in lines))
    return len(lines)


def policy(plan: Plan, cfg: Config, domain: str, tasks: list[Task]) -> dict[str, Binding]:
    """Who attempts the questions."""
    if plan.policy != "expert":
        return build_policy(cfg, plan.policy, max((t.question for t in tasks), key=len))
    renderer = Renderer(load_tokenizer(EMBEDDED if plan.model in SCRATCH else plan.model, cfg.agent.template))
    expert = expert_policy(MADE_UP[domain], renderer)
    assert expert is not None, "every domain has an expert"
    return {"*": Binding(expert, renderer)}


def _system(cfg: Config, domain: str, collector: Collector) -> str:
    """The system message that the agent was shown."""
    given = cfg.agent.system_prompt
    text = DOMAINS[domain].prompt if given is None else given
    return text.replace("{tools}", as_list(collector.toolbox_of(domain).schemas))


def _kept(task: Task) -> dict[str, Any]:
    """What a later stage needs to set the same task again."""
    context = {"context": task.context} if isinstance(task.context, str) else {}
    return {**task.fields, **context, "answers": list(task.answers)}
