"""One question, one completion, with the prompt's limits; rewards one after another or many at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.chat import Renderer
from recollect.config import Config
from recollect.policies.scripted import Scripted
from recollect.types import Group, Sampling, Task


def config(**data: Any) -> Config:
    cfg = Config()
    cfg.agent.agent_type = "chat"
    for key, value in data.items():
        setattr(cfg.data, key, value)
    return cfg


def collector(tokenizer: Any, cfg: Config) -> Collector:
    renderer = Renderer(tokenizer)
    return Collector(cfg, {"*": Binding(Scripted(renderer, lambda text: r" \boxed{472}"), renderer)})


def attempt(tokenizer: Any, cfg: Config, question: str, n: int = 2) -> Group:
    task = Task("t", question, answers=("472",))
    (group,) = asyncio.run(collector(tokenizer, cfg).collect([task], n, Sampling(max_tokens=99), "k"))
    return group


def test_one_question_one_completion_one_reward(tokenizer: Any) -> None:
    cfg = config()
    cfg.agent.system_prompt = "Be brief."
    for trajectory in attempt(tokenizer, cfg, "What does mira hold?").trajectories:
        (turn,) = trajectory.turns
        asked = tokenizer.decode(turn.prompt_ids)
        assert asked == "<|system|>Be brief.<|end|><|user|>What does mira hold?<|end|><|assistant|>"
        assert (turn.role, trajectory.answer, trajectory.reward) == ("agent", r" \boxed{472}", 1.0)


@pytest.mark.parametrize(("how", "kept"), [("left", "j"), ("right", "a"), ("center", "aj")])
def test_a_long_question_is_cut(how: str, kept: str, tokenizer: Any) -> None:
    question = "abcdefghij" * 30 + "j"
    (first, _) = attempt(tokenizer, config(max_prompt_length=40, truncation=how), question).trajectories
    prompt = first.turns[0].prompt_ids
    assert len(prompt) == 40
    text = tokenizer.decode(prompt).removeprefix("<|user|>").removesuffix("<|end|><|assistant|>")
    assert text[0] == kept[0] if how != "left" else text[-1] == kept
    assert text[-1] == "j" or how == "right"


def test_a_long_question_that_may_not_be_cut_fails_alone(tokenizer: Any) -> None:
    (first, _) = attempt(tokenizer, config(max_prompt_length=40), "abcdefghij" * 30).trajectories
    assert first.failure is not None
    assert "data.max_prompt_length=40" in first.failure.message


@pytest.mark.parametrize(("manager", "most"), [("naive", 1), ("thread", 6)])
def test_the_reward_manager(manager: str, most: int, tokenizer: Any) -> None:
    running = peak = 0

    async def reward(answer: str) -> float:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.01)
        running -= 1
        return 1.0

    cfg = config()
    cfg.reward_model.reward_manager = manager
    made = collector(tokenizer, cfg)
    made.reward, made.builtin_reward = reward, False
    (group,) = asyncio.run(made.collect([Task("t", "q")], 6, Sampling(max_tokens=9), "k"))
    assert (peak, sum(t.reward for t in group.trajectories)) == (most, 6.0)
