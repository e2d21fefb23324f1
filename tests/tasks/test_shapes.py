"""Pictures to count in: repeatable, held-out colours, and asked by the agent `chat`."""

from __future__ import annotations

import asyncio

import pytest

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.config.compose import compose
from recollect.domains.families import expert_policy, made_up
from recollect.images.image_files import pixels
from recollect.models.load import load_renderer
from recollect.sources.task_stream import TaskStream
from recollect.tasks.screens import colours
from recollect.tasks.shapes import CELL, GRID, KINDS, make_task
from recollect.types import BadInput, Group, Sampling

WHITE = (255, 255, 255)


def test_the_answer_is_what_the_picture_shows() -> None:
    for i in range(20):
        task = make_task(0, i, "held_out")
        picture, found = pixels(task.images[0]), dict.fromkeys(KINDS, 0)
        for place in range(GRID * GRID):
            x, y = place % GRID * CELL, place // GRID * CELL
            middle, corner, top = (picture.getpixel((x + a, y + b)) for a, b in ((7, 9), (2, 13), (2, 2)))
            if middle == WHITE:
                continue
            assert middle in colours("held_out")
            found["squares" if top != WHITE else "triangles" if corner != WHITE else "circles"] += 1
        kind = next(kind for kind in KINDS if kind in task.question)
        assert task.answers == (str(found[kind]),)


def test_tasks_are_the_same_for_the_same_seed() -> None:
    one, two, other = make_task(1, 2, "train"), make_task(1, 2, "train"), make_task(1, 3, "train")
    assert one.images[0] is two.images[0]
    assert one.images != other.images


def test_a_model_that_reads_text_alone_is_refused() -> None:
    with pytest.raises(BadInput, match="an image in the prompt, and tiny reads text alone"):
        TaskStream(compose(None, ["agent.agent_type=chat", "data.made_up=shapes", "agent.reward_name=em"]))


def play(sloppy: bool, count: int) -> list[Group]:
    cfg = compose(None, ["agent.agent_type=chat", "data.made_up=shapes", "agent.reward_name=sub_em"])
    renderer = load_renderer("scratch_vision")
    collector = Collector(cfg, {"*": Binding(expert_policy(made_up(cfg), renderer, sloppy), renderer)})
    tasks = [made_up(cfg).train(cfg, 0, i) for i in range(count)]
    return asyncio.run(collector.collect(tasks, 2, Sampling(max_tokens=8), "test"))


def test_the_agent_chat_shows_the_picture() -> None:
    groups = play(False, 4)
    made = [t for g in groups for t in g.trajectories]
    assert [t.failure for t in made] == [None] * 8
    assert all(t.reward == 1.0 and t.turns[0].images == g.task.images for g in groups for t in g.trajectories)


def test_the_sloppy_counter_counts_well_and_mixes_kinds_up() -> None:
    groups = play(True, 120)
    counts = [g.task.fields["counts"] for g in groups]
    said = [g.trajectories[0].answer.split() for g in groups]
    assert all(int(number) == of[kind] for (kind, number), of in zip(said, counts, strict=True))
    assert {kind for kind, _ in said} == set(KINDS)
    understood = [kind == g.task.fields["asked"] for g, (kind, _) in zip(groups, said, strict=True)]
    assert 0.25 < sum(understood) / len(groups) < 0.5
