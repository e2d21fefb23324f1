"""A policy that stands in for a model, and what it takes to collect trajectories with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from recollect.agents.rollout import REWARD_THREADS, Collector
from recollect.agents.session import Binding, Session
from recollect.chat import Renderer
from recollect.config import Config
from recollect.runtime.threads import Slots
from recollect.types import Completion, Group, Sampling, Task

Say = Callable[[str, int], str]


class Standin:
    """A policy that says what a function of the prompt and the request's number says, and records what it was asked."""

    version = 3

    def __init__(self, renderer: Renderer, say: Say = lambda prompt, number: "ok", delay: float = 0.0) -> None:
        self.renderer, self.say, self.delay = renderer, say, delay
        self.requests: list[Sampling] = []
        self.prompts: list[list[int]] = []
        self.running = self.most = 0

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        self.requests.append(sampling)
        self.prompts.append(list(prompt_ids))
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.delay)
            text = self.say(self.renderer.decode(prompt_ids), len(self.requests) - 1)
        finally:
            self.running -= 1
        ids = (*self.renderer.encode(text), self.renderer.stop_ids[-1])
        return Completion(ids, tuple(-0.1 * (i + 1) for i in range(len(ids))), "stop", self.version, text)


async def asks_once(task: Task, session: Session, cfg: Config) -> str:
    return (await session.generate(task.question)).text


def collector(policy: Any, renderer: Renderer, agent: Any = asks_once, reward: Any = None, **options: Any) -> Collector:
    cfg = Config()
    for key, value in options.items():
        setattr(cfg.agent, key, value)
    made = Collector(cfg, {"*": Binding(policy, renderer)})
    made.agent = agent
    if reward is not None:
        made.reward, made.builtin_reward, made.scoring = reward, False, Slots(REWARD_THREADS)
    return made


def collect(made: Collector, tasks: int = 1, n: int = 3, key: str = "step-0") -> list[Group]:
    rows = [
        Task(f"t{i}", f"q{i}", f"document {i}", ("ok",), fields={"level": i, "answer": "shadow"}) for i in range(tasks)
    ]
    return asyncio.run(made.collect(rows, n, Sampling(seed=7, max_tokens=20), key))


def kinds(groups: Sequence[Group]) -> list[str | None]:
    return [t.failure.kind if t.failure else None for g in groups for t in g.trajectories]


async def asks_three_times(task: Task, session: Session, cfg: Config) -> str:
    for i in range(2):
        await session.generate(f"{task.question} {i}", max_tokens=5, stop=["."])
    return (await session.generate("end", role="qa")).text


def second_of_three(action: Callable[[], Any]) -> Callable[[Task, Session, Config], Any]:
    """An agent whose second attempt does something else."""

    async def agent(task: Task, session: Session, cfg: Config) -> str:
        if session.trajectory.sample == 1:
            await action()
        return (await session.generate(task.question)).text

    return agent


async def crashes() -> None:
    raise KeyError("lost")
