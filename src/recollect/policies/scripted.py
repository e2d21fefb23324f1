"""A policy that a plain function plays: the expert of a warm start, or a stand-in while an agent is being written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from recollect.chat import Renderer
from recollect.types import Completion, Policy, Sampling, Task, Trajectory


class Scripted:
    """Answers each prompt with what ``respond`` says to its text. It has no log-probabilities and cannot be trained."""

    version = -1

    def __init__(self, renderer: Renderer, respond: Callable[[str], str]) -> None:
        self.renderer, self.respond = renderer, respond

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """What the function says, as ids that end like the model's own turns do."""
        text = self.respond(self.renderer.decode(prompt_ids))
        ids = (*self.renderer.encode(text), self.renderer.end_id)[: sampling.max_tokens]
        return Completion(ids, (), "stop", self.version, text)


class Expert:
    """Plays from the task and what was done so far, not from a prompt's text, so it works in every chat template."""

    version = -1

    def __init__(self, renderer: Renderer, respond: Callable[[Task, Trajectory], str]) -> None:
        self.renderer, self.respond = renderer, respond

    def at(self, task: Task, trajectory: Trajectory) -> Policy:
        """The policy of one attempt."""
        return Scripted(self.renderer, lambda text: self.respond(task, trajectory))

    async def generate(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Never called: a session asks the policy of its attempt."""
        raise RuntimeError("an expert plays within a session only")
