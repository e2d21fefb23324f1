"""The agents `tool_memory` and `conversation_qa`, and the baselines that they are compared with."""

from __future__ import annotations

from dataclasses import dataclass, field

from recollect.config.schema.bounds import choice, not_negative, positive


@dataclass
class ToolMemory:
    """A memory that the agent `tool_memory` edits through tools; a conversation has `agent.max_turns` turns."""

    chunk_size: int = positive(5000)  # document tokens read per conversation; documents that come in chunks keep theirs
    # where chunks of a running text end; sentence: whole sentences only
    split: str = choice("token", "sentence", default="sentence")
    max_chunks: int = not_negative(0)  # longer documents are cut in the centre; 0: read everything
    # most tokens of what is remembered, such as core text and notes; default 4096, of conversation_qa 20000
    budget: int | None = positive(None)
    core_length: int = positive(1024)  # last tokens of the core text that every prompt shows
    titles_length: int = not_negative(256)  # tokens of the newest notes' titles that every prompt shows; 0: none
    max_turns: int | None = positive(None)  # turns of a conversation that reads a chunk; default agent.max_turns
    max_calls: int = positive(10)  # tool calls of one turn that are run
    max_length: int = positive(3000)  # characters of a tool's response
    # a longer one keeps its beginning (left), its end (right) or both (middle)
    truncate_side: str = choice("left", "middle", "right", default="middle")
    search: list[str] = choice("bm25", "embedding", default=["bm25"])  # searches of the QA phase
    search_in: str = choice("notes", "source")  # what they look in; source: the chunks that were read
    top_k: int = positive(5)  # what a search returns unless it asks for another number
    style: str = choice("instruct", "plain")  # wording of the prompts; plain: for the embedded model
    scores: list[str] = field(default_factory=lambda: ["qa_em"])  # reward memory_qa: a reward, or reward@source
    format_weight: float = not_negative(0.0)  # reward memory_qa: what a well-formed answer adds
    tool_weight: float = not_negative(0.0)  # reward memory_qa: what useful tool calls add


@dataclass
class ConversationMemory:
    """The agent `conversation_qa`: what it keeps of a conversation's sessions, at most `memory.budget` tokens."""

    # turns, sessions, observations: as they are, and searched for each question; recurrent: one text that the model
    # writes anew after each session; notes: those of tool_memory; whole: all of it, cut in the centre; none: nothing
    memory: str = choice("turns", "sessions", "observations", "recurrent", "notes", "whole", "none")
    method: str = choice("bm25", "dense", "hybrid")  # how things are found; hybrid: both ways, by reciprocal ranks
    top_k: int = positive(10)  # most things that a question is shown; fewer where the prompt has no room
    resolve_dates: bool = True  # say after "yesterday" or "last week" which date is meant


@dataclass
class Rag:
    """The baseline `rag`: the best chunks of the document, and the question."""

    method: str = choice("bm25", "dense", "hybrid")  # how chunks are found; hybrid: both ways, by reciprocal ranks
    chunk_size: int = positive(256)  # tokens of a chunk
    top_k: int = positive(5)  # chunks that are shown
