"""The rewards of AgentFly's commands: what a text settles on, and when two results are the same."""

from __future__ import annotations

import pytest

from recollect.rewards.answers import final_answer, math_reward_string_equal, qa_f1_reward
from recollect.types import Task


@pytest.mark.parametrize(
    ("answer", "gold", "expected"),
    [
        (r"So \boxed{1,234}.", "1234", 1),
        ("step 1: 5\n#### 18", "18", 1),
        ("3 + 4 = 7\nThe answer is 7.", "7", 1),
        ("The answer is $12.50", "12.5", 1),
        ("18", "Natalia sold 9 + 9 = 18 clips.\n#### 18", 1),  # GSM8K keeps its reasoning in the answer
        ("<answer>42 apples</answer>", "42", 1),
        (r"\boxed{\frac{1}{2}}", r"\frac{1} {2}", 1),
        (r"\boxed{x+1}", "x-1", 0),
        (r"\boxed{-3}", "3", 0),
        (r"\boxed{-0.0}", "0", 1),
        ("007", "7", 1),
        ("19", "18", 0),
        ("", "18", 0),
        (r"\boxed{}", "18", 0),
        ("", "", 0),
        (r"\boxed{18} no, \boxed{19}", "18", 0),
        ("1.8", "18", 0),
    ],
)
def test_math_reward(answer: str, gold: str, expected: int) -> None:
    assert math_reward_string_equal(answer, Task("t", "q", answers=(gold,))) == expected


def test_qa_f1_has_its_parts() -> None:
    score = qa_f1_reward("I think.\n<answer>the tall Eiffel tower</answer>", Task("t", "q", answers=("Eiffel Tower",)))
    assert score.total == pytest.approx(0.8)
    assert score.parts == {"f1": pytest.approx(0.8), "em": 0.0}
    assert qa_f1_reward("Eiffel Tower", Task("t", "q", answers=("x", "eiffel tower"))).parts["em"] == 1


def test_a_text_that_settles_on_nothing_is_its_own_answer() -> None:
    assert final_answer("  Paris \n") == "Paris"
