"""The embedded task: one needed fact in a document far longer than the model's window.

Every fact has one form, "mira holds 472."; the question is "What does mira hold?". In the chained variant (hops=2) a
second form, "mira trusts kolu.", links two facts, and the question is "What does the one mira trusts hold?". All other
facts are distractors, a share of them about names that differ from the needed one by a single syllable.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

from recollect.config import Config
from recollect.tasks.names import Split, names, similar_names, similar_values, values
from recollect.types import Task

NOTHING = "none"  # what an empty memory says


@dataclass(frozen=True)
class NeedleShape:
    """How documents are made."""

    chunks: int = 4  # document length, in sections of facts_per_chunk facts
    facts_per_chunk: int = 6
    hops: int = 1  # 1: one needed fact; 2: two chained facts
    similar: float = 0.15  # share of distractors one syllable away from a needed name


def holds(name: str, value: str) -> str:
    """A fact."""
    return f"{name} holds {value}."


def trusts(name: str, other: str) -> str:
    """A link between two names, for the chained variant."""
    return f"{name} trusts {other}."


def question(name: str, hops: int) -> str:
    """The question about a name."""
    return f"What does {name} hold?" if hops == 1 else f"What does the one {name} trusts hold?"


def distractor(rng: random.Random, needed: list[str], split: Split, shape: NeedleShape) -> str:
    """A fact about some name that is not needed, sometimes one that looks like a needed name."""
    pool = similar_names(rng.choice(needed), split) if rng.random() < shape.similar else names(split)
    name = rng.choice(pool)
    while name in needed:
        name = rng.choice(names(split))
    if shape.hops == 2 and rng.random() < 0.3:
        other = rng.choice(names(split))
        return trusts(name, other if other not in needed else name)
    return holds(name, rng.choice(values(split)))


def document(rng: random.Random, split: Split, shape: NeedleShape) -> tuple[str, str, str]:
    """A (text, question, answer) with the needed facts at random places, a link always before what it leads to."""
    needed = rng.sample(names(split), shape.hops)
    value = rng.choice(values(split))
    facts = [distractor(rng, needed, split, shape) for _ in range(shape.chunks * shape.facts_per_chunk)]
    places = sorted(rng.sample(range(len(facts)), shape.hops))
    facts[places[-1]] = holds(needed[-1], value)
    if shape.hops == 2:
        facts[places[0]] = trusts(needed[0], needed[1])
    return " ".join(facts), question(needed[0], shape.hops), value


def make_task(seed: int, index: int, split: Split, shape: NeedleShape) -> Task:
    """Task number ``index`` of the endless stream that ``seed`` names; it depends on nothing else."""
    rng = random.Random(f"needle:{split}:{seed}:{shape.hops}:{shape.chunks}:{index}")
    text, asked, answer = document(rng, split, shape)
    fields = {"sections": shape.chunks}
    return Task(f"needle-{split}-{seed}-{shape.chunks}-{index}", asked, text, (answer,), "needle", fields)


def tasks(seed: int, split: Split, shape: NeedleShape, count: int) -> list[Task]:
    """The first ``count`` tasks of a stream."""
    return [make_task(seed, i, split, shape) for i in range(count)]


def expert_memory(asked: str, chunk: str, memory: str) -> str:
    """What a perfect reader writes after this chunk: the sentence that matters so far, else what it had."""
    words = asked.rstrip("?").split()
    chained = "trusts" in words
    facts = {s.split()[0]: s.split() for s in chunk.replace(".", " .").split(" .") if len(s.split()) == 3}
    name = words[4] if chained else words[2]
    if chained:
        link = memory.rstrip(".").split() if " trusts " in memory else facts.get(name, [])
        if len(link) != 3 or link[0] != name or link[1] != "trusts":
            return memory
        target = facts.get(link[2], [])
        found = target if len(target) == 3 and target[1] == "holds" else link
        return f"{found[0]} {found[1]} {found[2]}"
    fact = facts.get(name, [])
    return f"{fact[0]} holds {fact[2]}" if len(fact) == 3 and fact[1] == "holds" else memory


def expert_answer(memory: str) -> str:
    """The answer a perfect reader gives from its memory."""
    words = memory.split()
    return rf"\boxed{{ {words[2] if len(words) == 3 and words[1] == 'holds' else NOTHING}}}"


@dataclass(frozen=True)
class PolicyMix:
    """How often the base model's teacher does each thing when a section holds nothing that is needed."""

    keep: float = 0.25  # copy the memory
    forget: float = 0.45  # write "none"; the rest of the time it writes down a fact that is not needed


@dataclass(frozen=True)
class Demonstration:
    """One prompt (question, chunk, memory; chunk None: the answer turn) and what to write."""

    question: str
    chunk: str | None
    memory: str
    response: str


def skill_stream(
    seed: int,
    shape: NeedleShape,
    mix: PolicyMix,
    split: Split = "train",
    hard: float = 0.3,
    recall: float = 0.0,
    chained: float = 0.25,
) -> Iterator[Demonstration]:
    """Endless single-turn examples that teach the skill (read, find, copy, format) but a poor memory policy.

    A needed fact in the section is always found and written. Otherwise the teacher keeps, forgets or overwrites at
    random, so a model trained on this can do each of them and does not know when: that is left to reinforcement.
    """
    rng = random.Random(f"skill:{seed}")
    while True:
        facts = max(2, shape.facts_per_chunk + rng.randint(-2, 2))
        if recall and rng.random() < recall:
            yield _recall(rng, facts, split)
            continue
        hops = 2 if rng.random() < chained else 1
        yield _skill(rng, NeedleShape(1, facts, hops, hard), mix, split)


def _skill(rng: random.Random, shape: NeedleShape, mix: PolicyMix, split: Split) -> Demonstration:
    needed = rng.sample(names(split), shape.hops)
    asked = question(needed[0], shape.hops)
    value = rng.choice(values(split))
    final = f"{needed[-1]} holds {value}"
    roll = rng.random()
    if roll < 0.12:  # answer turn
        memory = final if rng.random() < 0.9 else _junk_memory(rng, split)
        return Demonstration(asked, None, memory, expert_answer(memory))
    facts = [distractor(rng, needed, split, shape) for _ in range(shape.facts_per_chunk)]
    link = f"{needed[0]} trusts {needed[-1]}"
    linked = shape.hops == 2 and rng.random() < 0.5
    held = link if linked else (NOTHING if rng.random() < 0.5 else _junk_memory(rng, split))
    if roll < 0.6:  # the section holds what is needed next
        facts[rng.randrange(len(facts))] = (link if shape.hops == 2 and not linked else final) + "."
        chunk = " ".join(facts)
        return Demonstration(asked, chunk, held, f" {expert_memory(asked, chunk, held)}")
    memory = final if rng.random() < 0.6 else held
    kind = rng.random()
    if kind < mix.keep or (memory == NOTHING and kind < mix.keep + mix.forget):
        response = memory
    elif kind < mix.keep + mix.forget:
        response = NOTHING
    else:
        response = rng.choice(facts).rstrip(".")
    return Demonstration(asked, " ".join(facts), memory, f" {response}")


def _recall(rng: random.Random, count: int, split: Split) -> Demonstration:
    """Repeat a section's facts in another order: a look-up per fact, so a model learns to look up much sooner.

    Half of the sections have values with the same first digit. Otherwise a model may learn to copy what follows that
    digit, wherever it is, instead of the value that belongs to the name.
    """
    first = rng.choice(names(split))
    pool = similar_names(first, split) if rng.random() < 0.5 else names(split)
    every = values(split)
    close = similar_values(rng.choice(every), split) if rng.random() < 0.5 else every
    facts = [holds(name, rng.choice(close)) for name in rng.sample(pool, count)]
    return Demonstration("Write what matters", " ".join(facts), NOTHING, " " + " ".join(rng.sample(facts, len(facts))))


def _junk_memory(rng: random.Random, split: Split) -> str:
    return f"{rng.choice(names(split))} holds {rng.choice(values(split))}"


_FIELD = r"(?:{tag}: |<{low}>\n)(.*?)(?:\n|\Z)"


def expert(prompt: str) -> str:
    """The scripted expert: what a perfect reader replies to a prompt of the recurrent agent."""

    def part(tag: str) -> str | None:
        found = re.search(_FIELD.format(tag=tag, low=tag.lower()), prompt)
        return found.group(1) if found else None

    asked, chunk, memory = part("Question") or "", part("Section"), part("Memory") or NOTHING
    return expert_answer(memory) if chunk is None else f" {expert_memory(asked, chunk, memory)}"


CARE = 0.8, 0.5  # how often the sloppy reader does what the expert does, reading and answering


def sloppy(prompt: str) -> str:
    """A reader that knows the forms but has a poor policy in both roles: it often forgets and often answers wrongly."""
    rng, right = random.Random(f"sloppy:{prompt}"), expert(prompt)
    answering = right.startswith("\\boxed")
    if rng.random() < CARE[answering]:
        return right
    if answering:
        value = rng.choice(values("train"))
        return rng.choice([rf"\boxed{{ {NOTHING}}}", rf"\boxed{{ {value}}}", f" {value}"])
    fact = f"{rng.choice(names('train'))} holds {rng.choice(values('train'))}"
    return f" {rng.choice([NOTHING, NOTHING, fact])}"


def shape_of(cfg: Config, chunks: int, held_out: bool = False) -> NeedleShape:
    """The made-up documents that the configuration asks for, at some length."""
    needle = cfg.data.needle
    return NeedleShape(chunks, needle.facts_per_chunk, needle.hops, needle.val_similar if held_out else needle.similar)


def chunks_at(cfg: Config, step: int) -> int:
    """How long made-up training documents are at a step (they may grow)."""
    needle = cfg.data.needle
    if needle.grow_steps <= 0 or step >= needle.grow_steps:
        return needle.chunks
    return round(needle.start_chunks + (needle.chunks - needle.start_chunks) * step / needle.grow_steps)


def train_task(cfg: Config, step: int, index: int) -> Task:
    """A training task of the recipe."""
    return make_task(cfg.trainer.seed, index, "train", shape_of(cfg, chunks_at(cfg, step)))


def held_out_task(cfg: Config, multiple: int, index: int) -> Task:
    """A held-out task, at a multiple of the training length."""
    return make_task(7_777, index, "held_out", shape_of(cfg, sections(cfg, multiple), held_out=True))


def sections(cfg: Config, multiple: int) -> int:
    """Sections of a held-out document."""
    return cfg.data.needle.chunks * multiple
