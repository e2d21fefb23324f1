"""What a run says at its start."""

from __future__ import annotations

import pytest
import torch

from recollect.algos.advantage import ADVANTAGES
from recollect.config.compose import compose
from recollect.config.startup_messages import startup_messages
from recollect.registries import ESTIMATORS

ONE = "actor_rollout_ref.rollout.n=1"


@pytest.mark.parametrize("name", [n for n in ADVANTAGES if n != "gae"])
def test_one_attempt_is_warned_of_where_it_teaches_nothing(name: str) -> None:
    rewards, mask = torch.tensor([[0.0, 1.0], [0.0, 0.0]]), torch.ones(2, 2, dtype=torch.bool)
    one_each = torch.arange(2)
    advantages, _ = ADVANTAGES[name](rewards, None, mask, one_each, one_each, baselines=torch.tensor([0.5, 0.5]))
    assert bool(advantages.any()) == (not ESTIMATORS[name].compares)
    said = " ".join(startup_messages(compose("needle", [f"algorithm.adv_estimator={name}", ONE])))
    assert ("nothing is learnt from rewards" in said) == ESTIMATORS[name].compares


def test_several_attempts_or_questions_are_not_warned_of() -> None:
    for settings in (
        ["algorithm.adv_estimator=grpo", "actor_rollout_ref.rollout.n=2"],
        ["algorithm.adv_estimator=grpo", ONE, "agent.agent_type=tool_memory", "data.made_up=ledger"],
        ["algorithm.adv_estimator=grpo", ONE, "data.offline_files=x.jsonl"],
    ):
        assert "nothing is learnt" not in " ".join(startup_messages(compose("needle", settings)))
