"""Rewards that compare texts: exact match, F1 and sub-match, with SQuAD's normalisation."""

from __future__ import annotations

import re
import string
from collections import Counter

from recollect.types import Task

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """Lower case, without punctuation, articles and extra white space (SQuAD)."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def last_boxed(text: str) -> str | None:
    r"""What stands in the last \boxed{…} whose braces close, or None."""
    for start in reversed([m.end() for m in re.finditer(r"\\boxed\s*\{", text)]):
        depth = 1
        for i in range(start, len(text)):
            depth += (text[i] == "{") - (text[i] == "}")
            if depth == 0:
                return text[start:i].strip()
    return None


def boxed_em(answer: str, task: Task) -> float:
    r"""1 when the last \boxed{…} of the answer equals an accepted answer after normalisation."""
    boxed = last_boxed(answer)
    return 0.0 if boxed is None else em(boxed, task)


def em(answer: str, task: Task) -> float:
    """1 when the answer equals an accepted answer after normalisation; an empty answer never does."""
    said = normalize(answer)
    return float(bool(said) and any(said == normalize(gold) for gold in task.answers))


def f1(answer: str, task: Task) -> float:
    """The best F1 of words over the accepted answers; yes, no and noanswer must match exactly."""
    return max((_f1(normalize(answer), normalize(gold)) for gold in task.answers), default=0.0)


def sub_em(answer: str, task: Task) -> float:
    """1 when an accepted answer occurs in the answer as whole words, after normalisation."""
    said = f" {normalize(answer)} "
    return float(any(g and f" {g} " in said for g in map(normalize, task.answers)))


def _f1(said: str, gold: str) -> float:
    special = {"yes", "no", "noanswer"}
    if said != gold and (said in special or gold in special):
        return 0.0
    a, b = said.split(), gold.split()
    same = sum((Counter(a) & Counter(b)).values())
    return 0.0 if same == 0 else 2 * same / (len(a) + len(b))
