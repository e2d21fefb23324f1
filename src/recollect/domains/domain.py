"""What makes a domain, and the actions that all of them share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.config import Config
from recollect.domains.given_context import as_document
from recollect.rewards.domain_scoring import DomainScoring
from recollect.tasks.family import Make
from recollect.tools.tool_definition import Tool, stop, tool
from recollect.types import Action, Task, ToolResult

if TYPE_CHECKING:
    from recollect.agents.session import Session

SYNTAX = """In each turn write one action as `tool: input`. The input is a text, or a JSON object where a tool takes \
several arguments. You are then shown its result. The tools:
{tools}
"""


@tool
async def reason(thought: str) -> str:
    """Think about what is known so far, in a sentence or two.

    Args:
        thought: What follows from it.
    """
    return "ok"


@tool
async def decompose(plan: str) -> str:
    """Split the question into smaller ones that are answered one after another.

    Args:
        plan: The smaller questions, in order.
    """
    return "ok"


@tool
async def finalize(answer: str) -> ToolResult:
    """Give the final answer and finish.

    Args:
        answer: The final answer, as short as it can be.
    """
    return stop(answer)


async def nothing_to_prepare(task: Task, session: Session) -> None:
    """Prepare nothing: the question is enough."""


def as_asked(task: Task) -> str:
    """The question as the data has it."""
    return task.question


def nothing_missing(task: Task, cfg: Config) -> str:
    """A question is enough."""
    return ""


@dataclass(frozen=True)
class Provision:
    """What the package gives a question that brings nothing of its own."""

    words: str  # what it is, for messages
    fill: Callable[[Task], Task]


@dataclass(frozen=True)
class Domain:
    """One domain of tasks."""

    name: str
    prompt: str  # the system prompt, with {tools}
    tools: Callable[[Config], list[str | Tool]]
    verify: Callable[[Task, Session, str], Awaitable[bool | None]]  # None: there is nothing to check against
    expert: Callable[[Task, list[Action]], str]  # the next action of a scripted agent
    tasks: Make | None = None  # makes up a task; None: they come from files alone
    mixed: bool = False  # the made-up tasks of the family `domains` have some of them
    prepare: Callable[[Task, Session], Awaitable[None]] = nothing_to_prepare
    ask: Callable[[Task], str] = as_asked  # the first message
    missing: Callable[[Task, Config], str] = nothing_missing  # what a data row lacks to be a task; empty: nothing
    runs_programs: bool = False  # its tools run what the model writes
    roles: tuple[str, ...] = ("agent",)  # who speaks; the agent first
    provision: Provision | None = None  # None: a question alone is enough, or has to bring what it is about
    context: Callable[[Task, Path, Config], Task] = as_document  # the task with what --context names
    context_needed: str = ""  # what a question without --context is told; empty: it needs none
    searches: bool = False  # it looks in the corpus of the run where a task has no document
    scoring: DomainScoring = field(default_factory=DomainScoring)  # what the trajectory reward asks of it
