"""What a question offers to choose from: "red rather than blue", "A, B or C", "between Tom and Meg"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import dropwhile, pairwise, takewhile

from recollect.rewards.filler_words import ASKING, COMMON, PLACING
from recollect.rewards.normalized import normalize

ChoiceWords = list[str]  # the words of one choice, the one nearest to its "or" first
_CONTRAST = r"\b(?:rather than|instead of|as opposed to|compared (?:to|with)|unlike|than)(?=\s)"
_JOINED = re.compile(
    rf"\b(?:or|and|nor|vs\.?|versus|but not)(?=[\s(])|{_CONTRAST.replace('|than)', ')')}"
    r"|[,;]\s*not\b|[/|&+]|\(?\b[A-Ha-h1-9][.)]\s+(?=[^\s(])",
    re.IGNORECASE,
)
_COMPARED = re.compile(_CONTRAST, re.IGNORECASE)
_CLAUSE = re.compile(r"[,;:](?!\d)|[?!()\n]|\s[-–—]\s|(?<!\b\w)\.\s")

_INTRODUCED = re.compile(r":(?!\d)|\n|\s[-–—]\s")


def alternatives(gold: str, question: str) -> frozenset[str]:
    """Words of what a question offers beside the gold answer: "Who is older, Tom Hanks or Meg Ryan?".

    They are the other items of a list that has the gold answer, and names and numbers of a question that has it.
    Of an item as many words count as the gold answer has; words that the question also uses outside are left out.
    Beside a number other numbers are alternatives.
    """
    own, asked, most = set(gold.split()), normalize(question).split(), len(gold.split())
    mine, others = set(own), list[ChoiceWords]()
    for items in _lists(question, own):
        shared = [item for item in items if own & set(item)]
        mine.update(word for item in shared for word in item[:most])
        others += [item for item in items if shared and item not in shared]
    listed = [word for item in others for word in item]
    found = {word for item in others for word in item[:most] if asked.count(word) <= listed.count(word)}
    if f" {gold} " in f" {' '.join(asked)} ":
        named = [word for run in _names(question) if not own & set(run) for word in run]
        found |= {word for word in named if asked.count(word) <= named.count(word)}
    if all(map(_is_number, own)):
        found = set(filter(_is_number, found))
    return frozenset(found - mine - COMMON)


def _is_number(word: str) -> bool:
    return word[:1].isdigit()


def _lists(question: str, own: set[str]) -> list[list[ChoiceWords]]:
    """The lists of a question: what stands on both sides of an "or" and the like."""
    parts = _JOINED.split(question)
    found: list[list[ChoiceWords]] = []
    for place, (left, right) in enumerate(pairwise(parts)):
        items = [*_before(left), _after(right)]
        if place and not set(normalize(left).split()) & (COMMON - PLACING):  # the middle of "red or blue or green"
            found[-1] += items
        else:
            found.append(items)
    return [*found, *_comparisons(question, own), _bare(question, own)]


def _clauses(part: str) -> list[list[str]]:
    """The words of each clause, without those that only place them."""
    clauses = ([word for word in normalize(clause).split() if word not in PLACING] for clause in _CLAUSE.split(part))
    return [words for words in clauses if words]


def _run(words: Iterable[str]) -> ChoiceWords:
    return list(takewhile(lambda word: word not in COMMON, words))


def _before(part: str) -> list[ChoiceWords]:
    """The items that end a part: one, and those before commas that are items as a whole."""
    found: list[ChoiceWords] = []
    for words in reversed(_clauses(part)):
        if found and ASKING & set(words):
            break
        found.append(_run(reversed(words)))
        if len(found[-1]) < len(words):
            break
    return found


def _after(part: str) -> ChoiceWords:
    """The item that begins a part."""
    return next((_run(dropwhile(COMMON.__contains__, words)) for words in _clauses(part)), [])


def _comparisons(question: str, own: set[str]) -> list[list[ChoiceWords]]:
    """The sides of "is the cat bigger than the dog" and "compared to the dog, is the cat bigger"."""
    found = []
    named = sorted(own) if own <= set(normalize(question).split()) else []
    for left, right in pairwise(_COMPARED.split(question)):
        second, rest = _after(right), _clauses(right)[1:]
        subject = next(iter(_before(left)), [])[::-1] or _run(dropwhile(COMMON.__contains__, rest[0] if rest else []))
        found.append([subject[:1] if own & set(second) else named, second])
    return found


def _bare(question: str, own: set[str]) -> list[ChoiceWords]:
    """A list without an "or", after a colon or by itself: clauses beside the gold answer that are items as a whole."""
    *intro, rest = _INTRODUCED.split(question, maxsplit=1)
    clauses = _clauses(rest)
    if not intro and any(COMMON & set(words) for words in clauses):
        return []
    for start, end in ((start, start + width) for start in range(len(clauses)) for width in (1, 2, 3)):
        if {word for words in clauses[start:end] for word in words} == own - PLACING:
            beside = (reversed(clauses[:start]), clauses[end:])
            items = [item for side in beside for item in takewhile(lambda words: not COMMON & set(words), side)]
            return [*items, sorted(own)]
    return []


def _names(question: str) -> list[ChoiceWords]:
    """Names and numbers of a question in runs, without its first word."""
    runs: list[ChoiceWords] = [[]]
    for word in question.split()[1:]:
        if word.lstrip("(\"'“‘")[:1].isupper() or word[:1].isdigit():
            runs[-1] += normalize(word).split()
        if runs[-1] and not (word[-1].isalnum() and (word[0].isupper() or word[0].isdigit())):
            runs.append([])
    return [run for run in runs if run]
