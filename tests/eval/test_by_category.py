"""Results by category: what stands beside the official F1, and what a failed attempt counts."""

from __future__ import annotations

import pytest

from recollect.eval.by_category import by_category, question_scores
from recollect.types import Failure, Score, Task, Trajectory

ROWS = [
    {"question": "a?", "answer": "a red bicycle", "category": 4},
    {"question": "b?", "answer": "7 May 2023", "category": 2},
    {"question": "c?", "answer": "Not mentioned", "category": 5},
]
TASK = Task("t", "", fields={"questions": ROWS})


def attempt(said: list[str], *earned: float) -> Trajectory:
    return Trajectory("t", 0, answers=said, score=Score(0.0, questions=(0.0, *earned) if earned else ()))


def test_another_reward_stands_beside_the_f1_and_agrees_with_it_or_not() -> None:
    made = question_scores(TASK, attempt(["a bicycle that is red", "in May", "Not mentioned"], 1.0, 1.0, 0.0))
    found = by_category([made])
    assert found["overall"]["earned"]["accuracy"] == pytest.approx(2 / 3)
    assert found["1–4"]["agrees_with_f1"]["accuracy"] == 0.5  # F1: 2·2/(5+2) and 2·1/(2+3)
    assert found["5 adversarial"]["agrees_with_f1"]["accuracy"] == 0.0


def test_the_f1_as_the_reward_is_shown_once() -> None:
    said = ["a red bicycle", "in May", "x"]
    scores = [row["scores"]["locomo_f1"] for row in question_scores(TASK, attempt(said))]
    for made in (attempt(said, *scores), attempt(said)):
        assert set(by_category([question_scores(TASK, made)])["overall"]) == {"locomo_f1", "set_f1", "refused"}


def test_a_failed_attempt_scores_nothing_on_each_of_its_questions() -> None:
    lost = Trajectory("t", 0, answers=["a red bicycle"] * 3, failure=Failure("timeout", "too slow"))
    judged = attempt(["a red bicycle", "x", "y"], 1.0, 0.5, 1.0)
    found = by_category([question_scores(TASK, lost), question_scores(TASK, judged)])
    assert found["overall"]["earned"] | {"low": 0, "high": 0} == {"accuracy": 2.5 / 6, "low": 0, "high": 0, "n": 6}
    assert found["overall"]["locomo_f1"]["accuracy"] == pytest.approx(1 / 6)
