"""The policy that plays an oracle's role inside a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recollect.chat import Renderer
from recollect.chat.writers import TOOL_WRITERS
from recollect.config import Config
from recollect.oracles.known import Known, known_of
from recollect.oracles.moment import Moment
from recollect.oracles.oracle_of_agent import ORACLES, Respond
from recollect.policies.scripted import Expert
from recollect.types import BadInput, Completion, Policy, Sampling, Task, Trajectory


class Oracle(Expert):
    """Plays one role from what the task gives away and what its prompt shows."""

    def __init__(self, renderer: Renderer, say: Respond, cfg: Config) -> None:
        self.renderer, self.say, self.cfg = renderer, say, cfg
        self._known: dict[str, list[Known]] = {}

    def at(self, task: Task, trajectory: Trajectory) -> Policy:
        """The policy of one attempt."""
        return Attempt(self, task, trajectory)

    def known(self, task: Task) -> list[Known]:
        """What is known about a task, looked up once."""
        if task.id not in self._known:
            self._known[task.id] = known_of(task)
        return self._known[task.id]


@dataclass(frozen=True)
class Attempt:
    """An oracle at one task."""

    oracle: Oracle
    task: Task
    trajectory: Trajectory
    version: int = Expert.version

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """What the oracle says, as ids that end like the model's own turns do."""
        oracle, renderer = self.oracle, self.oracle.renderer
        shown = renderer.decode(prompt_ids)
        known = lambda: oracle.known(self.task)
        moment = Moment(self.task, self.trajectory, shown, sampling.max_tokens, renderer, oracle.cfg, known)
        text = oracle.say(moment)
        ids = (*renderer.encode(text), renderer.end_id)
        if len(ids) <= sampling.max_tokens:
            return Completion(ids, (), "stop", self.version, text)
        return Completion(ids[: sampling.max_tokens], (), "length", self.version, text)


def oracle_roles(cfg: Config, renderer: Renderer) -> dict[str, Oracle]:
    """The oracle of each role of the agent."""
    check_oracle(cfg)
    return {role: Oracle(renderer, say, cfg) for role, say in ORACLES[cfg.agent.agent_type].roles.items()}


def check_oracle(cfg: Config) -> None:
    """Refuse an agent that no oracle plays, and a format of calls that it cannot write."""
    agent, parser = cfg.agent.agent_type, cfg.agent.tool_parser
    if agent not in ORACLES:
        raise BadInput(f"sft.data=oracle: no oracle plays agent.agent_type={agent}; one plays {', '.join(ORACLES)}")
    if problem := ORACLES[agent].problem(cfg):
        raise BadInput(f"sft.data=oracle: {problem}")
    if parser is not None and parser not in TOOL_WRITERS:
        raise BadInput(
            f"sft.data=oracle writes calls for agent.tool_parser={', '.join(TOOL_WRITERS)}, and not for {parser}"
        )
