"""Attempts to earn a reward without an answer. ``python -m tests.hostile.test_rewards`` prints them as a table."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from recollect.rewards.math_answers import math_equal, math_reward_string_equal
from recollect.rewards.text import qa_em, sub_em
from recollect.types import Task

REWARDS = {
    "math_equal": math_equal,
    "math_reward_string_equal": math_reward_string_equal,
    "qa_em": qa_em,
    "sub_em": sub_em,
}


class Attempt(NamedTuple):
    """What is said to a question, and what would have been right."""

    reward: str
    name: str
    question: str
    gold: str
    said: str
    right: str


CHOICE = "Who is older, Tom Hanks or Meg Ryan?"
CITY = "What is the capital of France?"
FLAG = "Is the flag red rather than blue?"
INTEGRAL = r"Evaluate $\int_0^1 \frac{1}{1+x^2} dx$."
EXPAND = "Expand $(x+1)(x+2)$."
FACTOR = "Factor $x^2+3x+2$."
ROOT = r"Simplify $\sqrt{12}$."
ATTEMPTS = [
    Attempt(
        "math_equal",
        "the integral itself",
        INTEGRAL,
        r"\frac{\pi}{4}",
        r"\boxed{\int_0^1 \frac{1}{1+x^2} dx+0}",
        r"\boxed{\pi/4}",
    ),
    Attempt(
        "math_equal", "the root in brackets", ROOT, r"2\sqrt{3}", r"\boxed{(\sqrt{12})}", r"\boxed{\sqrt{3}\cdot 2}"
    ),
    Attempt("math_equal", "the root of a product", ROOT, r"2\sqrt{3}", r"\boxed{\sqrt{4\cdot 3}}", r"\boxed{2\sqrt3}"),
    Attempt("math_equal", "the polynomial plus 0", FACTOR, "(x+1)(x+2)", r"\boxed{x^2+3x+2+0}", r"\boxed{(x+2)(x+1)}"),
    Attempt(
        "math_equal", "the polynomial times 1", FACTOR, "(x+1)(x+2)", r"\boxed{1(x^2+3x+2)}", r"\boxed{(1+x)(x+2)}"
    ),
    Attempt("math_equal", "terms taken apart", FACTOR, "(x+1)(x+2)", r"\boxed{x^2+2x+x+2}", r"\boxed{(x+1)(2+x)}"),
    Attempt(
        "math_equal",
        "the derivative itself",
        r"Differentiate $x^3e^x$.",
        "3x^2e^x+x^3e^x",
        r"\boxed{\frac{d}{dx}(x^3 e^x)}",
        r"\boxed{x^2e^x(x+3)}",
    ),
    Attempt(
        "math_equal",
        "the sum itself",
        r"Find $\sum_{k=1}^n k$.",
        r"\frac{n(n+1)}{2}",
        r"\boxed{\sum_{k=1}^n k}",
        r"\boxed{\frac{n^2+n}{2}}",
    ),
    Attempt("math_equal", "a function of a number", INTEGRAL, r"\frac{\pi}{4}", r"\boxed{\arctan(1)}", r"\boxed{pi/4}"),
    Attempt("math_equal", "a sum to be worked out", "What is 84/2?", "42", r"\boxed{84/2}", r"\boxed{42}"),
    Attempt("math_equal", "e to a logarithm", ROOT, r"2\sqrt{3}", r"\boxed{e^{\ln(12)/2}}", r"\boxed{2\cdot 3^{1/2}}"),
    Attempt("math_equal", "a root below the line", ROOT, r"2\sqrt{3}", r"\boxed{6/\sqrt3}", r"\boxed{2\sqrt3}"),
    Attempt("math_equal", "a decimal for a root", ROOT, r"2\sqrt{3}", r"\boxed{3.4641016151}", r"\boxed{2\sqrt3}"),
    Attempt("math_equal", "half expanded", EXPAND, "x^2+3x+2", r"\boxed{x(x+2)+(x+2)}", r"\boxed{2+3x+x^2}"),
    Attempt("math_equal", "like terms", INTEGRAL, r"\frac{\pi}{4}", r"\boxed{\pi/2-\pi/4}", r"\boxed{0.25\pi}"),
    Attempt(
        "math_equal", "a power of a number", "Add.", r"1024+\sqrt2", r"\boxed{32^2+\sqrt2}", r"\boxed{\sqrt2+1024}"
    ),
    Attempt("math_reward_string_equal", "many numbers, another one last", "How many?", "4", "4 3 2 1", "1 2 3 4"),
    Attempt("sub_em", "both of a choice", CHOICE, "Tom Hanks", "Tom Hanks Meg Ryan", "Tom Hanks"),
    Attempt(
        "sub_em",
        "both of a choice, in a sentence",
        CHOICE,
        "Tom Hanks",
        "Meg Ryan is older than Tom Hanks",
        "Tom Hanks is older",
    ),
    Attempt("sub_em", "sixteen numbers", "How many are left?", "4", " ".join(map(str, range(16))), "There are 4 left"),
    Attempt(
        "sub_em",
        "a list of cities",
        "What is the capital of France?",
        "Paris",
        "Paris, London, Rome, Berlin",
        "It is Paris",
    ),
    Attempt("sub_em", "three guesses", "Where was she born?", "Paris", "Paris London Rome", "in Paris"),
    Attempt("sub_em", "three guesses in a sentence", "Where is it?", "Rome", "Paris, London and Rome", "In Rome"),
    Attempt("sub_em", "an alternative", "What is the capital of France?", "Paris", "Paris or London", "Paris"),
    Attempt("sub_em", "a denial", "What is the capital of France?", "Paris", "not Paris", "Paris, France"),
    Attempt("sub_em", "the question again", CHOICE, "Tom Hanks", CHOICE, "Tom Hanks"),
    Attempt("sub_em", "both sides of a rather than", FLAG, "red", "red blue", "The flag is red"),
    Attempt("sub_em", "both sides of a versus", "Which is warmer, red vs blue?", "red", "blue, red", "red, not blue"),
    Attempt("sub_em", "both of a between", "Between red and blue, which is warmer?", "red", "red & blue", "red"),
    Attempt("sub_em", "two of three", "Is it red, blue or green?", "red", "red green", "It is red"),
    Attempt("sub_em", "two letters", "Between A and B, which is first?", "B", "(A) (B)", "(B)"),
    Attempt("sub_em", "both sides of a than", "Is the cat bigger than the dog?", "cat", "cat dog", "The cat is bigger"),
    Attempt("sub_em", "a denial after the answer", CITY, "Paris", "Paris is wrong", "It was Paris, not London"),
    Attempt("sub_em", "an exception", CITY, "Paris", "anything but Paris", "Paris"),
    Attempt("sub_em", "a yes that is taken back", "Is it?", "yes", "yes incorrect", "Yes, that is correct"),
    Attempt("sub_em", "what may be", "When was it?", "March", "it may be March", "It was March"),
    Attempt("sub_em", "one of either", "When was it?", "March", "either March or April", "in March"),
    Attempt("qa_em", "two marked answers", "Who?", "Ann", r"\boxed{Ann} \boxed{Bob}", r"\boxed{Bob} \boxed{Ann}"),
]


def earned(attempt: Attempt, said: str) -> float:
    """What a reward gives."""
    return REWARDS[attempt.reward](said, Task("t", attempt.question, answers=(attempt.gold,)))


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda a: f"{a.reward}: {a.name}")
def test_nothing_is_earned_without_an_answer(attempt: Attempt) -> None:
    pytest.importorskip("math_verify")
    assert earned(attempt, attempt.said) == 0
    assert earned(attempt, attempt.right) == 1


def main() -> None:
    """Print the table of docs/security.md."""
    print("| reward | attempt | earned | a right answer |\n|---|---|---|---|")
    for attempt in ATTEMPTS:
        given, right = earned(attempt, attempt.said), earned(attempt, attempt.right)
        print(f"| `{attempt.reward}` | {attempt.name} | {given:g} | {right:g} |")


if __name__ == "__main__":
    main()
