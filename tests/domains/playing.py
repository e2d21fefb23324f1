"""Playing a domain's agent without a model: by its expert, or by a list of lines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.chat import Renderer
from recollect.config import Config
from recollect.models.load import load_tokenizer
from recollect.policies.scripted import Expert
from recollect.types import Sampling, Task, Trajectory


def settings(domain: str) -> Config:
    cfg = Config()
    cfg.agent.agent_type, cfg.agent.reward_name, cfg.agent.system_prompt = domain, "success", ""
    cfg.data.made_up = domain
    return cfg


def play(cfg: Config, tasks: Sequence[Task], respond, **roles) -> list[Trajectory]:
    renderer = Renderer(load_tokenizer("tiny"))

    async def go() -> list[Trajectory]:
        bound = {"*": Binding(Expert(renderer, respond), renderer)}
        bound |= {name: Binding(Expert(renderer, said), renderer) for name, said in roles.items()}
        made = Collector(cfg, bound)
        try:
            groups = await made.collect(tasks, 1, Sampling(max_tokens=2048), "k")
        finally:
            await made.close()
        return [t for g in groups for t in g.trajectories]

    return asyncio.run(go())


def lines(*said: str):
    """A player that says one line after another."""
    return lambda task, trajectory: said[min(len([t for t in trajectory.turns if t.role == "agent"]), len(said) - 1)]
