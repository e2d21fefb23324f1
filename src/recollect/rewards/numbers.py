r"""Numbers in a text: ``1,234``, ``$72.00``, ``-5``, ``3/4``, ``1 1/2``, ``\frac{3}{4}``, ``12.5%``, ``1.5e3``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

DIGITS, EXPONENT = 300, 300  # longer numbers and larger exponents are not read
_WHOLE = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
_DECIMAL = rf"(?:{_WHOLE}(?:\.[0-9]+)?|\.[0-9]+)"
_NUMBER = re.compile(
    rf"(?<![A-Za-z0-9_.^])(?P<text>(?:(?<![)\]%}}])(?P<sign>[-+](?=[$€£¥0-9.])))?(?:[$€£¥]\s?)?(?P<sign2>-(?=[0-9.]))?"
    rf"(?:(?P<mixed>[0-9]+)[ ](?P<part>[0-9]+)/(?P<whole>[0-9]+)(?![0-9.])"
    rf"|(?P<above>{_DECIMAL})(?:\s?/\s?(?P<below>[0-9]+)(?![0-9.]*[0-9])"
    rf"|[eE](?P<power>[-+]?[0-9]{{1,3}})(?![A-Za-z0-9]))?)(?P<percent>\s?(?:%|percent\b))?)"
)
_FRAC = re.compile(r"(?P<before>[0-9]\s*)?\\[dt]?frac\s*(?:\{\s*(-?[0-9]+)\s*\}\s*\{\s*([0-9]+)\s*\}|([0-9])([0-9]))")
_SPELLING = ((r"\$", "$"), (r"\%", "%"), ("{,}", ","), (r"\,", ""), (r"\!", ""), ("−", "-"), ("–", "-"))


@dataclass(frozen=True)
class Number:
    """A number as it stands in a text."""

    value: Fraction
    text: str
    percent: bool = False
    lowest: bool = True  # False: a fraction that could be shortened, such as 84/2

    def equals(self, gold: Number) -> bool:
        """The same value. ``25%`` is also the same as 25 and as 0.25; 84/2 is 42 only where the gold is spelt so."""
        if not self.lowest and self.text.replace(" ", "") != gold.text.replace(" ", ""):
            return False
        if self.percent == gold.percent:
            return self.value == gold.value
        plain, hundredths = (gold.value, self.value) if self.percent else (self.value, gold.value)
        return plain in (hundredths, hundredths / 100)


def spell(text: str) -> str:
    """A text with LaTeX's spellings of numbers replaced by plain ones."""
    for old, new in _SPELLING:
        text = text.replace(old, new)
    return _FRAC.sub(_plain_fraction, text)


def _plain_fraction(found: re.Match[str]) -> str:
    before = found["before"] or ""
    gap = f"{before.strip()} " if before else ""
    return f"{gap}{found[2] or found[4]}/{found[3] or found[5]}"


def numbers(text: str) -> Iterator[Number]:
    """Every number of a text, in order."""
    for found in _NUMBER.finditer(spell(text)):
        number = _read(found)
        if number is not None:
            yield number


def last_number(text: str) -> Number | None:
    """The last number of a text."""
    last = None
    for number in numbers(text):
        last = number
    return last


def only_number(text: str) -> Number | None:
    """The number that a text is, when it is nothing else but a unit or a currency."""
    plain = spell(text).strip().strip("$").strip()
    plain = re.sub(r"(\\(text|mathrm|textbf|mbox)\s*\{[^{}]*\}|\^\s*\{?\\circ\}?|\\circ|°|\.)\s*$", "", plain).strip()
    found = _NUMBER.match(plain)
    rest = plain[found.end() :] if found else ""
    if found is None or (rest and not re.fullmatch(r"\s+[A-Za-z][A-Za-z. ]+", rest)):
        return None
    return _read(found)


def _read(found: re.Match[str]) -> Number | None:
    sign = -1 if "-" in (found["sign"], found["sign2"]) else 1
    if any(len(found[g] or "") > DIGITS for g in ("mixed", "part", "whole", "above", "below")):
        return None
    percent, text, lowest = found["percent"] is not None, found["text"].strip(), True
    if found["mixed"]:
        above, below = int(found["part"]), int(found["whole"])
        if below == 0 or above >= below:
            return None
        value, lowest = int(found["mixed"]) + Fraction(above, below), gcd(above, below) == 1
    else:
        value = Fraction(found["above"].replace(",", ""))
        if found["below"]:
            below = int(found["below"])
            if below == 0:
                return None
            lowest = value.denominator == 1 and below > 1 and gcd(value.numerator, below) == 1
            value /= below
        elif found["power"]:
            if abs(int(found["power"])) > EXPONENT:
                return None
            value *= Fraction(10) ** int(found["power"])
    return Number(sign * value, text, percent, lowest)
