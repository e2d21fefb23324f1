"""Conversations for training, validation and test. A conversation is in one of them, with all of its questions."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from recollect.data.locomo import CATEGORIES, LocomoConversation
from recollect.types import BadInput

PARTS = ("train", "val", "test")
NUM_TRAIN, NUM_VAL = 600, 100  # questions that the default split has at least
NAMED = {"memory-r1": "conv-26/conv-30", "all": "//*"}  # other names of splits; * stands for all others
HOW = "name conversations as in conv-26,conv-41/conv-30/conv-42 (train/val/test), or give shares as in 60/10/30"

Parts = dict[str, list[LocomoConversation]]
Asked = dict[str, Mapping[str, list[dict[str, object]]]]  # part → conversation → the questions that are asked of it


def split(conversations: Sequence[LocomoConversation], given: str | None) -> Parts:
    """The parts that a text names; without one, the first conversations with enough questions for the guide."""
    if given is None:
        return _enough(conversations)
    fields = [part.strip() for part in NAMED.get(given, given).split("/")]
    if len(fields) == 3 and all(re.fullmatch(r"\d+(\.\d+)?", field) for field in fields):
        return _by_shares(conversations, [float(field) for field in fields], given)
    if len(fields) not in (2, 3):
        raise BadInput(f"--split {given} is unknown; known: {', '.join(NAMED)}, or {HOW}")
    return _by_names(conversations, fields if len(fields) == 3 else [*fields, "*"], given)


def _enough(conversations: Sequence[LocomoConversation]) -> Parts:
    """In the order of the file: 600 questions at least to train, then 100 to validate; the rest is the test."""
    parts: Parts = {name: [] for name in PARTS}
    for talk in conversations:
        short = [p for p, n in (("train", NUM_TRAIN), ("val", NUM_VAL)) if count(parts[p]) < n]
        parts[short[0] if short else "test"].append(talk)
    if not parts["test"]:
        there = f"{count(conversations)} questions in {len(conversations)} conversations"
        raise BadInput(
            f"{there} do not give {NUM_TRAIN} to train on, {NUM_VAL} to validate and a test: {HOW} (--split)"
        )
    return parts


def _by_shares(conversations: Sequence[LocomoConversation], shares: Sequence[float], given: str) -> Parts:
    """Whole conversations, in the order of the file, of about these shares of the questions."""
    total, every = sum(shares), count(conversations)
    if not total or not every:
        raise BadInput(f"--split {given}: the shares are all 0")
    ends = [sum(shares[: i + 1]) / total for i in range(3)]
    parts: Parts = {name: [] for name in PARTS}
    done = 0
    for talk in conversations:
        middle = (done + len(talk.questions) / 2) / every
        parts[PARTS[next(i for i in range(3) if middle < ends[i] or i == 2)]].append(talk)
        done += len(talk.questions)
    empty = [name for name, share in zip(PARTS, shares, strict=True) if share and not parts[name]]
    if empty:
        raise BadInput(f"--split {given}: no whole conversation of {len(conversations)} falls in {empty[0]}; {HOW}")
    return parts


def _by_names(conversations: Sequence[LocomoConversation], fields: Sequence[str], given: str) -> Parts:
    known = {talk.name: talk for talk in conversations}
    chosen = [[name.strip() for name in field.split(",") if name.strip()] for field in fields]
    named = [name for names in chosen for name in names if name != "*"]
    for name in named:
        if name not in known:
            raise BadInput(f"--split {given}: there is no conversation {name}; there are {', '.join(known)}")
        if named.count(name) > 1:
            raise BadInput(f"--split {given}: {name} is named twice, and a conversation is in one part only")
    rest = [name for name in known if name not in named]
    if sum("*" in names for names in chosen) > 1:
        raise BadInput(f"--split {given}: * stands for all other conversations, so it can be there once")
    taken = [[n for name in names for n in (rest if name == "*" else [name])] for names in chosen]
    return {part: [known[name] for name in names] for part, names in zip(PARTS, taken, strict=True)}


def asking(parts: Parts, categories: str | None) -> Parts:
    """The parts with questions of some categories alone to train on, such as 1,2,3,4; None: of all."""
    if categories is None:
        return parts
    if not re.fullmatch(r"\s*[1-5]\s*(,\s*[1-5]\s*)*", categories):
        known = ", ".join(f"{number} {name}" for number, name in CATEGORIES.items())
        raise BadInput(f"--train-categories {categories}: give numbers as in 1,2,3,4 of {known}")
    wanted = {int(number) for number in categories.split(",")}
    chosen = [
        replace(talk, questions=[q for q in talk.questions if q["category"] in wanted]) for talk in parts["train"]
    ]
    return {**parts, "train": chosen}


def count(conversations: Sequence[LocomoConversation]) -> int:
    """How many questions some conversations have."""
    return sum(len(talk.questions) for talk in conversations)


def drawn(parts: Parts, wanted: Mapping[str, int | None], seed: int) -> Asked:
    """The questions of each part: all of them, or so many, drawn by the seed and in their order."""
    return {part: _drawn(part, talks, wanted.get(part), seed) for part, talks in parts.items()}


def _drawn(
    part: str, talks: Sequence[LocomoConversation], wanted: int | None, seed: int
) -> Mapping[str, list[dict[str, object]]]:
    every = [(talk.name, question) for talk in talks for question in talk.questions]
    if wanted is not None and not 1 <= wanted <= len(every):
        names = ", ".join(talk.name for talk in talks) or "no conversation"
        raise BadInput(f"--num-{part} {wanted}: its part of the split has {len(every)} questions ({names})")
    kept = range(len(every)) if wanted is None else random.Random(f"{part}:{seed}").sample(range(len(every)), wanted)
    asked: dict[str, list[dict[str, object]]] = {}
    for i in sorted(kept):
        name, question = every[i]
        asked.setdefault(name, []).append(question)
    return asked
