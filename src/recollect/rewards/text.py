"""Rewards that compare texts: exact match, F1 and sub-match, with SQuAD's normalisation."""

from __future__ import annotations

from collections import Counter

from recollect.rewards.decorator import reward
from recollect.rewards.marked import given_answer, last_boxed, without_question
from recollect.rewards.normalized import normalize
from recollect.rewards.sub_match import SPECIAL, gives
from recollect.types import Task


@reward(inline=True, gold=True)
def boxed_em(answer: str, task: Task) -> float:
    r"""1 when the last \boxed{…} of the answer equals an accepted answer after normalisation."""
    boxed = last_boxed(answer)
    return 0.0 if boxed is None else em(boxed, task)


@reward(inline=True, gold=True)
def em(answer: str, task: Task) -> float:
    """1 when the answer equals an accepted answer after normalisation; an empty answer never does."""
    said = normalize(answer)
    return float(bool(said) and any(said == normalize(gold) for gold in task.answers))


@reward(inline=True, gold=True)
def f1(answer: str, task: Task) -> float:
    """The best F1 of words over the accepted answers; yes, no and noanswer must match exactly."""
    return max((_f1(normalize(answer), normalize(gold)) for gold in task.answers), default=0.0)


@reward(inline=True, gold=True)
def qa_em(answer: str, task: Task) -> float:
    """Exact match of the answer that the text gives: what it marks as its answer, or all of it."""
    return em(given_answer(answer), task)


@reward(inline=True, gold=True)
def qa_f1_reward(answer: str, task: Task) -> float:
    """F1 of the answer that the text gives: what it marks as its answer, or all of it."""
    return f1(given_answer(answer), task)


@reward(inline=True, gold=True)
def sub_em(answer: str, task: Task) -> float:
    """1 when an accepted answer occurs in the given answer as whole words, with few words of its own beside it.

    Alternatives are no answer: others that the question names, other numbers, "or", a list, and what is denied.
    """
    given = without_question(given_answer(answer), task.question)
    return float(any(gives(gold, given, task.question) for gold in task.answers))


def _f1(said: str, gold: str) -> float:
    if said != gold and (said in SPECIAL or gold in SPECIAL):
        return 0.0
    a, b = said.split(), gold.split()
    same = sum((Counter(a) & Counter(b)).values())
    return 0.0 if same == 0 else 2 * same / (len(a) + len(b))
