"""Experts know their limits: what they claim is right, and what they cannot do they do not claim."""

from __future__ import annotations

import contextlib
import io
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.domains.computing import program
from recollect.domains.expert_texts import GIVE_UP
from recollect.domains.registry import expert_of
from recollect.registries import DOMAINS
from recollect.rewards.trajectory_total import RewardCalculator
from recollect.types import Action, Task
from tests.domains.playing import play, settings


def computed(question: str) -> str | None:
    """What the program for a question prints; None if there is none."""
    found = program(question)
    if found is None:
        return None
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(found[1], {})
    return out.getvalue().strip()


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Solve the equation 2x + 5 = 13", "4"),
        ("Solve for x: 2x + 5 = 13.", "4"),
        ("If 3x = 12, what is x?", "4"),
        ("Find x such that 2(x - 1) = -x/2 + 3", "2"),
        ("Solve -3x + 1/2 = 2", "-1/2"),
        ("Solve x^2 - 5x + 6 = 0", "2, 3"),
        ("Solve the quadratic equation x^2 = 2", "-1.414214, 1.414214"),
        ("Solve x^2 + 1 = 0", "there is no real solution"),
        ("Solve x^2 - 2x + 1 = 0", "1"),
        ("Solve 4x^2 = 1", "-1/2, 1/2"),
        (f"Solve x^2 = {(10**17 + 1) ** 2}", f"{-(10**17) - 1}, {10**17 + 1}"),
        ("Solve 2x + 1 = 2x + 3", "there is no solution"),
        ("Solve the equation 2(x + 1) = 2x + 2", "every x is a solution"),
        ("Solve 0.5y = 2", "4"),
        ("What is the derivative of x^2 + 3x + 1?", "2x + 3"),
        ("derivative of x^2 + 3x + 1", "2x + 3"),
        ("Differentiate f(x) = -x^3/3 + x with respect to x", "-x^2 + 1"),
        ("Find the derivative of x^3 - 2x at x = 2", "10"),
        ("Find the derivative of 0.5x^3", "(3/2)x^2"),
        ("23*19 + 7**3", "780"),
        ("What is 23*19 + 7^3?", "780"),
        ("Compute (1 + 2)(3 + 4)", "21"),
        ("Calculate 10/4", "5/2"),
        ("What is 0.1 + 0.2?", "0.3"),
        ("What is 1,234 + 1?", "1235"),
        ("What is 2^-2?", "1/4"),
        ("What is 15% of 80?", "12"),
        ("What is 12.5 percent of 40?", "5"),
        ("What is 7 − 10 =", "-3"),
    ],
)
def test_what_is_understood_is_right(question: str, answer: str) -> None:
    assert computed(question) == answer


@pytest.mark.parametrize(
    "question",
    [
        "What is the integral of x^2 + 3x + 1?",
        "Integrate 2x from 0 to 1",
        "What is the second derivative of x^3 + 1?",
        "Find the derivative of sin(x) at x = 0",
        "What is the derivative of e^x + 2?",
        "What is the derivative of x^2 + 3x + 1 at y = 2?",
        "What is the derivative of 5x with respect to t?",
        "Solve the system x + y = 5 and x - y = 1",
        "Solve x + y = 5, x - y = 1",
        "Solve x + y = 5 for x",
        "Solve 2x + 5 > 13",
        "Solve 2x + 5 <= 13",
        "Solve x^3 - 1 = 0",
        "Solve 1/x = 4",
        "Solve 2^x = 8",
        "Solve |x| = 3",
        "Solve the differential equation y = 2",
        "If 3x = 12, what is 2x?",
        "If 3x = 12 and y = 2, what is x?",
        "Factor x^2 - 5x + 6",
        "Expand (x + 1)(x + 2)",
        "Simplify 2x + 3x",
        "A train travels 60 km in 2 hours and then 30 km in 1 hour. How far does it go?",
        "Tom has 3 apples and buys 2 + 1 more. How many has he?",
        "A shirt costs 40 and is 25% off. What does it cost?",
        "What is 20% more than 50?",
        "What percent of 80 is 20?",
        "Increase 50 by 10%",
        "What is 5 km + 3 m?",
        "What is 5 m + 3 m in cm?",
        "Convert 3 feet to inches",
        "What is 5/0?",
        "What is 6/2(1 + 2)?",
        "Solve 1/2x = 3",
        "What is 2,5 + 1?",
        "What day is 2024-01-15?",
        "What is 2024-01-15?",
        "What is the limit of 1/x as x goes to 0?",
        "What is the sum of the first 10 primes?",
        "How many primes are below 10 + 10?",
        "What is the probability of 2 sixes in 3 throws?",
        "What is the square root of 16 + 9?",
        "What is log(100) + 1?",
        "What is sin(30) + 1?",
        "Is 2 + 2 = 5?",
        "Which is larger, 3/4 or 2/3?",
        "Round 3.14159 to 2 places",
        "What is 2 + 2 in base 3?",
        "What is 17 mod 5?",
        "What is 7?",
        "What is x?",
        "",
        "What is 9**9**9**9?",
        "What is 2^0.5?",
        "What comes next: 1, 2, 4, 8?",
    ],
)
def test_what_is_not_understood_is_not_claimed(question: str) -> None:
    assert computed(question) is None
    said = DOMAINS["math"].expert(Task("t", question), [Action("reason", "x", "ok")])
    assert said == f"finalize: {GIVE_UP}"
    record = {"domain": "math", "question": question, "actions": [], "final_answer": GIVE_UP, "metadata": {}}
    assert RewardCalculator().calculate_reward(record)["completion"] == 0


numbers = st.integers(-20, 20)


@given(numbers.filter(bool), numbers, numbers, numbers)
def test_linear_equations(a: int, b: int, c: int, d: int) -> None:
    said = computed(f"Solve {a}x + {b} = {c}x - {d}".replace("+ -", "- ").replace("- -", "+ "))
    if a == c:
        assert said == ("every x is a solution" if b == -d else "there is no solution")
    else:
        assert said == str(Fraction(-d - b, a - c))


@given(numbers.filter(bool), numbers, numbers)
def test_quadratic_equations_with_rational_roots(a: int, p: int, q: int) -> None:
    said = computed(f"Solve {a}x^2 + {-a * (p + q)}x + {a * p * q} = 0".replace("+ -", "- "))
    assert said == ", ".join(map(str, sorted({p, q})))


@given(st.lists(st.tuples(st.sampled_from("+-*/"), st.integers(1, 30)), min_size=1, max_size=5), st.integers(0, 30))
def test_sums(parts: list[tuple[str, int]], first: int) -> None:
    text = f"{first}" + "".join(f" {sign} {number}" for sign, number in parts)
    exact = eval(f"F({first})" + "".join(f" {sign} F({number})" for sign, number in parts), {"F": Fraction})
    assert computed(f"What is {text}?") == str(exact)


def test_programs_that_went_wrong_are_no_answer() -> None:
    done = [Action("reason", "x", "ok"), Action("python", "x", "Traceback …\nMemoryError: x")]
    assert DOMAINS["math"].expert(Task("t", "What is 2 + 2?"), done) == f"finalize: {GIVE_UP}"


# ---- the other domains ----


def test_readers_do_not_answer_with_what_is_about_something_else() -> None:
    text = "Paris is in France.\nThe Hobbit has a dragon.\nTea is made of leaves."
    asked = ["Who wrote War and Peace?", "When did Rome fall?", "What is the capital of Peru?"]
    for made in play(settings("mhqa"), [Task(f"{i}", q, text) for i, q in enumerate(asked)], expert_of("mhqa")):
        assert made.answer == GIVE_UP
    (made,) = play(settings("mhqa"), [Task("t", "Where is Paris?", text)], expert_of("mhqa"))
    assert made.answer == "Paris is in France."


def test_video_experts_look_for_the_caption_that_is_asked_for() -> None:
    text = "0:01 A man enters.\n0:05 He pours milk into a glass.\n0:09 A cat sleeps."
    asked = {
        "What happens in the first scene?": "A man enters.",
        "What happens at the end of the video?": "A cat sleeps.",
        "What does he pour into the glass?": "He pours milk into a glass.",
        "What is the first name of the cook?": GIVE_UP,
        "When does the last train start?": GIVE_UP,
        "How many dogs bark?": GIVE_UP,
        "What does mira hold at 0:42?": GIVE_UP,
    }
    tasks = [Task(f"{i}", question, text) for i, question in enumerate(asked)]
    assert [made.answer for made in play(settings("video"), tasks, expert_of("video"))] == list(asked.values())


def test_an_edit_that_does_not_help_is_not_called_a_repair() -> None:
    files = {"a.py": "x = 1\n", "test_a.py": "import unittest\nimport a\n\n\nclass T(unittest.TestCase):\n"}
    files["test_a.py"] += "    def test(self):\n        self.assertEqual(a.x, 3)\n"
    fields = {"files": files, "solution": [{"path": "a.py", "old": "x = 1", "new": "x = 2"}]}
    (made,) = play(settings("swe"), [Task("t", "Repair it", fields=fields)], expert_of("swe"))
    assert (made.answer, made.success) == ("not repaired", False)


def test_a_request_without_a_goal_is_not_settled() -> None:
    said = DOMAINS["tau"].expert(Task("t", "Cancel it", fields={"database": {"orders": {"a": {"status": "open"}}}}), [])
    assert said == f"finalize: {GIVE_UP}"
