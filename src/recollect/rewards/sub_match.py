"""Whether a short answer gives the gold answer, and not a list of candidates, a denial or a guess among several."""

from __future__ import annotations

import re
import string
import unicodedata
from itertools import groupby

from recollect.rewards.choices import alternatives
from recollect.rewards.denials import GOLD, is_denied, is_denying, is_left_open, without_contrast
from recollect.rewards.filler_words import ANSWERING, COMMON
from recollect.rewards.normalized import normalize

SPECIAL = frozenset({"yes", "no", "noanswer"})
TIMES, LEAST = 4, 16  # answers may have so many times the gold's words, and so many in any case
EXTRA = 2  # words of their own that may stand beside the gold's, or as many as the gold has; of names 1
LETTER_A = "ª"  # the choice A, which normalising would take for an article
_ITEM = re.compile(r"[,;/|\n]|\band\b|[.:!?]\s")
_A = re.compile(r"(?<![\w'])[Aa](?![\w'])(?=(?:\s+(\w\w+))?)")
_MARK = re.compile(r"\s\|\s|\W/|/\W|/(?=(?:an?|the)\s)|!=", re.IGNORECASE)
_PLAIN = str.maketrans("’‘“”", "''\"\"")


def gives(gold: str, given: str, question: str) -> bool:
    """Whether the gold answer stands in the given one as whole words, with few words of its own beside it."""
    gold, given, question = (_visible(text).translate(_PLAIN) for text in (gold, given, question))
    if _is_letter(gold.strip(string.punctuation + " ")) and gold.isascii():
        gold, given, question = (_with_letters(text, gold) for text in (gold, given, question))
    if not _MARK.search(gold):
        given = _MARK.sub(lambda m: " not " if m[0] == "!=" else " or ", given)
    return _gives(gold, given, question)


def _visible(text: str) -> str:
    """A text without characters that nobody sees, such as those that join and break words."""
    if text.isascii():
        return text
    return "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf")


def _gives(answer: str, given: str, question: str) -> bool:
    gold, words = normalize(answer), normalize(given).split()
    own = gold.split()
    if not gold or len(words) > max(TIMES * len(own), LEAST) or words == own:
        return bool(gold) and words == own
    others = frozenset() if _is_letter(gold) else alternatives(gold, question)
    given = without_contrast(given, gold, question, others)
    words = normalize(given).split()
    if f" {gold} " not in f" {' '.join(words)} ":
        return False
    rest = f" {' '.join(words)} ".replace(f" {gold} ", f" {GOLD} ").strip()
    if is_denied(gold, rest, question) or is_left_open(gold, rest, question):
        return False
    beside = [word for word in words if word not in own]
    if any(word in others or (word in SPECIAL and gold in SPECIAL) for word in beside):
        return False
    return not _is_list(answer, given, _foreign(beside, own, question))


def _foreign(beside: list[str], own: list[str], question: str) -> list[str]:
    """The words beside the gold answer that neither the question nor any answer has."""
    free = COMMON | ANSWERING | set(normalize(question).split()) | set(filter(is_denying, beside))
    if any(map(_is_letter, own)):  # other letters are other answers
        return [word for word in beside if word not in free or (_is_letter(word) and word != "i")]
    return [word for word in beside if word not in free and not _is_letter(word)]


def _is_list(answer: str, given: str, foreign: list[str]) -> bool:
    """Whether foreign words stand beside the gold answer like other guesses.

    So they do where there are too many of them, other numbers or letters of a choice, more names than words of the
    gold, as many words in a row, or several items of a list.
    """
    own, words = normalize(answer).split(), normalize(given).split()
    most = max(1, len(own))
    if len(foreign) > max(EXTRA, len(own)):
        return True
    if any(any(map(alike, own)) and any(map(alike, foreign)) for alike in (str.isdigit, _is_letter)):
        return True
    named = {normalize(word) for word in given.split() if word.strip(string.punctuation)[:1].isupper()}
    capitals = {normalize(word) for word in answer.split() if word[:1].isupper()} - {""}
    lower = bool(capitals) and not named & set(own)  # there, names have no capitals
    if sum(word in foreign and (lower or word in named) for word in words) > most:
        return True
    rows = groupby(words, lambda word: word in foreign or word in own or word == "and")
    if any(sum(word in foreign for word in row) > most for _, row in rows):
        return True
    items = [set(normalize(item).split()) for item in _ITEM.split(given)]
    return sum(bool(item & set(foreign)) and not item & set(own) for item in items) > 1


def _with_letters(text: str, gold: str) -> str:
    """A text in which the choice A has a letter of its own; "a" before a word is an article."""
    chosen = "Aa" if text is gold else "A" if "A" in gold else ""
    return _A.sub(lambda m: m[0] if m[1] and m[1] not in COMMON and m[0] not in chosen else LETTER_A, text)


def _is_letter(word: str) -> bool:
    return len(word) == 1 and word.isalpha()
