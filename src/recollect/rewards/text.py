"""Rewards that compare texts: exact match, F1 and sub-match, with SQuAD's normalisation."""

from __future__ import annotations

import re
import string
from collections import Counter
from itertools import dropwhile, groupby, takewhile

from recollect.rewards.decorator import reward
from recollect.rewards.filler_words import ANSWERING, CHOOSING, COMMON, DENYING
from recollect.rewards.marked import given_answer, last_boxed, without_question
from recollect.types import Task

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SPECIAL = {"yes", "no", "noanswer"}
SUB_TIMES, SUB_LEAST = 4, 16  # sub_em reads answers of so many times the gold's words, and of so many in any case
EXTRA = 2  # words of their own that sub_em allows beside the gold's, or as many as the gold has; of names 1
_ITEM = re.compile(r"[,;/|\n]|\band\b|[.:!?]\s")
_CLAUSE = re.compile(r"[,;:?!()]|\bor\b")


def normalize(text: str) -> str:
    """Lower case, without punctuation, articles and extra white space (SQuAD)."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


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
    return float(any(_within(gold, given, task.question) for gold in task.answers))


def _within(answer: str, given: str, question: str) -> bool:
    gold, words = normalize(answer), normalize(given).split()
    own = gold.split()
    if not gold or len(words) > max(SUB_LEAST, SUB_TIMES * len(own)) or f" {gold} " not in f" {' '.join(words)} ":
        return False
    beside = [word for word in words if word not in own]
    if gold in _SPECIAL and any(word in _SPECIAL for word in beside):
        return False
    against = CHOOSING | alternatives(gold, question) | (DENYING if gold != "no" else frozenset())
    if any(word in against for word in beside):
        return False
    asked = set(normalize(question).split())
    initials = set() if any(map(_is_letter, own)) else set(filter(_is_letter, beside))
    foreign = [word for word in beside if word not in asked | COMMON | ANSWERING | initials]
    for alike in (str.isdigit, _is_letter):  # other numbers, or other letters of a choice, are other answers
        if any(map(alike, own)) and any(map(alike, foreign)):
            return False
    return len(foreign) <= max(EXTRA, len(own)) and not _is_list(answer, given, set(foreign))


def _is_list(answer: str, given: str, foreign: set[str]) -> bool:
    """Whether words that are foreign to the question stand beside the gold answer like other guesses.

    So they do where there are more names than words of the gold, as many words in a row, or several items of a list.
    """
    own, words = normalize(answer).split(), normalize(given).split()
    most = max(1, len(own))
    named = {normalize(word) for word in given.split() if word.strip(string.punctuation)[:1].isupper()}
    lower = not named & set(own) and any(word[:1].isupper() for word in answer.split())  # there, names have no capitals
    if sum(word in foreign and (lower or word in named) for word in words) > most:
        return True
    rows = groupby(words, lambda word: word in foreign or word in own or word == "and")
    if any(sum(word in foreign for word in row) > most for _, row in rows):
        return True
    items = [set(normalize(item).split()) for item in _ITEM.split(given)]
    return sum(bool(item & foreign) and not item & set(own) for item in items) > 1


def alternatives(gold: str, question: str) -> frozenset[str]:
    """Words of what a question offers beside the gold answer: "Who is older, Tom Hanks or Meg Ryan?"."""
    if f" {gold} " not in f" {normalize(question)} ":
        return frozenset()
    offered = {word for clause in _offered(question) for word in normalize(clause).split()}
    return frozenset(offered - set(gold.split()) - COMMON)


def _offered(question: str) -> list[str]:
    """What stands beside an "or", and names and numbers inside the question."""
    parts, marks = _CLAUSE.split(question), _CLAUSE.findall(question)
    beside: list[str] = []
    for place in (i for i, mark in enumerate(marks) if mark == "or"):
        left, right = parts[place].split()[::-1], parts[place + 1].split()
        beside += takewhile(_carries, left)
        beside += takewhile(_carries, dropwhile(lambda word: not _carries(word), right))
    named = [word for word in question.split()[1:] if word[:1].isupper() or word[:1].isdigit()]
    return [*beside, *named]


def _is_letter(word: str) -> bool:
    return len(word) == 1 and word.isalpha()


def _carries(word: str) -> bool:
    return word.lower() not in COMMON


def _f1(said: str, gold: str) -> float:
    if said != gold and (said in _SPECIAL or gold in _SPECIAL):
        return 0.0
    a, b = said.split(), gold.split()
    same = sum((Counter(a) & Counter(b)).values())
    return 0.0 if same == 0 else 2 * same / (len(a) + len(b))
