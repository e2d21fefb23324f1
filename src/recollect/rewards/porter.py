"""Porter's stems of English words, with the extensions of NLTK's default mode, which LoCoMo's metric uses.

Porter's five steps take suffixes off while enough of a word is left. The measure of a stem counts its changes from a
vowel to a consonant. The extensions: a list of irregular words, no stems of words of one or two letters, ``ies`` and
``ied`` of four letters keep their e, ``y`` becomes ``i`` after any consonant but the first, ``alli`` goes first and
again, ``bli``, ``fulli`` and ``logi`` are suffixes too, and a vowel and a consonant alone count as a short syllable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

Condition = Callable[[str], bool]  # of what is left without the suffix
IRREGULAR = {
    "skies": "sky",
    "sky": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "news": "news",
    "innings": "inning",
    "inning": "inning",
    "outings": "outing",
    "outing": "outing",
    "cannings": "canning",
    "canning": "canning",
    "howe": "howe",
    **{word: word for word in ("proceed", "exceed", "succeed")},
}
PLURALS = {"sses": "ss", "ies": "i", "ss": "ss", "s": ""}
SECOND = {  # in the order in which they are tried
    "ational": "ate",
    "tional": "tion",
    "enci": "ence",
    "anci": "ance",
    "izer": "ize",
    "bli": "ble",
    "alli": "al",
    "entli": "ent",
    "eli": "e",
    "ousli": "ous",
    "ization": "ize",
    "ation": "ate",
    "ator": "ate",
    "alism": "al",
    "iveness": "ive",
    "fulness": "ful",
    "ousness": "ous",
    "aliti": "al",
    "iviti": "ive",
    "biliti": "ble",
    "fulli": "ful",
}
THIRD = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
FOURTH = (
    *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate"),
    *("iti", "ous", "ive", "ize"),
)


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """The stem of a word in lower case."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    if len(word) <= 2:
        return word
    for step in (_plural, _past, _final_y, _second, _third, _fourth, _final_e, _final_l):
        word = step(word)
    return word


def _kinds(word: str) -> str:
    """A c or v for each letter; y is a vowel after a consonant."""
    kinds = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and kinds[-1:] == "c")
        kinds += "v" if vowel else "c"
    return kinds


def _measure(word: str) -> int:
    return _kinds(word).count("vc")


def _short(word: str) -> bool:
    """True when a word ends in a short syllable: consonant, vowel, and a consonant other than w, x and y."""
    kinds = _kinds(word)
    return kinds == "vc" or (kinds[-3:] == "cvc" and word[-1] not in "wxy")


def _double(word: str) -> bool:
    return len(word) >= 2 and word[-1] == word[-2] and _kinds(word)[-1] == "c"


def _replaced(word: str, rules: Sequence[tuple[str, str]], fits: Condition) -> str:
    """The word with its first suffix of these replaced, if what is left fits; no other suffix is tried then."""
    for suffix, new in rules:
        if word.endswith(suffix):
            left = word[: len(word) - len(suffix)]
            return left + new if fits(left) else word
    return word


def _plural(word: str) -> str:
    if word.endswith("ies") and len(word) == 4:
        return word[:-1]
    return _replaced(word, list(PLURALS.items()), lambda left: True)


def _past(word: str) -> str:
    """Without ed and ing, in the form that later steps know."""
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        if word.endswith(suffix) and "v" in _kinds(left := word[: -len(suffix)]):
            return _completed(left)
    return word


def _completed(left: str) -> str:
    """What is left of a word without ed or ing, with its e again, or with one letter of a double one."""
    if left.endswith(("at", "bl", "iz")):
        return left + "e"
    if _double(left):
        return left if left[-1] in "lsz" else left[:-1]
    return left + "e" if _measure(left) == 1 and _short(left) else left


def _final_y(word: str) -> str:
    left = word[:-1]
    return left + "i" if word.endswith("y") and len(left) > 1 and _kinds(left)[-1] == "c" else word


def _second(word: str) -> str:
    positive = lambda left: _measure(left) > 0
    if word.endswith("alli") and positive(word[:-4]):
        return _second(word[:-2])
    if not word.endswith(tuple(SECOND)) and word.endswith("logi"):
        return word[:-1] if positive(word[:-3]) else word
    return _replaced(word, list(SECOND.items()), positive)


def _third(word: str) -> str:
    return _replaced(word, list(THIRD.items()), lambda left: _measure(left) > 0)


def _fourth(word: str) -> str:
    ion = word.endswith("ion")
    fits = lambda left: _measure(left) > 1 and (not ion or left[-1] in "st")
    return _replaced(word, [(suffix, "") for suffix in FOURTH], fits)


def _final_e(word: str) -> str:
    left = word[:-1]
    if not word.endswith("e"):
        return word
    return left if _measure(left) > 1 or (_measure(left) == 1 and not _short(left)) else word


def _final_l(word: str) -> str:
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word
