"""What waiting for tools costs: 256 chains with a tool of 50 ms against the same chains without waiting.

The embedded model writes a few turns in each chain; after every turn a tool is called and its result is read, so chains
wait at different times while others generate. Generation alone is the same with results that are there at once. A plain
function (which sleeps in a thread) and an async one are measured.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from statistics import median
from typing import Any

from recollect.agents.rollout import Collector
from recollect.agents.session import Conversation, Session
from recollect.config import Config
from recollect.sources.task_stream import held_out
from recollect.tools import Toolbox, tool
from recollect.tools.tool_definition import Tool
from recollect.training.setup import build
from recollect.types import Message, Sampling, Task, ToolCall

TARGET = 1.5
RESULT = "mira holds 472."


def waiting(name: str, seconds: float) -> Tool | None:
    """A tool that takes so long: plain, async, or none at all."""
    if name == "plain":

        @tool(name="look")
        def look() -> str:
            """Look something up."""
            time.sleep(seconds)
            return RESULT

        return look
    if name == "async":

        @tool(name="look")
        async def look_async() -> str:
            """Look something up."""
            await asyncio.sleep(seconds)
            return RESULT

        return look_async
    return None


def chain(turns: int, tokens: int) -> Any:
    """An agent whose every turn but the last is followed by a call, whatever it says."""

    async def agent(task: Task, session: Session, cfg: Config) -> str:
        talk, text = Conversation([Message("user", task.question)]), ""
        for turn in range(turns):
            text = (await session.generate(talk, max_tokens=tokens)).text
            if turn + 1 < turns:
                results = await session.tools.call_all([ToolCall("look", {})]) if session.tools else []
                talk.add(Message("tool", results[0].text if results else RESULT))
        return text

    return agent


def seconds_of(collector: Collector, cfg: Config, found: Tool | None, chains: int, key: str) -> float:
    """Wall time of all chains."""
    collector.toolbox = Toolbox([found], cfg) if found else None
    sampling = Sampling(max_tokens=cfg.data.max_response_length)
    start = time.perf_counter()
    groups = asyncio.run(collector.collect(held_out(cfg, count=chains), 1, sampling, key))
    took = time.perf_counter() - start
    assert all(t.failure is None for g in groups for t in g.trajectories), groups[0].trajectories[0].failure
    return took


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chains", type=int, default=256, help="chains at once")
    parser.add_argument("--turns", type=int, default=4, help="generations of a chain")
    parser.add_argument("--tokens", type=int, default=32, help="most tokens of a turn")
    parser.add_argument("--wait", type=float, default=0.05, help="seconds of a call")
    parser.add_argument("--repeats", type=int, default=3, help="rounds, of which the median counts")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0: as a run chooses them")
    options = parser.parse_args()
    cfg = Config()
    cfg.agent.agent_type, cfg.data.max_response_length, cfg.trainer.threads = "chat", options.tokens, options.threads
    parts = build(cfg, cfg.actor_rollout_ref.actor.optim, 1)
    collector = Collector(cfg, parts.roles())
    collector.agent = chain(options.turns, options.tokens)
    kinds = ("alone", "plain", "async")
    took: dict[str, list[float]] = {kind: [] for kind in kinds}
    for round_ in range(options.repeats + 1):
        for kind in kinds:
            parts.sampler.new_weights(round_)  # nothing cached from the round before
            seconds = seconds_of(collector, cfg, waiting(kind, options.wait), options.chains, f"{round_}")
            if round_:  # the first round warms up
                took[kind].append(seconds)
    base = median(took["alone"])
    print(f"{options.chains} chains of {options.turns} turns, {options.wait * 1000:g} ms a call")
    print(f"{'generation alone':24} {base:6.2f} s")
    for kind in kinds[1:]:
        ratio = median(took[kind]) / base
        verdict = "ok" if ratio <= TARGET else "MISSED"
        print(f"{kind + ' tool':24} {median(took[kind]):6.2f} s   {ratio:.2f}×   target ≤ {TARGET}×: {verdict}")


if __name__ == "__main__":
    main()
