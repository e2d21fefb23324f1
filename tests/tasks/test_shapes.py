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
from recollect.types import BadInput, Sampling

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


def test_the_agent_chat_shows_the_picture() -> None:
    cfg = compose(None, ["agent.agent_type=chat", "data.made_up=shapes", "agent.reward_name=em"])
    renderer = load_renderer("scratch_vision")
    collector = Collector(cfg, {"*": Binding(expert_policy(made_up(cfg), renderer), renderer)})
    tasks = [made_up(cfg).train(cfg, 0, i) for i in range(4)]
    groups = asyncio.run(collector.collect(tasks, 2, Sampling(max_tokens=8), "test"))
    made = [t for g in groups for t in g.trajectories]
    assert [t.failure for t in made] == [None] * 8
    assert all(t.reward == 1.0 and t.turns[0].images == g.task.images for g in groups for t in g.trajectories)
