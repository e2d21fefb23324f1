"""LoCoMo's official metric, and the F1 of sets of words that Mem0 and Memory-R1 print.

The two are not comparable: the official one stems words, counts each as often as it occurs, and scores each category
of question in a way of its own.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from recollect.data.locomo import ADVERSARIAL, CATEGORIES
from recollect.rewards.decorator import reward
from recollect.rewards.marked import given_answer
from recollect.rewards.porter import stem

REFUSALS = ("no information available", "not mentioned")
MULTI_HOP, OPEN_DOMAIN = 1, 3
_LEFT_OUT = re.compile(r"\b(a|an|the|and)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ENDS = str.maketrans(dict.fromkeys(".,!?", " "))


@reward(inline=True, gold=True)
def locomo_f1(answer: str, golden_answers: Sequence[str], category: int) -> float:
    """LoCoMo's official score of an answer to a question of a category.

    Categories 2 to 4: F1 of stemmed words, category 3 against the gold up to its first semicolon. Category 1: golds and
    answer are cut at commas, the mean over the golds' parts of the best F1. Category 5: 1 for a refusal.
    """
    if category not in CATEGORIES:
        raise ValueError(f"the category {category!r} is unknown; known: {', '.join(map(str, CATEGORIES))}")
    said = given_answer(answer)
    if category == ADVERSARIAL:
        return float(refuses(said))
    return max((_against(said, gold, category) for gold in golden_answers), default=0.0)


@reward(inline=True, gold=True)
def set_f1(answer: str, golden_answers: Sequence[str]) -> float:
    """F1 of the sets of words of answer and gold, without stems, as Mem0 and Memory-R1 print it."""
    said = _word_set(given_answer(answer))
    return max((_f1(len(said & gold), len(said), len(gold)) for gold in map(_word_set, golden_answers)), default=0.0)


def refuses(answer: str) -> bool:
    """Whether an answer says that there is none."""
    return any(words in answer.lower() for words in REFUSALS)


def evidence_recall(evidence: Sequence[str], found: Sequence[str]) -> float:
    """The share of the evidence among what was found: ids of turns as in D3:5, or of whole sessions as in S3."""
    held = set(found)
    hit = sum(name in held or f"S{name.split(':')[0][1:]}" in held for name in evidence)
    return hit / len(evidence) if evidence else 1.0


def _against(said: str, gold: str, category: int) -> float:
    if category == MULTI_HOP:
        parts = [part.strip() for part in said.split(",")]
        golds = [part.strip() for part in gold.split(",")]
        return sum(max(_stemmed_f1(part, one) for part in parts) for one in golds) / len(golds)
    return _stemmed_f1(said, gold.split(";")[0].strip() if category == OPEN_DOMAIN else gold)


def _stemmed_f1(said: str, gold: str) -> float:
    a, b = Counter(_stems(said)), Counter(_stems(gold))
    return _f1((a & b).total(), a.total(), b.total())


def _f1(same: int, said: int, gold: int) -> float:
    return 2 * same / (said + gold) if same else 0.0


def _stems(text: str) -> list[str]:
    plain = text.replace(",", "").lower().translate(_PUNCTUATION)
    return [stem(word) for word in _LEFT_OUT.sub(" ", plain).split()]


def _word_set(text: str) -> set[str]:
    return set(text.lower().translate(_ENDS).split())
