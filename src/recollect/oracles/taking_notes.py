"""The oracle of the agent `tool_memory`: a note for each sentence that a question will need, and a search for it."""

from __future__ import annotations

from recollect.oracles.moment import UNKNOWN, Moment, boxed
from recollect.types import ToolCall

IDLE = "There is nothing to note."
DONE = "Done."
TITLE = 6  # words of a note's title


def take_note(moment: Moment) -> str:
    """Notes of the evidence in this section, then the end of the conversation."""
    if moment.trajectory.actions:
        return DONE
    found = dict.fromkeys(line for known in moment.known for line in known.evidence if moment.shows(line))
    calls = [ToolCall("memory_add", {"title": _title(line), "content": line}) for line in found]
    return moment.calls(calls, moment.renderer.parser) if calls else IDLE


def look_up(moment: Moment) -> str:
    """A search with the question, then the answer if it was found."""
    known = moment.asked
    if not moment.trajectory.actions and "bm25" in moment.cfg.memory.search:
        query = ToolCall("memory_bm25_retrieve", {"query": known.question})
        return moment.calls([query], moment.renderer.parser)
    return boxed(known.answer if moment.shows(known.answer) else UNKNOWN)


def _title(line: str) -> str:
    return " ".join(line.split()[:TITLE]).strip(" ,;:.")
