"""MemAgent's reward by hand, and the recipe that takes its settings."""

from __future__ import annotations

import pytest

from recollect.config.compose import compose, read_recipe
from recollect.rewards import find_reward
from recollect.types import Task

CASES = [  # worked out from the definition: (answer, accepted, reward)
    (r"The answer is \boxed{Paris}.", ["paris"], 1.0),
    (r"\boxed{Paris} or rather \boxed{Rome}", ["Paris"], 0.0),  # the last one counts
    (r"\boxed{New  York}", ["newyork"], 1.0),  # spaces are taken out
    (r"\boxed{the Beatles}", ["Beatles"], 0.0),  # articles are not
    (r"\boxed{St. Louis}", ["St Louis"], 0.0),  # nor is punctuation
    (r"\boxed{a {b} c}", ["a {b} c"], 1.0),
    (r"\boxed{two", ["two"], 0.0),  # never closed
    ("two", ["two"], 0.0),
    (r"\fbox{two}", ["two"], 0.0),
    (r"\boxed 42$ and more", ["42"], 1.0),  # with a space: up to the dollar sign
    (r"\boxed{x} but \boxed 7", ["7"], 1.0),
    (r"\boxed{\dfrac{1}{2}}", [r"\frac{1}{2}"], 1.0),
    (r"\boxed{50\%}", ["50"], 1.0),
    (r"\boxed{ .5}", ["0.5"], 1.0),  # " ." is " 0."
    (r"\boxed{x=.5}", ["x=0.5"], 0.0),  # and only there
    (r"\boxed{one}", ["two", "One"], 1.0),
    (r"\boxed{one}" + "x" * 300, ["one"], 0.0),  # only the last 300 characters are read
    (r"\boxed{one}" + "x" * 289, ["one"], 1.0),
]


@pytest.mark.parametrize(("answer", "accepted", "expected"), CASES)
def test_by_hand(answer: str, accepted: list[str], expected: float) -> None:
    reward = find_reward("memagent_em")
    assert reward(answer, Task("t", "?", answers=tuple(accepted))) == expected


def test_one_key_switches_the_recipe_to_memagents_settings() -> None:
    usual, theirs = compose("hotpotqa_memory", []), compose("hotpotqa_memory", ["like=memagent"])
    limits = theirs.recurrent.memory.config
    assert (limits.max_chunks, limits.layout, limits.chunk_size) == (8, "memory_first", 5000)
    assert (theirs.agent.reward_name, theirs.data.truncation) == ("memagent_em", "center")
    assert (theirs.trainer.total_training_steps, theirs.trainer.total_epochs) == (None, 30)
    assert (usual.recurrent.memory.config.max_chunks, usual.agent.reward_name) == (0, "boxed_em")
    said = read_recipe("hotpotqa_memory")["description"]
    assert all(word in said for word in ("like=memagent", "8 sections", "boxed_em", "30 epochs", "wording"))
