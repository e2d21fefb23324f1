"""Questions that need several look-ups: decompose, search hop by hop, finalize."""

from __future__ import annotations

from recollect.config import Config
from recollect.domains.built_in_world import with_passages
from recollect.domains.domain import SYNTAX, Domain, Provision, decompose, finalize, reason
from recollect.domains.experts import mhqa_expert
from recollect.domains.passages import search
from recollect.domains.verify import said
from recollect.tools.tool import Tool
from recollect.types import Task

PROMPT = f"""Answer a question whose answer needs several facts. {SYNTAX}
First decompose the question, then search for one fact after another, each search with what the last one found, \
then finalize."""


def tools(cfg: Config) -> list[str | Tool]:
    """What the agent may call; without a corpus of the run, ``search`` looks in the task's own document."""
    return [decompose, "search" if cfg.search.corpus or cfg.search.endpoint else search, reason, finalize]


def missing(task: Task, cfg: Config) -> str:
    """What a data row lacks."""
    searched = task.context is not None or cfg.search.corpus or cfg.search.endpoint
    place = f"data.context_key={cfg.data.context_key}"
    return "" if searched else f"an mhqa task needs passages under {place}, or set search.corpus or search.endpoint"


OWN = Provision("the few passages that come with recollect", with_passages)
MHQA = Domain("mhqa", PROMPT, tools, said, mhqa_expert, missing=missing, provision=OWN)
