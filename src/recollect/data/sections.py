"""Documents that are already divided into sections, which are read as they are given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from recollect.config import Config
from recollect.data.questions import given_chunks
from recollect.registries import AGENTS
from recollect.types import BadInput, Task

SECTIONS = "raw_chunks"  # the column of the two-stage system's rows that holds them
IN_THEIR_OWN = "synth"  # the data source whose documents are read in the chunks that its tools search


class Sections(list[Any]):
    """A document in sections of its own; every agent that reads in sections reads these."""


def sections_given(row: Mapping[str, Any], place: str) -> Sections | None:
    """The sections that a row of the two-stage system brings; None where its document is one running text."""
    given = row.get(SECTIONS)
    about = row.get("extra_info")
    if given is None and row.get("data_source") == IN_THEIR_OWN and isinstance(about, Mapping):
        given = about.get("chunks")
    if given is None:
        return None
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        raise BadInput(f"{place}: {SECTIONS} has to be a list of sections, not a {type(given).__name__}")
    return Sections(given)


def checked_texts(context: Any, where: str) -> list[str] | None:
    """The texts of a document in sections, all of which can be read; None for a running text."""
    try:
        chunks = given_chunks(context)
        return None if chunks is None else list(chunks)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from None


def section_limit(cfg: Config) -> tuple[str, int] | None:
    """The key and value of the longest section that the agent reads at once; None for one without sections."""
    spec = AGENTS.of(cfg.agent.agent_type)
    return spec.section_limit(cfg) if spec and spec.section_limit else None


def recut(tasks: Sequence[Task], cfg: Config, count: Callable[[], Callable[[str], int]]) -> str:
    """What is said about given sections that are read in several parts; empty when none is.

    ``count`` makes the function that counts tokens; it is asked only where a section may be too long.
    """
    limit = section_limit(cfg)
    if limit is None:
        return ""
    texts = [text for task in tasks for text in given_chunks(task.context) or ()]
    long = [text for text in texts if len(text.encode()) > limit[1]]  # a token has at least a byte
    tokens = count() if long else len
    over = sum(tokens(text) > limit[1] for text in long)
    if not over:
        return ""
    return f"{over:,} of {len(texts):,} given sections are longer than {limit[0]}={limit[1]}; each is read in parts"


def agents_named(rows: Sequence[Task]) -> Iterator[str]:
    """The agents that rows name, each once."""
    yield from dict.fromkeys(str(task.fields["agent_name"]) for task in rows if task.fields.get("agent_name"))
