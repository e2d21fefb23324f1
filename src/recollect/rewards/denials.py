"""Answers that deny, or that leave open, what they name: "not Paris", "anything but Paris", "it may be Paris"."""

from __future__ import annotations

import re
from collections.abc import Iterable

from recollect.rewards.filler_words import ANSWERING, COMMON
from recollect.rewards.normalized import normalize

GOLD = "*"  # stands for the gold answer
_DENYING = r"""not never neither nor cannot (?:is|was|are|were|do|does|did|ca|could|would|should|has|have|had|wo|ai)nt
wrong wrongly incorrect incorrectly false falsely untrue mistaken mistakenly except excepting excluding excludes besides
unlike excluded nope anything everything nothing (?:any|every|no)body anyone everyone anywhere everywhere nowhere none
hardly unlikely impossible ≠ ¬ ✗ ✘ ❌"""
_DENYING_PHRASES = (
    *("(?:all|any|every|no one) but", "(?:other|rather) than", "instead of", "opposed to", "apart from", "aside from"),
    *("far from", "rul(?:e|es|ed|ing) out", "no longer", r"(?:no|without) \*", "no$", "opposite of"),
)
_OPEN = r"maybe perhaps possibly might could unsure uncertain may(?=\s(?:well\s|also\s)?(?:be|have)\b)"
_SEVERAL = "alternatively either or versus vs"
_YES = "certain certainly correct right sure surely true really likely likelier quite exactly"
_CONTRAST = re.compile(
    r"((?:[,;:(–—-]\s*|\b(?:and|but|is|was)\s+|^\s*)not\b|\b(?:rather than|instead of|unlike|as opposed to|than)\b)"
    r"((?:(?!\b(?:but|it|it's)\b)[^,;:()!?\n.]|[,.:](?=\d)|\.(?=\S)|(?<=\b[A-Z])\.)+)",
    re.IGNORECASE,
)


def _any_of(*parts: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\S)({'|'.join(parts)})(?!\S)")


_DENIED = _any_of(*_DENYING.split(), *_DENYING_PHRASES)
_LEFT_OPEN = _any_of(*_OPEN.split())
_CONFIRMING = frozenset(_YES.split())
_OFFERED = _any_of(*_SEVERAL.split())


def is_denied(gold: str, rest: str, question: str) -> bool:
    """Whether an answer takes back the gold answer, for which ``rest`` has GOLD.

    A gold answer that denies itself, such as "no", may have such words beside it, and so may what the question says.
    """
    if _DENIED.search(gold):
        after = rest.rpartition(GOLD)[2]
        return gold == "no" and bool(_CONFIRMING & set(after.split())) and not _DENIED.search(after)
    numbered = gold[:1].isdigit()  # "No. 5" denies nothing
    found = [m for m in _DENIED.finditer(rest) if not (numbered and m[0] == f"no {GOLD}")]
    return any(not _is_asked(m, rest, question) for m in found)


def is_left_open(gold: str, rest: str, question: str) -> bool:
    """Whether an answer gives the gold answer as one of several, or as what may be."""
    own = gold.split()
    if any(m[0] not in own for m in _OFFERED.finditer(rest)):
        return True
    said = {*own, *normalize(question).split()}
    return any(m[0] not in said for m in _LEFT_OPEN.finditer(rest))


def is_denying(word: str) -> bool:
    """Whether a word denies by itself."""
    return word == "no" or _DENIED.fullmatch(word) is not None


def _is_asked(found: re.Match[str], rest: str, question: str) -> bool:
    """Whether the question says the same: for "Which is not in the EU?", the "not" of "Norway is not in the EU"."""
    follows, asked = _next(rest[found.end() :].split()), normalize(question).split()
    places = (place for place, word in enumerate(asked) if word == found[0].split()[0])
    return follows != "" and any(_next(asked[place + 1 :]) == follows for place in places)


def _next(words: Iterable[str]) -> str:
    return next((word for word in words if word not in COMMON), "")


def without_contrast(given: str, gold: str, question: str, others: frozenset[str]) -> str:
    """An answer without the other names that it denies: "not London", "rather than London", "older than Meg Ryan".

    Names are words with a capital and numbers that the question has not, and what it offers beside the gold answer.
    """
    asked = normalize(question)
    known = COMMON | {*asked.split()}

    def replace(found: re.Match[str]) -> str:
        denied, before = normalize(found[2]).split(), f" {normalize(given[: found.start()])} "
        names = {normalize(word) for word in found[2].split() if word[:1].isupper() or word[:1].isdigit()} - known
        if not (names | others) & set(denied) or set(denied) - names - others - known:
            return found[0]
        if set(denied) & ({*gold.split()} - COMMON | _CONFIRMING | ANSWERING) or normalize(found[0]) in asked:
            return found[0]
        if found[1].endswith("than") and not found[1].endswith("her than"):
            between = before.rpartition(f" {gold} ")[2] if f" {gold} " in before else ""
            compared = set(between.split()) - COMMON - {"more", "less"}
            return found[0] if not compared or compared - known else " "
        return " "

    return _CONTRAST.sub(replace, given)
