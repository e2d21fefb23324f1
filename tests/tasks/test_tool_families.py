"""Made-up tasks of the tool recipes: the expert solves all, the sloppy agent some, and the two sets never meet."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.chat import Renderer
from recollect.config import Config
from recollect.config.compose import compose
from recollect.domains.families import made_up
from recollect.models.load import load_tokenizer
from recollect.policies.scripted import Scripted
from recollect.registries import FAMILIES
from recollect.tasks import facts
from recollect.tasks.names import split_of
from recollect.types import Sampling, Task, Trajectory

TOOL_FAMILIES = ("arithmetic", "facts", "lists")
RECIPES = ("arithmetic", "react_search", "code")


def config(recipe: str, folder: Path) -> Config:
    return compose(recipe, [f"search.cache_dir={folder}"])


def play(cfg: Config, player: Callable[[str], str], tasks: list[Task]) -> list[Trajectory]:
    """What a scripted player makes of tasks with the recipe's own agent, tools and reward."""

    async def go() -> list[Trajectory]:
        renderer = Renderer(load_tokenizer(cfg.actor_rollout_ref.model.path, cfg.agent.template))
        collector = Collector(cfg, {"*": Binding(Scripted(renderer, player), renderer)})
        limit = cfg.agent.max_tokens_per_turn or 0
        groups = await collector.collect(tasks, 1, Sampling(max_tokens=limit), "play")
        await collector.close()
        return [t for g in groups for t in g.trajectories]

    return asyncio.run(go())


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_expert_solves_everything_and_the_sloppy_agent_less_than_half(recipe: str, tmp_path: Path) -> None:
    cfg = config(recipe, tmp_path)
    family = made_up(cfg)
    tasks = [make(cfg, 1, i) for make in (family.train, family.held_out) for i in range(60)]
    assert family.expert is not None
    assert family.sloppy is not None
    best = play(cfg, family.expert, tasks)
    assert [t.reward for t in best] == [1.0] * len(tasks)
    assert all(len(t.turns) <= cfg.agent.max_turns and t.tool_calls["calls"] == t.tool_calls["ok"] for t in best)
    some = play(cfg, family.sloppy, tasks)
    assert all(t.valid for t in some)
    assert 0.1 < sum(t.reward for t in some) / len(some) < 0.5


@pytest.mark.parametrize("name", TOOL_FAMILIES)
def test_the_two_sets_never_meet(name: str) -> None:
    """Every number and name of a task belongs to its set by a hash of its text."""
    cfg, family = Config(), FAMILIES[name]
    for make, split in ((family.train, "train"), (family.held_out, "held_out")):
        tasks = [make(cfg, 1, i) for i in range(400)]
        assert len({t.question for t in tasks}) > 200
        for task in tasks:
            words = re.findall(r"\d+", task.question) or [task.question.split()[4]]
            assert {split_of(w) for w in words} == {split}
            assert make(cfg, 1, tasks.index(task)) == task


def test_the_world_of_facts_is_two_worlds() -> None:
    train, held_out = facts.world("train"), facts.world("held_out")
    assert not set(train) & set(held_out)
    for people in (train, held_out):
        assert all(other in people and other != name for name, (other, _) in people.items())
    assert {v for _, v in train.values()}.isdisjoint(v for _, v in held_out.values())
    assert len(list(facts.passages())) == len(train) + len(held_out)
    assert list(facts.passages()) == list(facts.passages())


@pytest.mark.parametrize("name", TOOL_FAMILIES)
@pytest.mark.parametrize("prompt", ["", "What is?", "What is 1 times ", "</tool_call>", "```", "one two trusts hold?"])
def test_players_answer_anything(name: str, prompt: str) -> None:
    family = FAMILIES[name]
    assert family.expert is not None
    assert family.sloppy is not None
    assert isinstance(family.expert(prompt), str)
    assert isinstance(family.sloppy(prompt), str)
