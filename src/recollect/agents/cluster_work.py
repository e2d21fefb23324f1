"""Tools and rewards on the CPUs of a Ray cluster (`agent.run_on=cluster`): what runs there, and how a run gets there.

There run: plain functions that a user wrote as tool or reward, each call in a process of its own, and all programs in
sandboxes. What waits (async functions), what has a state (classes), and what was made from the settings stays here.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Any

from recollect.config import Config
from recollect.dist.ray_calls import SHARE, RayCalls
from recollect.dist.ray_cluster import RayCluster, connect
from recollect.rewards.decorator import is_ours, marks_of
from recollect.rewards.reward_names import Weighted
from recollect.runtime.threads import Slots, in_thread
from recollect.sandbox.cluster_pool import ClusterPool
from recollect.sandbox.sandbox_session import ProgramResult
from recollect.tools.tool_definition import Tool
from recollect.types import BadInput, Reward, Task

RUN_ON = "agent.run_on=cluster"
LOOK_S = 0.5


class ClusterWork:
    """The cluster as a place where tools and rewards are computed."""

    def __init__(self, cfg: Config, warn: Callable[[str], None]) -> None:
        self.wait_s = cfg.trainer.node_wait_s
        self.cluster = connect(RUN_ON)
        try:
            self.slots = Slots(max(1, int(free_cpus(self.cluster, self.wait_s) / SHARE)))
            self.calls = RayCalls()
            self.counted: set[int] = set()  # sums of rewards that run there
            self.pool = ClusterPool(cfg.sandbox, self.cluster, warn)
        except BaseException:
            self.cluster.close()
            raise

    def send_tool(self, tool: Tool) -> None:
        """Let a tool run there, if it is of the kind that does."""
        plain = not (tool.stateful or inspect.iscoroutinefunction(tool.run) or is_ours(tool.run))
        if plain and set(tool.signature.given.values()) <= {Task, Config}:
            self.calls.send(tool.run, f"the tool {tool.name}")

    def send_reward(self, reward: Reward, name: str) -> None:
        """Let a reward run there, if it is of the kind that does; of a sum its parts."""
        if isinstance(reward, Weighted):
            for label, _, part in reward.parts:
                self.send_reward(part, label)
            self.counted |= {id(reward)} if any(self.calls.knows(part) for _, _, part in reward.parts) else set()
            return
        inner = reward.func if isinstance(reward, partial) else reward
        if not (inspect.iscoroutinefunction(inner) or marks_of(reward).inline):
            self.calls.send(reward, f"the reward {name}")

    async def call(self, function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
        """What a plain function gives: there, if it was sent, or in a thread of this process."""
        if self.calls.knows(function):
            return await self.calls.call(function, given)
        return await in_thread(function, given)

    def room(self, function: Callable[..., Any]) -> AbstractAsyncContextManager[Any]:
        """Hold what a call of a function needs."""
        there = self.calls.knows(function) or id(function) in self.counted
        return self.slots.one() if there else nullcontext()

    async def run_program(self, code: str, stdin: str, timeout: float | None) -> ProgramResult:
        """Run a Python program in a sandbox there."""
        return await self.pool.run(code, stdin, timeout)

    # ---- going away and coming back, as an endpoint does ----

    async def back(self, warn: Callable[[str], None]) -> bool:
        """Wait for a node with a sandbox; False when none came in time."""
        warn(f"sandboxes on the Ray cluster were lost; waiting up to {self.wait_s:g} s for a node with a CPU to spare")
        return await self.pool.wait(self.wait_s)

    @property
    def loss(self) -> str:
        """What to say when none came."""
        return f"no node of the Ray cluster had a CPU to spare within {self.wait_s:g} s (trainer.node_wait_s)"

    def close(self) -> None:
        """End what runs there and leave the cluster, unless others in this process need it."""
        self.pool.close()
        self.cluster.close()


def free_cpus(cluster: RayCluster, wait_s: float) -> float:
    """CPUs of the cluster that nobody has; BadInput where there are none."""
    import ray

    until = time.monotonic() + wait_s
    while (found := float(ray.available_resources().get("CPU", 0))) < 1:
        if time.monotonic() > until:
            there = sum(node.cpus for node in cluster.nodes())
            raise BadInput(
                f"{RUN_ON} needs a CPU that ranks and servers leave free, and all {there:g} of the cluster are taken"
            )
        time.sleep(LOOK_S)
    return found
