"""The made-up documents: held-out really is held out, and a perfect reader solves all of them."""

from __future__ import annotations

import asyncio
import re
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.chat import Renderer
from recollect.config.compose import compose
from recollect.policies.scripted import Scripted
from recollect.tasks.names import NOT_NAMES, names, similar_names, split_of, values
from recollect.tasks.needle import (
    NOTHING,
    NeedleShape,
    PolicyMix,
    expert,
    expert_answer,
    expert_memory,
    make_task,
    skill_stream,
    tasks,
)
from recollect.types import Sampling, Task

SHAPES = st.builds(
    NeedleShape,
    chunks=st.integers(1, 5),
    facts_per_chunk=st.integers(2, 8),
    hops=st.sampled_from([1, 2]),
    similar=st.sampled_from([0.0, 0.35, 1.0]),
)
COMMON = {"holds", "trusts", "What", "does", "hold", "the", "one"}


def facts_of(text: str) -> list[tuple[str, str, str]]:
    """(subject, verb, object) of each fact; fails on anything that is not one."""
    found = [tuple(s.split()) for s in text.rstrip(".").split(". ")]
    assert all(len(f) == 3 and f[1] in ("holds", "trusts") for f in found)
    return found  # type: ignore[return-value]


def asked_name(question: str) -> str:
    return question.rstrip("?").split()[4 if "trusts" in question else 2]


def words_of(task: Task) -> set[str]:
    text = f"{task.question} {task.context} {' '.join(task.answers)}"
    return set(re.findall(r"[a-zA-Z]+|\d+", text)) - COMMON


def test_the_two_sets_share_nothing_and_leave_nothing_out() -> None:
    assert set(names("train")).isdisjoint(names("held_out"))
    assert set(values("train")).isdisjoint(values("held_out"))
    assert len(names("train")) + len(names("held_out")) == 100 * 100 - len(NOT_NAMES)
    assert len(values("train")) + len(values("held_out")) == 1000
    assert 0.2 < len(names("held_out")) / 10_000 < 0.3
    assert NOTHING in NOT_NAMES


def test_the_sets_are_fixed_for_ever() -> None:
    """Changing these would let a released base model have seen what counts as held out."""
    assert [n for n in ("mira", "kolu", "bade", "zoru", "472", "007") if split_of(n) == "held_out"] == HELD_OUT_OF_SIX
    assert (len(names("held_out")), len(values("held_out"))) == HELD_OUT_COUNTS


HELD_OUT_OF_SIX = ["kolu"]
HELD_OUT_COUNTS = (2421, 229)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), index=st.integers(0, 10**6), shape=SHAPES)
def test_documents_use_names_and_values_of_their_own_set(seed: int, index: int, shape: NeedleShape) -> None:
    for split in ("train", "held_out"):
        used = words_of(make_task(seed, index, split, shape))
        assert used
        assert {w for w in used if split_of(w) != split} == set()
        assert used <= {*names(split), *values(split)}


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), index=st.integers(0, 10**6), shape=SHAPES)
def test_a_task_depends_on_its_arguments_alone(seed: int, index: int, shape: NeedleShape) -> None:
    import random

    first = make_task(seed, index, "train", shape)
    random.seed(index)
    make_task(seed + 1, index, "held_out", shape)
    assert make_task(seed, index, "train", shape) == first
    assert make_task(seed, index + 1, "train", shape).context != first.context
    assert make_task(seed + 1, index, "train", shape).context != first.context


def test_a_stream_is_its_tasks_in_order_with_ids_of_their_own() -> None:
    shape = NeedleShape()
    made = tasks(3, "train", shape, 50)
    assert made == [make_task(3, i, "train", shape) for i in range(50)]
    longer = [make_task(3, i, "train", NeedleShape(chunks=8)) for i in range(50)]
    held = tasks(3, "held_out", shape, 50)
    assert len({t.id for t in [*made, *longer, *held]}) == 150


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), shape=SHAPES)
def test_what_is_needed_is_there_once_and_nothing_contradicts_it(seed: int, shape: NeedleShape) -> None:
    task = make_task(seed, 0, "train", shape)
    facts = facts_of(task.context)
    assert len(facts) == shape.chunks * shape.facts_per_chunk
    name = asked_name(task.question)
    about = [(i, f) for i, f in enumerate(facts) if f[0] == name]
    assert len(about) == 1  # no distractor has the needed name as its subject
    place, fact = about[0]
    if shape.hops == 2:
        assert fact[1] == "trusts"
        linked = [(i, f) for i, f in enumerate(facts) if f[0] == fact[2]]
        assert len(linked) == 1
        assert linked[0][0] > place  # the link stands before what it leads to
        assert not [f for f in facts if f[1] == "trusts" and f[2] == fact[2] and f[0] != name]
        fact = linked[0][1]
    assert fact == (fact[0], "holds", task.answers[0])
    assert len(task.answers) == 1


@pytest.mark.parametrize("share", [0.0, 0.15, 0.35, 1.0])
def test_the_share_of_similar_names(share: float) -> None:
    similar = total = 0
    for task in tasks(0, "train", NeedleShape(chunks=10, facts_per_chunk=10, similar=share), 60):
        name = asked_name(task.question)
        others = [f[0] for f in facts_of(task.context) if f[0] != name]
        similar += sum((o[:2] == name[:2]) + (o[2:] == name[2:]) == 1 for o in others)
        total += len(others)
    by_chance = 2 * 99 / 9999
    assert similar / total == pytest.approx(share + (1 - share) * by_chance, abs=0.02)


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_similar_names_are_one_syllable_away(split: Any) -> None:
    for name in names(split)[::400]:
        near = similar_names(name, split)
        assert set(near) == {n for n in names(split) if (n[:2] == name[:2]) != (n[2:] == name[2:])}


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_values_to_repeat_often_begin_alike_and_are_their_names(split: Any) -> None:
    """By chance six values begin alike once in 10⁵; here half of the sections do, with any digit."""
    alike: list[str] = []
    made = list(islice(skill_stream(0, NeedleShape(facts_per_chunk=6), PolicyMix(), split, recall=1.0), 400))
    for example in made:
        facts = facts_of(example.chunk or "")
        assert sorted(facts_of(example.response)) == sorted(facts)
        first = {value[0] for _, _, value in facts}
        alike += first if len(first) == 1 else []
    assert 0.4 < len(alike) / len(made) < 0.6
    assert set(alike) == set("0123456789")


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("layout", ["chunk_first", "memory_first"])
@pytest.mark.parametrize("style", ["plain", "instruct"])
def test_the_expert_solves_everything_through_the_real_agent(
    hops: int, layout: str, style: str, tokenizer: Any
) -> None:
    memory = "recurrent.memory.config"
    cfg = compose("needle", [f"data.needle.hops={hops}", f"{memory}.layout={layout}", f"{memory}.style={style}"])
    renderer = Renderer(tokenizer)
    collector = Collector(cfg, {"*": Binding(Scripted(renderer, expert), renderer, trainable=False)})
    for split, chunks in (("train", 4), ("held_out", 9)):
        made = tasks(11, split, NeedleShape(chunks, 6, hops, 0.35), 12)  # type: ignore[arg-type]
        groups = asyncio.run(collector.collect(made, 1, Sampling(max_tokens=512), "expert"))
        for group in groups:
            attempt = group.trajectories[0]
            assert attempt.failure is None
            assert attempt.reward == 1.0, (group.task.question, attempt.notes, attempt.answer)
            assert len(attempt.turns) >= chunks  # it took several sections, not one look
            assert {t.role for t in attempt.turns} == {"memory", "qa"}


def test_the_expert_waits_for_the_link_and_says_none_when_it_found_nothing() -> None:
    asked = "What does the one mira trusts hold?"
    assert expert_memory(asked, "kolu holds 111. bade holds 222.", NOTHING) == NOTHING
    linked = expert_memory(asked, "bade trusts mira. mira trusts kolu.", NOTHING)
    assert linked == "mira trusts kolu"
    assert expert_memory(asked, "bade holds 222. kolu trusts bade.", linked) == linked
    assert expert_memory(asked, "bade holds 222. kolu holds 111.", linked) == "kolu holds 111"
    assert expert_memory(asked, "bade holds 222.", "kolu holds 111") == "kolu holds 111"
    assert expert_answer("kolu holds 111") == r"\boxed{ 111}"
    assert expert_answer(linked) == expert_answer(NOTHING) == r"\boxed{ none}"


def test_skill_examples_are_consistent() -> None:
    kinds = dict.fromkeys(("answer", "found", "kept", "forgot", "overwrote"), 0)
    for demo in islice(skill_stream(5, NeedleShape(), PolicyMix()), 3000):
        used = set(re.findall(r"\d+|[a-z]+", f"{demo.chunk or ''} {demo.memory}")) - {"holds", "trusts", "none"}
        assert {w for w in used if split_of(w) != "train"} == set()
        if demo.chunk is None:
            kinds["answer"] += 1
            assert demo.response == expert_answer(demo.memory)
            continue
        assert demo.response.startswith(" ")
        said, facts = demo.response[1:], [" ".join(f) for f in facts_of(demo.chunk)]
        due = expert_memory(demo.question, demo.chunk, demo.memory)
        if due in facts:  # what is needed next is in the section: it is always written down
            kinds["found"] += 1
            assert said == due
        elif said == demo.memory:
            kinds["kept"] += 1
        elif said == NOTHING:
            kinds["forgot"] += 1
        else:
            kinds["overwrote"] += 1
            assert said in facts
    assert all(count > 100 for count in kinds.values()), kinds


def test_skill_examples_depend_on_the_seed_alone() -> None:
    take = lambda seed: list(islice(skill_stream(seed, NeedleShape(), PolicyMix()), 20))
    assert take(1) == take(1)
    assert take(1) != take(2)
