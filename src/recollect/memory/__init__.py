"""A memory that an agent edits through tools: a core text and titled notes, within a budget of tokens."""

from recollect.memory.notes import Full, Memory
from recollect.memory.search import Finder

__all__ = ["Finder", "Full", "Memory"]
