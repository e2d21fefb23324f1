"""Batches that the scripted expert of a made-up task makes as training goes on."""

from __future__ import annotations

import asyncio

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.chat import Renderer
from recollect.config import Config
from recollect.domains.families import expert_policy, made_up
from recollect.packing.samples import trajectory_samples
from recollect.types import BadInput, Sample, Sampling


class ExpertBatches:
    """The scripted expert plays the agent on training tasks; batch b uses tasks of its own."""

    def __init__(self, cfg: Config, renderer: Renderer) -> None:
        self.cfg, family = cfg, made_up(cfg)
        expert = expert_policy(family, renderer, cfg.sft.data == "sloppy")
        if expert is None:
            raise BadInput(f"sft.data={cfg.sft.data}: data.made_up={cfg.data.made_up} has no such scripted agent")
        self.collector = Collector(cfg, {"*": Binding(expert, renderer)})
        self.tasks = max(1, cfg.sft.batch_size // (family.sections(cfg, 1) + 1))

    def __getitem__(self, index: int) -> list[Sample]:
        cfg, family = self.cfg, made_up(self.cfg)
        first = 10**9 + index * self.tasks  # far from the tasks that RL takes
        step, make = (10**9, family.train) if family.imitated is None else (index, family.imitated)
        tasks = [make(cfg, step, first + i) for i in range(self.tasks)]
        groups = asyncio.run(self.collector.collect(tasks, 1, Sampling(max_tokens=512), "expert"))
        rows = [t for g in groups for t in g.trajectories]
        return [s for i, t in enumerate(rows) for s in trajectory_samples(t, i, i, supervised=True)]
