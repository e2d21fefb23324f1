"""Rewards for mathematics: the last number of an answer, or the expression in its last box."""

from __future__ import annotations

import re

from recollect.rewards.decorator import reward
from recollect.rewards.latex import latex
from recollect.rewards.marked import given_answer, last_boxed, without_question
from recollect.rewards.numbers import last_number, only_number, spell
from recollect.rewards.symbolic import same_expression
from recollect.rewards.text import normalize
from recollect.types import Task

_ASSIGNED = re.compile(r"^\s*\\?[A-Za-z]\w{0,3}\s*(?:=|\\in\b)\s*")
_TEXT = re.compile(r"\\(?:text|mathrm|textbf|mbox)\s*\{([^{}]*)\}")


@reward(inline=True, gold=True)
def math_reward_string_equal(answer: str, task: Task) -> float:
    """1 when the last number of the answer is an accepted one; GSM8K's ``#### 72`` is understood as 72."""
    said = without_question(answer, task.question)
    number = last_number(given_answer(said)) or last_number(said)
    for gold in map(_final, task.answers):
        wanted = only_number(gold)
        if wanted is not None:
            if number is not None and number.equals(wanted):
                return 1.0
        elif normalize(gold) and _plain(given_answer(said)) == _plain(gold):
            return 1.0
    return 0.0


@reward(gold=True)
def math_equal(answer: str, task: Task) -> float:
    r"""1 when the last \boxed{…} is an accepted answer: the same number, or the same expression."""
    boxed = last_boxed(answer)
    if boxed is None or not boxed.strip("$ \t\n.,"):
        return 0.0
    return float(any(_equal(boxed, _final(gold), task.question) for gold in task.answers))


def _final(gold: str) -> str:
    """The final answer of a gold solution: after ####, or in its last box, or all of it."""
    after = gold.rpartition("####")[2].strip()
    inside = last_boxed(after)
    return after if inside is None else inside


def _equal(boxed: str, gold: str, question: str) -> bool:
    if not gold.strip():
        return False
    said = boxed if "=" in gold else _ASSIGNED.sub("", boxed)
    wanted = only_number(gold)
    if wanted is not None:
        number = only_number(said)
        return number is not None and number.equals(wanted)
    if _squeeze(said) == _squeeze(gold):
        return True
    if re.fullmatch(r"[A-Za-z][A-Za-z ]+", _TEXT.sub(r"\1", gold).strip()):
        return normalize(_TEXT.sub(r"\1", said)) == normalize(_TEXT.sub(r"\1", gold))
    if "=" in said and "=" not in gold:
        return False
    if _squeeze(said) in _squeeze(question) and _squeeze(gold) not in _squeeze(question):
        return False
    return same_expression(latex(gold), latex(said), question)


def _plain(text: str) -> str:
    """What is compared of an answer that is not one number: words and signs, without case, spaces and a full stop."""
    return _squeeze(_TEXT.sub(r"\1", text)).lower()


def _squeeze(text: str) -> str:
    """An expression without what does not matter for it: spaces, dollar signs, \\left and \\right."""
    return re.sub(r"\s|\\left|\\right|\\[,!;:]|\$", "", spell(text)).rstrip(".")
