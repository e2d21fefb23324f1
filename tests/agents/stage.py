"""A stage for agents: a policy that follows a script, and tools that are plain functions."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.chat import Renderer
from recollect.config import Config
from recollect.types import Completion, Sampling, Task, ToolCall, ToolResult, Trajectory

Line = str | Sequence[int] | Exception  # what to say: a text that ends its turn, or ids as they are, or nothing


class Script:
    """A policy that says one line after another. A line that is too long is cut, and a stop string ends it."""

    version = 3

    def __init__(self, renderer: Renderer, *lines: Line, window: int | None = None) -> None:
        self.renderer, self.lines = renderer, list(lines)
        self.requests: list[Sampling] = []
        self.prompts: list[list[int]] = []
        if window is not None:
            self.window = window

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        if hasattr(self, "window"):
            assert len(prompt_ids) + sampling.max_tokens <= self.window
        self.requests.append(sampling)
        self.prompts.append(list(prompt_ids))
        await asyncio.sleep(0)
        line = self.lines[min(len(self.prompts), len(self.lines)) - 1]
        if isinstance(line, Exception):
            raise line
        ids = [*self.renderer.encode(line), self.renderer.end_id] if isinstance(line, str) else list(line)
        for n in range(1, len(ids) + 1):
            if any(s in self.renderer.decode(ids[:n]) for s in sampling.stop):
                ids = ids[:n]
                break
        ids = ids[: sampling.max_tokens]
        text = self.renderer.decode(ids)
        ended = bool(ids) and (ids[-1] in sampling.stop_ids or any(s in text for s in sampling.stop))
        return Completion(
            tuple(ids), tuple(-0.1 * (i + 1) for i in range(len(ids))), "stop" if ended else "length", 3, text
        )


def schema(name: str, *parameters: str) -> dict[str, Any]:
    properties = {p: {"type": "string"} for p in parameters}
    spec = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": f"The {name}.", "parameters": spec}}


class Box:
    """A toolbox of plain functions of one text; it counts who is inside."""

    def __init__(self, **functions: Callable[[str], Any]) -> None:
        self.functions = functions
        self.schemas = [schema(name, "text") for name in functions]
        self.inside = self.opened = 0
        self.calls: list[ToolCall] = []

    @asynccontextmanager
    async def open(self, task: Task, trajectory: Trajectory) -> AsyncIterator[Box]:
        mine = Box(**self.functions)
        mine.calls = self.calls
        self.inside += 1
        self.opened += 1
        mine.counts = Counter()
        try:
            yield mine
        finally:
            self.inside -= 1

    counts: Counter[str]

    async def call_all(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        return list(await asyncio.gather(*(self._call(c) for c in calls)))

    async def _call(self, call: ToolCall) -> ToolResult:
        self.calls.append(call)
        if call.error:
            result = ToolResult(f"malformed: {call.error}", "malformed")
        elif call.name not in self.functions:
            result = ToolResult(f"no tool {call.name}", "unknown")
        else:
            value = self.functions[call.name](next(iter((call.arguments or {"": ""}).values())))
            value = await value if asyncio.iscoroutine(value) else value
            result = value if isinstance(value, ToolResult) else ToolResult(str(value))
        self.counts[result.outcome] += 1
        return result


def play(
    agent: str,
    policy: Any,
    renderer: Renderer,
    box: Box | None = None,
    max_tokens: int = 400,
    question: str = "2*3?",
    fields: dict[str, Any] | None = None,
    **options: Any,
) -> Trajectory:
    """One attempt by an agent at a question."""
    cfg = Config()
    cfg.agent.agent_type = agent
    for key, value in options.items():
        setattr(cfg.agent, key, value)
    made = Collector(cfg, {"*": Binding(policy, renderer)})
    made.toolbox = box  # type: ignore[assignment]
    made.reward, made.builtin_reward = (lambda answer: 1.0), True
    task = Task("t", question, answers=("6",), fields=fields or {})
    (group,) = asyncio.run(made.collect([task], 1, Sampling(max_tokens=max_tokens), "k"))
    if box is not None:
        assert box.inside == 0, "tools are released"
    return group.trajectories[0]
