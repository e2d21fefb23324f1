"""Questions about a video, from its captions: load them, reason, finalize."""

from __future__ import annotations

from recollect.config import Config
from recollect.data.documents import pieces
from recollect.domains.captions import captions_of
from recollect.domains.domain import SYNTAX, Domain, finalize, reason
from recollect.domains.experts import video_expert
from recollect.domains.verify import said
from recollect.tools.tool import Tool, tool
from recollect.types import Task

PROMPT = f"""Answer a question about a video. You know it by its captions, each with the time at which it begins. \
{SYNTAX}
First load_context, then reason about the scenes and times that matter, then finalize."""


@tool
def load_context(task: Task, start: float = 0.0, end: float = -1.0) -> str:
    """Load the captions of the video, each with the time at which it begins.

    Args:
        start: The first second to show.
        end: The last second to show; -1 shows all.
    """
    if task.context is None:
        return "There are no captions."
    text = task.context if isinstance(task.context, str) else "".join(pieces(task.context))
    shown = [c for c in captions_of(text) if c.start is None or (c.start >= start and (end < 0 or c.start <= end))]
    return "\n".join(map(str, shown)) or "There are no captions between these times."


def tools(cfg: Config) -> list[str | Tool]:
    """What the agent may call."""
    return [load_context, reason, finalize]


def missing(task: Task, cfg: Config) -> str:
    """What a data row lacks."""
    given = task.context.strip() if isinstance(task.context, str) else task.context
    return "" if given else f"a video task needs its captions under data.context_key={cfg.data.context_key}"


VIDEO = Domain("video", PROMPT, tools, said, video_expert, missing=missing)
