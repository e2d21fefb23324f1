"""How many tokens each section of a document has, as an agent reads it."""

from __future__ import annotations

from recollect.agents.session import token_offsets
from recollect.chat import Renderer
from recollect.data.documents import centre_cut, sections
from recollect.data.questions import given_chunks
from recollect.types import Task


def section_sizes(task: Task, renderer: Renderer, size: int, split: str, most: int) -> list[int]:
    """Tokens of each section, of at most ``size``; ``most`` sections are read, 0 means all."""
    given = given_chunks(task.context)
    offsets = lambda text: token_offsets(renderer.tokenizer, text)
    texts = [task.context] if given is None else given
    parts = (part for text in texts for part in sections(text, offsets, size, split))
    return [len(renderer.encode(part)) for part in centre_cut(parts, most)]
