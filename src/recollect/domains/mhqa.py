"""Questions that need several look-ups: decompose, search hop by hop, finalize."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

from recollect.chat.text_calls import SEARCH_TOOLS
from recollect.config import Config
from recollect.domains.built_in_world import with_passages
from recollect.domains.domain import SYNTAX, Domain, Provision, decompose, finalize, reason
from recollect.domains.expert_texts import (
    GIVE_UP,
    best,
    content,
    known_answer,
    outputs,
    sentences,
    shortened,
    supported,
)
from recollect.domains.given_context import as_document
from recollect.domains.passages import search
from recollect.domains.verify import said
from recollect.rewards.domain_scoring import DomainScoring
from recollect.rewards.parts import JudgedTrajectory, saturated
from recollect.tasks.names import Split, names, values
from recollect.tasks.needle import NeedleShape, distractor, holds, question, trusts
from recollect.tools.tool_definition import Tool
from recollect.types import Action, Task

CORPUS = 1 << 20  # bytes of a document that is searched through an index and not held in the task
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


# ---- the scripted expert ----


_CHAIN = re.compile(r"What does the one (\w+) trusts hold\?")
MOST_HOPS = 4


def mhqa_expert(task: Task, actions: list[Action]) -> str:
    """Decompose, then a search for each part, then the answer."""
    chain = _CHAIN.fullmatch(task.question.strip())
    found = outputs(actions, "search")
    if chain:
        return _chained(chain[1], len(actions), found)
    parts = hops(task.question)
    if not actions:
        return f"decompose: {'; '.join(parts)}"
    facts = _facts(parts, found)
    if len(found) < len(parts):
        return f"search: {_asked(parts[len(found)], facts)}"
    read = "\n".join(found)
    if len(actions) == len(parts) + 1:
        return f"reason: {shortened(best(task.question, sentences(read))) or 'nothing was found'}"
    answer = known_answer(task, read)
    told = shortened(" ".join(fact for fact in facts if fact)) if facts[0] else GIVE_UP  # no answer without the first
    return f"finalize: {answer if answer is not None else told}"


def _facts(parts: list[str], found: list[str]) -> list[str | None]:
    """The supporting sentence of each part so far; a later part builds on what the one before it found."""
    facts: list[str | None] = []
    for i, part in enumerate(parts[: len(found)]):
        lines = [s for text in found[: i + 1] for s in sentences(text) if s not in facts]
        own = not any(facts) or re.search(r"\s[A-Z]", part)  # it says itself what it is about
        facts.append(supported(_asked(part, facts), lines) or (supported(part, lines) if own else None))
    return facts


def _asked(part: str, facts: list[str | None]) -> str:
    """A part of the question, with the names of the fact before it."""
    names = re.findall(r"\b[A-Z]\w+", (facts[-1] if facts else None) or "")
    return " ".join([part, *dict.fromkeys(names)])


def hops(question: str) -> list[str]:
    """The smaller questions of a question: what stands between "and", commas and marks."""
    parts = [p.strip() for p in re.split(r"[?;,]|\band\b", question) if content(p)]
    return parts[:MOST_HOPS] or [question.strip()]


def _chained(name: str, done: int, found: list[str]) -> str:
    """The made-up question: whom a name trusts, then what that one holds."""
    if done == 0:
        return f"decompose: {name} trusts, holds"
    if not found:
        return f"search: {name} trusts"
    link = re.search(rf"\b{name} trusts (\w+)\.", found[0])
    if link and len(found) == 1:
        return f"search: {link[1]} holds"
    fact = re.search(rf"\b{link[1]} holds (\w+)\.", found[-1]) if link else None
    return f"finalize: {fact[1] if fact else 'none'}"


# ---- made-up tasks ----


FACTS = 14
SHAPE = NeedleShape(chunks=1, facts_per_chunk=FACTS, hops=2, similar=0.3)


def make_task(rng: random.Random, split: Split) -> Task:
    """What does the one that somebody trusts hold? Two look-ups in a small collection of facts, one in a line."""
    first, second = needed = rng.sample(names(split), 2)
    value = rng.choice(values(split))
    facts = [distractor(rng, needed, split, SHAPE) for _ in range(FACTS - 2)]
    facts = [*facts, trusts(first, second), holds(second, value)]
    rng.shuffle(facts)
    return Task("", question(first, 2), "\n".join(facts), (value,))


OWN = Provision("the few passages that come with recollect", with_passages)


def searched(task: Task, path: Path, cfg: Config) -> Task:
    """A small file is the task's document; a folder or a large file is searched through an index."""
    if not path.is_dir() and path.stat().st_size <= CORPUS:
        return as_document(task, path, cfg)
    cfg.search.corpus = str(path)
    return task


def signs(reading: JudgedTrajectory, spoken: Sequence[str]) -> list[float]:
    """Several look-ups."""
    return [saturated(reading.used(*SEARCH_TOOLS, "load_context"), 2)]


MHQA = Domain(
    *("mhqa", PROMPT, tools, said, mhqa_expert, make_task),
    mixed=True,
    missing=missing,
    provision=OWN,
    context=searched,
    searches=True,
    scoring=DomainScoring(frozenset({*SEARCH_TOOLS, "decompose", "load_context"}), signs),
)
