"""Checks before a run: whether the rewards fit the tasks, and how the user's own rewards are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from recollect.config import Config
from recollect.config.reward_terms import EVERY_QUESTION, KEY, parse
from recollect.data.questions import questions_of
from recollect.rewards.arguments import check_names
from recollect.rewards.convention import described
from recollect.rewards.decorator import REWARDS, is_ours
from recollect.rewards.judge import check_judge
from recollect.rewards.reward_names import find_reward
from recollect.runtime.plugins import find
from recollect.types import Task

SCORES = "memory.scores"


def check_reward(cfg: Config, tasks: Sequence[Task], say: Callable[[str], None]) -> None:
    """Refuse rewards that do not fit the tasks, or whose judge is away; say how those of the user's own are read."""
    check_names(find_reward(cfg.agent.reward_name, cfg), tasks)
    asked = [question.task(task) for task in tasks for question in questions_of(task)]
    for name in _scores(cfg):
        check_names(find_reward(name, cfg), asked, SCORES)
    for key, name in _named(cfg):
        function = find(name, REWARDS, key)
        if not is_ours(function):
            say(f"{key}={name} {described(function)}")
    if asks_judge(cfg):
        check_judge(cfg)


def asks_judge(cfg: Config) -> bool:
    """Whether a reward of the run is the judge's."""
    return any(name == "judge" for _, name in _named(cfg))


def _scores(cfg: Config) -> list[str]:
    """The rewards that score single answers inside memory_qa, if that is used."""
    used = EVERY_QUESTION in [term.name for term in parse(cfg.agent.reward_name)]
    return list(dict.fromkeys(name.partition("@")[0] for name in cfg.memory.scores)) if used else []


def _named(cfg: Config) -> Iterator[tuple[str, str]]:
    for term in parse(cfg.agent.reward_name):
        yield KEY, term.name
    for name in _scores(cfg):
        for term in parse(name):
            yield SCORES, term.name
