"""An optimizer's run over an agent's program: a budget, a cache of its own, and the best prompts that were seen."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import dspy

from recollect.agents.rollout import failures
from recollect.agents.session import Binding
from recollect.config import Config
from recollect.dspy.agent_program import AgentProgram, AgentRunner
from recollect.dspy.attempt_store import AttemptStore
from recollect.dspy.call_budget import CallBudget
from recollect.dspy.lenient_adapter import LenientAdapter
from recollect.dspy.policy_lm import PolicyLM
from recollect.dspy.prompt_optimizers import OWN_LOG, OptimizerRun, find_optimizer, score
from recollect.dspy.remembered import Remembered
from recollect.policies.endpoint import EndpointGone
from recollect.runs.directory import remove_tree
from recollect.runtime.threads import LoopThread
from recollect.samplers.bindings import RolePolicies
from recollect.types import Group, Task


class SearchOptions(Protocol):
    """What is asked of a search."""

    @property
    def optimizer(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def threads(self) -> int: ...
    @property
    def prompt_model(self) -> str | None: ...


class Seen:
    """The rewards of all attempts, by the prompts they were made with."""

    def __init__(self) -> None:
        self.rewards: dict[str, dict[str, float]] = {}

    def add(self, program: AgentProgram, task: Task, reward: float) -> None:
        """Take down an attempt."""
        self.rewards.setdefault(json.dumps(program.entries()), {})[task.id] = reward

    def mean(self, entries: Mapping[str, Any], tasks: Sequence[Task]) -> float | None:
        """The mean reward of prompts over tasks; None where they were not attempted with all of them."""
        found = self.rewards.get(json.dumps(entries), {})
        return sum(found[t.id] for t in tasks) / len(tasks) if all(t.id in found for t in tasks) else None

    def best(self, tasks: Sequence[Task]) -> dict[str, Any]:
        """The prompts with the highest mean; of equal ones the first."""
        known = [json.loads(key) for key in self.rewards]
        scored = [(mean, entries) for entries in known if (mean := self.mean(entries, tasks)) is not None]
        best: dict[str, Any] = max(scored, key=lambda pair: pair[0], default=(0.0, {}))[1]
        return best


class PromptSearch:
    """One optimisation. Requests that an earlier run of it made are answered by its cache and count already."""

    def __init__(
        self,
        cfg: Config,
        policies: RolePolicies,
        players: Mapping[str, str],
        thread: LoopThread,
        calls: int,
        folder: Path,
        advance: Callable[..., None],
        warn: Callable[[str], None],
    ) -> None:
        dspy.configure_cache(enable_disk_cache=True, enable_memory_cache=False, disk_cache_dir=str(folder / "cache"))
        self.cfg, self.players, self.thread, self.folder, self.warn = cfg, players, thread, folder, warn
        self.budget = CallBudget(calls, len(dspy.cache.disk_cache), lambda: advance("", 1))
        advance("", min(calls, self.budget.used))
        self.roles = self._remembered(policies.bindings, players)

    def _remembered(self, roles: Mapping[str, Binding], players: Mapping[str, str]) -> dict[str, Binding]:
        place = lambda role: players.get(role) or players.get("*") or role
        return {r: replace(b, policy=Remembered(b.policy, str(place(r)), self.budget)) for r, b in roles.items()}

    def run(
        self, asked: SearchOptions, train: Sequence[Task], val: Sequence[Task], writer: RolePolicies | None
    ) -> dict[str, Any]:
        """The best prompts, and what they took."""
        runner = AgentRunner(self.cfg, self.roles, [*train, *val], self.thread)
        seen = Seen()
        runner.on_done = seen.add
        attempts = AttemptStore(self.folder)
        failed: Counter[str] = Counter()

        def attempted(group: Group) -> None:
            attempts.add(group)
            failed.update(failures([group]))

        runner.on_group = attempted
        runner.on_loss, runner.collector.warn = self.budget.lose, self.warn
        program = AgentProgram(runner)
        acting = self.roles.get("*") or next(iter(self.roles.values()))
        program.set_lm(PolicyLM(acting, self.thread, str(self.players.get("*", "policy")), temperature=0.0))
        writing = self._remembered(writer.bindings, {"*": str(asked.prompt_model)})["*"] if writer else acting
        prompt_lm = PolicyLM(writing, self.thread, str(asked.prompt_model or "policy"), temperature=1.0)
        prompt_lm.warn, prompt_lm.on_loss = self.warn, self.budget.lose
        begun = program.entries()
        with (
            warnings.catch_warnings(),
            dspy.context(adapter=LenientAdapter([n for n, _ in program.named_predictors()])),
        ):
            warnings.simplefilter("ignore")
            try:
                made = self._compiled(asked, program, (train, val), prompt_lm)
            finally:
                attempts.write()
        best = made.entries() if made is not None else seen.best(val)
        means = {"before": seen.mean(begun, val), "after": seen.mean(best, val)}
        counts = {"requests": self.budget.used, "cached": self.budget.cached, "spent": self.budget.refused > 0}
        return {"prompts": best, "validation": means, "failed": dict(failed), **counts}

    def _compiled(
        self, asked: SearchOptions, program: Any, tasks: tuple[Sequence[Task], Sequence[Task]], prompt_lm: Any
    ) -> Any:
        """What the optimizer returns; None where the budget ended it."""
        train, val = ([dspy.Example(task=t.id).with_inputs("task") for t in part] for part in tasks)
        made = None
        try:
            attempts = self._attempts(program, val, asked.threads)
            run = OptimizerRun(program, train, val, prompt_lm, attempts, asked.threads, asked.seed, self.folder)
            made = find_optimizer(asked.optimizer)(run)
        except Exception:
            if not self.budget.refused and not self.budget.lost:
                raise
        if self.budget.refused or self.budget.lost:  # an optimizer's own log took what was not asked for bad answers
            remove_tree(self.folder / OWN_LOG)
        if self.budget.lost:
            raise EndpointGone(f"{self.budget.lost}; what it answered is kept, and the same command goes on")
        return None if self.budget.refused else made

    def _attempts(self, program: Any, val: Sequence[Any], threads: int) -> int:
        """How many attempts the budget is worth, by what those at the validation tasks cost."""
        used = self.budget.used + self.budget.cached
        dspy.Evaluate(devset=val, metric=score, num_threads=threads, display_progress=False)(program)
        cost = max(1.0, (self.budget.used + self.budget.cached - used) / len(val))
        return int(self.budget.most / cost)
