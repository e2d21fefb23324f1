"""Rewards with verl's four arguments, as `custom_reward_function` names them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recollect.config.compose import compose
from recollect.rewards import find_reward
from recollect.rewards.arguments import arguments
from recollect.rewards.convention import convention_of, described
from recollect.types import Completion, Task, Trajectory, Turn


def compute_score(data_source: str, solution_str: str, ground_truth: Any, extra_info: Any = None) -> float:
    return float(solution_str == ground_truth)


def said(text: str) -> Trajectory:
    done = Trajectory("t", 0)
    done.turns.append(Turn("agent", (), Completion((1,), (0.0,), "stop", 0, text)))
    done.answer = text
    return done


@pytest.mark.parametrize(
    ("fields", "answers", "truth"),
    [
        ({}, ("5",), "5"),
        ({}, ("5", "five"), ["5", "five"]),
        ({"reward_model": {"ground_truth": ["5"]}, "extra_info": {"index": 3}}, ("5",), ["5"]),
    ],
)
def test_the_arguments_are_the_rows(fields: dict[str, Any], answers: tuple[str, ...], truth: Any) -> None:
    task = Task("t", "2 + 3?", answers=answers, source="gsm8k", fields=fields)
    given = arguments(compute_score, task, said("4"))
    assert given["ground_truth"] == truth
    assert (given["data_source"], given["solution_str"]) == ("gsm8k", "4")
    assert given["extra_info"] == fields.get("extra_info", {})
    assert convention_of(compute_score) == "verl"
    assert "verl" in described(compute_score)


def test_options_reach_the_function(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def f(data_source, solution_str, ground_truth, extra_info=None, scale=1.0):\n    return scale\n")
    words = [f"custom_reward_function.path={file}", "custom_reward_function.name=f"]
    cfg = compose("needle", [*words, "+custom_reward_function.reward_kwargs.scale=0.5"])
    assert cfg.agent.reward_name == f"{file}:f(scale=0.5)"
    assert find_reward(cfg.agent.reward_name, cfg) is not None
