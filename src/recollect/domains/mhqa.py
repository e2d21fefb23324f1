"""Questions that need several look-ups: decompose, search hop by hop, finalize."""

from __future__ import annotations

from recollect.config import Config
from recollect.domains.base import SYNTAX, Domain, decompose, finalize, reason
from recollect.domains.experts import mhqa_expert
from recollect.domains.passages import search
from recollect.domains.verify import said
from recollect.tools.base import Tool

PROMPT = f"""Answer a question whose answer needs several facts. {SYNTAX}
First decompose the question, then search for one fact after another, each search with what the last one found, \
then finalize."""


def tools(cfg: Config) -> list[str | Tool]:
    """What the agent may call; without a corpus of the run, ``search`` looks in the task's own document."""
    return [decompose, "search" if cfg.search.corpus or cfg.search.endpoint else search, reason, finalize]


MHQA = Domain("mhqa", PROMPT, tools, said, mhqa_expert)
