"""A memory that an agent edits through tools: a core text and titled notes, within a budget of tokens."""

from recollect.tools.memory.store import Full, Memory

__all__ = ["Full", "Memory"]
