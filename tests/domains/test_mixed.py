"""Tasks of several domains in one run: each with the loop and the tools that its source names."""

from __future__ import annotations

import asyncio
from typing import Any

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.chat import Renderer
from recollect.config.compose import compose
from recollect.domains.families import expert_policy, made_up
from recollect.types import Group, Sampling, Task

SETTINGS = ["agent.agent_type=domain", "agent.reward_name=success", "data.made_up=domains", "agent.system_prompt=act"]


def attempts(renderer: Renderer, tasks: list[Task]) -> list[Group]:
    cfg = compose(None, SETTINGS, base={})
    expert = expert_policy(made_up(cfg), renderer)
    assert expert is not None
    collector = Collector(cfg, {"*": Binding(expert, renderer)})

    async def work() -> Any:
        try:
            return await collector.collect(tasks, 1, Sampling(max_tokens=128), "x")
        finally:
            await collector.close()

    return asyncio.run(work())


def test_every_task_has_the_tools_of_its_domain(renderer: Renderer) -> None:
    cfg = compose(None, SETTINGS, base={})
    groups = attempts(renderer, [made_up(cfg).train(cfg, 0, i) for i in range(6)])
    assert [g.task.source for g in groups] == ["mhqa", "video", "math"] * 2
    assert all(t.reward == 1.0 for g in groups for t in g.trajectories)
    used = {g.task.source: {a.tool for t in g.trajectories for a in t.actions} for g in groups}
    assert used["video"] == {"load_context", "reason", "finalize"}
    assert "python" in used["math"]
    held = [made_up(cfg).held_out(cfg, 1, i) for i in range(9)]
    assert len({t.id for t in held}) == 9


def test_a_source_that_is_no_domain_fails_alone(renderer: Renderer) -> None:
    cfg = compose(None, SETTINGS, base={})
    good, bad = attempts(renderer, [made_up(cfg).train(cfg, 0, 0), Task("x", "what?", source="chess")])
    assert good.trajectories[0].reward == 1.0
    failure = bad.trajectories[0].failure
    assert failure is not None
    assert "source chess" in failure.message
