"""What went wrong, in words."""

from __future__ import annotations

from recollect.dspy.feedback import feedback, memory_lines
from recollect.types import Completion, Failure, Score, Task, Trajectory, Turn


def attempt(reward: float, answer: str, memories: list[str]) -> Trajectory:
    said = Completion((), (), "stop", 0, "")
    turns = [Turn("memory", [], said) for _ in memories]
    return Trajectory("t", 0, turns=turns, answer=answer, score=Score(reward), notes=memories)


def test_it_says_where_the_answer_was_lost() -> None:
    found = feedback(Task("t", "q", answers=("472",)), attempt(0.0, "9", ["none", "mira holds 472", "none"]))
    assert found.startswith("Reward 0. The answer was '9', expected '472'.")
    assert "lost it at section 3 of 3" in found


def test_memories_that_never_held_it_or_still_do() -> None:
    assert "No memory ever held it" in memory_lines(["472"], ["none", "kolu"])[0]
    assert memory_lines(["472"], ["none", "472"]) == ["The last memory holds it."]
    assert memory_lines([], ["x"]) == memory_lines(["x"], []) == []


def test_evidence_that_was_not_shown() -> None:
    rows = [{"question": "q", "answer": "a", "evidence": ["D1:3", "D2:1", "D4:7"]}]
    done = attempt(0.5, "b", [])
    done.events = [{"found": ["D1:3", "S4"]}]
    found = feedback(Task("t", "q", fields={"questions": rows}), done)
    assert "Evidence that was not shown: D2:1." in found
    assert "expected 'a'" in found


def test_a_failed_attempt() -> None:
    done = attempt(0.0, "", [])
    done.failure = Failure("agent", "no window")
    assert feedback(Task("t", "q"), done) == "The attempt failed: no window"
