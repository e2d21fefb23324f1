"""What an oracle sees when it is asked: the task, what was done so far, the prompt, and how much it may say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from recollect.chat import Renderer
from recollect.chat.writers import TOOL_WRITERS
from recollect.config import Config
from recollect.oracles.known import Known
from recollect.types import Task, ToolCall, Trajectory

UNKNOWN = "unknown"  # what is answered where the prompt does not say it


@dataclass
class Moment:
    """One turn that an oracle has to say."""

    task: Task
    trajectory: Trajectory
    prompt: str
    room: int  # tokens that the turn may have, its end included
    renderer: Renderer
    cfg: Config
    look_up: Callable[[], Sequence[Known]]  # what is known about the questions of the task

    @cached_property
    def known(self) -> Sequence[Known]:
        """What is known about the questions of the task; finding it out reads the document."""
        return self.look_up()

    @cached_property
    def _shown(self) -> str:
        return squeezed(self.prompt)

    def shows(self, text: str) -> bool:
        """Whether the prompt holds a text, white space aside."""
        return bool(text.strip()) and squeezed(text) in self._shown

    def fits(self, text: str) -> bool:
        """Whether a turn may say a text."""
        return len(self.renderer.encode(text)) < self.room

    @property
    def asked(self) -> Known:
        """The question that the prompt shows; of several the first."""
        return next((k for k in self.known if self.shows(k.question)), self.known[0])

    def calls(self, calls: Sequence[ToolCall], default: str) -> str:
        """Calls in the agent's own format."""
        return TOOL_WRITERS[self.cfg.agent.tool_parser or default](calls)


def squeezed(text: str) -> str:
    """A text without white space."""
    return "".join(text.split())


def boxed(answer: str) -> str:
    """An answer as the prompts ask for it."""
    return f"\\boxed{{{answer}}}"
