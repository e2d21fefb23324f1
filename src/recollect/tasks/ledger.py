"""Made-up account books for agents with a memory: dated sessions that say what somebody holds now, and questions.

A session reads "day 3: mira holds 472. kolu holds 118."; what was said last counts. The first one opens all accounts of
the book. Questions ask for the latest value, who holds more, what two hold together, and how many accounts there are;
some of them after an earlier session.
"""

from __future__ import annotations

import random
import re
import zlib
from dataclasses import dataclass

from recollect.config import Config
from recollect.tasks.names import Split, names, values
from recollect.types import Task

KEPT, SWAPPED = 0.45, 0.25  # sessions that the sloppy clerk writes down, and the share of them with the wrong tool
LATEST, MORE, TOGETHER, COUNT = "latest", "more", "together", "count"


@dataclass(frozen=True)
class LedgerShape:
    """How books are made."""

    sessions: int = 4
    entries: int = 1  # entries of a later session, each about another account
    accounts: int = 3  # at most; a book has at least two
    questions: int = 4
    hard: float = 0.3  # share of questions that are not about one latest value
    early: float = 0.25  # share of questions that are asked after an earlier session


def make_task(seed: int, index: int, split: Split, shape: LedgerShape) -> Task:
    """Book number ``index`` of the endless stream that ``seed`` names; it depends on nothing else."""
    rng = random.Random(f"ledger:{split}:{seed}:{shape}:{index}")
    accounts = rng.sample(names(split), rng.randint(2, shape.accounts))
    held: dict[str, str] = {}
    sessions, states = [], []
    for day in range(1, shape.sessions + 1):
        count = len(accounts) if day == 1 else min(shape.entries, len(accounts))
        entries = [(name, rng.choice(values(split))) for name in rng.sample(accounts, count)]
        held.update(entries)
        text = " ".join(f"{name} holds {value}." for name, value in entries)
        sessions.append({"date": f"day {day}", "text": text})
        states.append(dict(held))
    questions = []
    for _ in range(shape.questions):
        early = rng.random() < shape.early
        position = rng.randint(1, shape.sessions) if early else shape.sessions
        asked, answer = _question(rng, states[position - 1], shape.hard)
        questions.append({"question": asked, "answer": answer, **({"position": position} if early else {})})
    fields = {"questions": questions}
    first = questions[0]
    named = f"ledger-{split}-{seed}-{shape.sessions}-{index}"
    return Task(named, str(first["question"]), sessions, (str(first["answer"]),), "ledger", fields)


def _question(rng: random.Random, held: dict[str, str], hard: float) -> tuple[str, str]:
    kind = rng.choice((MORE, TOGETHER, COUNT)) if rng.random() < hard and len(held) > 1 else LATEST
    if kind == LATEST:
        name = rng.choice(list(held))
        return f"What does {name} hold?", held[name]
    if kind == COUNT:
        return "How many names are there?", str(len(held))
    a, b = rng.sample(list(held), 2)
    if kind == TOGETHER:
        return f"What do {a} and {b} hold together?", str(int(held[a]) + int(held[b]))
    if held[a] == held[b]:
        return f"What does {a} hold?", held[a]
    return f"Who holds more, {a} or {b}?", max(a, b, key=held.__getitem__)


# ---- what an agent replies ----

OTHER = {"add": "update", "update": "add"}
_FACT = re.compile(r"(\w+) holds (\d+)")
_RESULT = re.compile(r"(\w{4}): (\d{3})")  # messages follow each other without a space here: of a word, the end counts


def expert(prompt: str) -> str:
    """The scripted expert: what a perfect clerk replies to a prompt of the agent ``tool_memory`` (style plain)."""
    return _read(prompt) if prompt.startswith("Section: ") else _answer(prompt)


def sloppy(prompt: str) -> str:
    """A clerk that knows the form of every reply but keeps poor notes; it looks up and answers as the expert does.

    It writes down less than half of the sessions, and sometimes takes ``add`` for ``update`` or the reverse. Its whims
    depend on the prompt alone.
    """
    if not prompt.startswith("Section: "):
        return _answer(prompt)
    rng = random.Random(zlib.crc32(prompt.encode()))
    if rng.random() >= KEPT:
        return " none"
    right = _read(prompt)
    if rng.random() >= SWAPPED:
        return right
    return "\n".join(f" {OTHER[line.split()[0]]} {line.split(maxsplit=1)[1]}" for line in right.split("\n"))


def _facts(prompt: str) -> list[tuple[str, str]]:
    return _FACT.findall(prompt.partition("\n")[0])


def _read(prompt: str) -> str:
    noted = prompt.partition("\nNotes: ")[2].partition("\n")[0].split(", ")
    return "\n".join(f" {'update' if name in noted else 'add'} {name}: {value}" for name, value in _facts(prompt))


def _answer(prompt: str) -> str:
    asked, _, rest = prompt.partition("\n")
    later = rest.partition("\nMemory: ")[2]  # what was said and found after the first message
    sought = _sought(asked)
    if not sought:
        found = re.search(r" list(\d+)", later)
        return rf"\boxed{{ {found.group(1)}}}" if found else " list"
    if "key_retrieve" not in later:
        return "\n".join(f" key_retrieve {name}" for name in sought)
    held = dict(_RESULT.findall(later.rpartition("key_retrieve")[2]))
    if any(name not in held for name in sought):
        return r"\boxed{ none}"
    if len(sought) == 1:
        return rf"\boxed{{ {held[sought[0]]}}}"
    if "more" in asked:
        return rf"\boxed{{ {max(sought, key=held.__getitem__)}}}"
    sum_of = f" calculator {held[sought[0]]}+{held[sought[1]]}"
    return rf"\boxed{{ {later.rpartition(sum_of)[2]}}}" if sum_of in later else sum_of


def _sought(asked: str) -> list[str]:
    """The accounts that a question names."""
    words = [word.strip("?,") for word in asked.split()][1:]  # without "Question:"
    if "together" in words:
        return [words[2], words[4]]
    if "more" in words:
        return [words[3], words[5]]
    return [] if "many" in words else [words[2]]


# ---- the family ----


def shape_of(cfg: Config, multiple: int = 1) -> LedgerShape:
    """The books that the configuration asks for."""
    given = cfg.data.ledger
    return LedgerShape(
        given.sessions * multiple, given.entries, given.accounts, given.questions, given.hard, given.early
    )


def train_task(cfg: Config, step: int, index: int) -> Task:
    """A training task of the recipe."""
    return make_task(cfg.trainer.seed, index, "train", shape_of(cfg))


def held_out_task(cfg: Config, multiple: int, index: int) -> Task:
    """A held-out task, at a multiple of the training length."""
    return make_task(7_777, index, "held_out", shape_of(cfg, multiple))


def sections(cfg: Config, multiple: int) -> int:
    """Sessions of a held-out book."""
    return cfg.data.ledger.sessions * multiple
