"""An agent as a DSPy program. Its own loop runs; each of its prompts is a predictor, which makes the turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dspy

from recollect.agents.rollout import Collector
from recollect.agents.session import Session
from recollect.agents.wording import worded
from recollect.config import Config
from recollect.config.prompt_file import REPLY, Wording, made_wording, prompt_entries, prompt_specs
from recollect.dspy.feedback import feedback
from recollect.dspy.policy_lm import TURN, TurnInSession
from recollect.eval.evaluate import val_sampling
from recollect.policies.endpoint import EndpointGone
from recollect.registries import PromptSpec
from recollect.runtime.threads import LoopThread
from recollect.types import Completion, Group, Message, Sampling, Task

OWN = "(none)"  # the instruction of a prompt that has none; DSPy wants a text
Attempted = Callable[["AgentProgram", Task, float], None]


class AgentRunner:
    """Runs an agent's loop with the predictors of a program. Programs are copied, and share their runner."""

    def __init__(self, cfg: Config, roles: Mapping[str, Any], tasks: Sequence[Task], thread: LoopThread) -> None:
        self.cfg, self.thread = cfg, thread
        self.collector = ProgramCollector(cfg, roles)
        self.tasks = {task.id: task for task in tasks}
        self.on_done: Attempted = lambda program, task, reward: None
        self.on_group: Callable[[Group], None] = lambda group: None
        self.on_loss: Callable[[str], None] = lambda why: None  # an endpoint went away for good

    def __deepcopy__(self, memo: object) -> AgentRunner:
        return self

    def attempt(self, program: AgentProgram, task: Task) -> Group:
        """One attempt, in the loop in which the engine runs."""
        predictors = dict(program.named_predictors())
        try:
            (group,) = self.thread.wait(self._attempt(task, predictors))
        except EndpointGone as error:
            self.on_loss(str(error))
            raise
        self.on_group(group)
        return group

    async def _attempt(self, task: Task, predictors: Mapping[str, Any]) -> list[Group]:
        return await self.collector.with_predictors(predictors).collect([task], 1, val_sampling(self.cfg), "optimize")


class ProgramCollector(Collector):
    """A collector whose sessions ask predictors."""

    predictors: Mapping[str, Any] = {}

    def with_predictors(self, predictors: Mapping[str, Any]) -> ProgramCollector:
        """The same with other predictors; everything else is shared."""
        made = object.__new__(ProgramCollector)
        made.__dict__.update(self.__dict__, predictors=predictors)
        return made

    def _session(self, group: Group, i: int, sampling: Sampling, key: str) -> Session:
        made = ProgramSession(group.task, group.trajectories[i], self.roles, sampling, f"{key}/{group.task.id}/{i}")
        made.predictors = self.predictors
        return made


class ProgramSession(Session):
    """A session whose turns are made by predictors."""

    predictors: Mapping[str, Any] = {}

    async def turn(
        self,
        cfg: Config,
        prompt: PromptSpec,
        inputs: Mapping[str, str],
        *,
        role: str,
        max_tokens: int | None = None,
        render: Callable[[Wording], Sequence[Message]] | None = None,
    ) -> Completion:
        """A predictor's turn; the session records it as any other."""
        draw = render or (lambda said: worded(said, inputs))
        token = TURN.set(TurnInSession(self, role, max_tokens))
        try:
            with dspy.context(adapter=PromptAdapter(cfg, prompt, draw)):
                await self.predictors[prompt.name].acall(**inputs)
        finally:
            TURN.reset(token)
        return self.trajectory.turns[-1].completion

    def branch(self, name: str, question: int = 0) -> Session:
        """A branch that asks predictors too."""
        made = super().branch(name, question)
        made.__class__ = ProgramSession
        made.predictors = self.predictors  # type: ignore[attr-defined]
        return made


class PromptAdapter(dspy.Adapter):
    """Renders a predictor exactly as the agent renders its prompt with a file, and takes the whole reply."""

    def __init__(self, cfg: Config, prompt: PromptSpec, draw: Callable[[Wording], Sequence[Message]]) -> None:
        super().__init__()
        self.cfg, self.prompt, self.draw = cfg, prompt, draw

    def format(self, signature: Any, demos: Any, inputs: Any) -> list[dict[str, Any]]:
        said = made_wording(self.prompt, entry_of(self.prompt, signature.instructions, demos, self.cfg), self.cfg)
        return [{"role": m.role, "content": m.content} for m in self.draw(said)]

    def parse(self, signature: Any, completion: str) -> dict[str, Any]:
        return {REPLY: completion}

    async def acall(self, lm: Any, lm_kwargs: Any, signature: Any, demos: Any, inputs: Any) -> list[dict[str, Any]]:
        """The reply, which may be empty."""
        (text,) = await lm.acall(messages=self.format(signature, demos, inputs), **lm_kwargs)
        return [{REPLY: text if isinstance(text, str) else str(text.get("text") or "")}]


class AgentProgram(dspy.Module):
    """Reads and answers as the agent does. A predictor ``NAME`` is the agent's prompt of that name."""

    def __init__(self, runner: AgentRunner) -> None:
        super().__init__()
        self.runner = runner
        given = prompt_entries(runner.cfg)
        for name, spec in prompt_specs(runner.cfg).items():
            setattr(self, name, predictor_of(spec, given[name], runner.cfg))

    def forward(self, task: str) -> Any:
        """Attempt a task, which is named by its id."""
        found = self.runner.tasks[task]
        (trajectory,) = self.runner.attempt(self, found).trajectories
        reward = trajectory.reward if trajectory.valid else 0.0
        self.runner.on_done(self, found, reward)
        return dspy.Prediction(answer=trajectory.answer, reward=reward, feedback=feedback(found, trajectory))

    def entries(self) -> dict[str, Any]:
        """The prompts as a file of agent.prompts has them; one that is the agent's own is left out."""
        specs, cfg = prompt_specs(self.runner.cfg), self.runner.cfg
        made = {n: entry_of(specs[n], p.signature.instructions, p.demos, cfg) for n, p in self.named_predictors()}
        return {name: entry for name, entry in made.items() if entry}


def predictor_of(spec: PromptSpec, given: Any, cfg: Config) -> Any:
    """The predictor of a prompt; ``given`` is its entry in a file of prompts, or its template."""
    told = given.get("instruction") if isinstance(given, Mapping) else None
    fields: dict[str, Any] = {name: (str, dspy.InputField()) for name in (*spec.inputs(cfg), *spec.also)}
    fields[REPLY] = (str, dspy.OutputField())
    own = spec.instruction(cfg) if told is None else told
    made = dspy.Predict(dspy.make_signature(fields, own or OWN))
    rows = given.get("demonstrations") or [] if isinstance(given, Mapping) else []
    made.demos = [dspy.Example(**row) for row in rows]
    return made


def entry_of(spec: PromptSpec, told: str, demos: Sequence[Any], cfg: Config) -> dict[str, Any]:
    """The entry of a prompt in a file: an instruction and demonstrations, as far as they are not the agent's own."""
    names = (*spec.inputs(cfg), *spec.also, REPLY)
    rows = [{name: str(demo[name]) for name in names if name in demo} for demo in demos]
    kept = [row for row in rows if all(name in row for name in (*spec.inputs(cfg), REPLY))]
    entry: dict[str, Any] = {} if told.strip() in (OWN, spec.instruction(cfg).strip()) else {"instruction": told}
    return {**entry, "demonstrations": kept} if kept and spec.demonstrations else entry
