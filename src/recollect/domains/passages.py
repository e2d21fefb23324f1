"""The tool ``search`` over a task's own document, for tasks that bring what is to be searched."""

from __future__ import annotations

import re
from functools import lru_cache

from recollect.config import Config
from recollect.data.documents import pieces
from recollect.retrieval.text_index import TextIndex
from recollect.tools.search import NOTHING
from recollect.tools.tool_definition import tool
from recollect.types import Task

MOST = 20


def passages_of(text: str) -> list[str]:
    """The passages of a document: its paragraphs, or its lines where it has none, or its sentences."""
    for border in (r"\n\s*\n", r"\n", r"(?<=[.!?])\s+"):
        found = [p.strip() for p in re.split(border, text) if p.strip()]
        if len(found) > 1:
            return found
    return [text.strip()] if text.strip() else []


@lru_cache(maxsize=256)
def indexed(text: str) -> TextIndex:
    """The passages of a document, kept for the other attempts at its task."""
    index = TextIndex()
    for passage in passages_of(text):
        index.add(passage)
    return index


@tool
def search(query: str, task: Task, cfg: Config) -> str:
    """Search for passages about something.

    Args:
        query: What to look for, in a few words.
    """
    if not query.strip():
        raise ValueError("the query is empty")
    if task.context is None:
        return "There is nothing to search."
    text = task.context if isinstance(task.context, str) else "".join(pieces(task.context))
    index = indexed(text)
    found = index.search(query, min(cfg.search.top_k, MOST), "bm25")
    return "\n".join(index.texts[i][: cfg.search.max_length] for i in found) or NOTHING
