"""The oracle of an agent that searches: it asks with the question's words, reads, and answers what it has read."""

from __future__ import annotations

from recollect.domains.expert_texts import content
from recollect.oracles.moment import UNKNOWN, Moment
from recollect.oracles.reading_oracle import around
from recollect.types import ToolCall

TOOLS = ("search", "google_search")
THOUGHT = 48  # tokens of what is quoted from a passage, at most


def search_step(moment: Moment) -> str:
    """A search with the question, a second with its content words, then the answer where a passage holds it."""
    known, done = moment.asked, len(moment.trajectory.actions)
    read = done and known.answer and any(known.answer in action.output for action in moment.trajectory.actions)
    queries = [known.question, " ".join(sorted(content(known.question), key=known.question.lower().find))]
    if not read and done < len(queries):
        tool = next((name for name in TOOLS if name in moment.cfg.agent.tools), TOOLS[0])
        thought = "I search for the question." if not done else "I try other words."
        return f"Thought: {thought}\n" + moment.calls([ToolCall(tool, {"query": queries[done]})], "react")
    if not read:
        return f"Thought: No passage says it.\nFinal Answer: {UNKNOWN}"
    fits = lambda part: moment.shows(part) and len(moment.renderer.encode(part)) <= THOUGHT
    quoted = next((part for line in known.evidence if (part := around(line, known.answer, fits))), known.answer)
    return f"Thought: {quoted}\nFinal Answer: {known.answer}"
