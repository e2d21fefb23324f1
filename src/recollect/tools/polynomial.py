"""Polynomials in one unknown with exact coefficients, and the solutions of linear and quadratic equations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

MAX_DEGREE = 64


@dataclass(frozen=True)
class Polynomial:
    """``terms[i]`` is the coefficient of the i-th power; the last one is not 0."""

    name: str
    terms: tuple[Fraction, ...]

    def __add__(self, other: Polynomial) -> Polynomial:
        longest = max(len(self.terms), len(other.terms))
        return _trimmed(self.name, [self.at(i) + other.at(i) for i in range(longest)])

    def __neg__(self) -> Polynomial:
        return Polynomial(self.name, tuple(-t for t in self.terms))

    def __mul__(self, other: Polynomial) -> Polynomial:
        product = [Fraction(0)] * (len(self.terms) + len(other.terms))
        for i, a in enumerate(self.terms):
            for j, b in enumerate(other.terms):
                product[i + j] += a * b
        return _trimmed(self.name, product)

    def at(self, power: int) -> Fraction:
        """The coefficient of a power."""
        return self.terms[power] if power < len(self.terms) else Fraction(0)

    @property
    def degree(self) -> int:
        """The largest power; 0 for a constant."""
        return max(len(self.terms) - 1, 0)


def _trimmed(name: str, terms: list[Fraction]) -> Polynomial:
    while terms and terms[-1] == 0:
        terms.pop()
    return Polynomial(name, tuple(terms))


def unknown(name: str) -> Polynomial:
    """The unknown itself."""
    return Polynomial(name, (Fraction(0), Fraction(1)))


def constant(name: str, value: Fraction) -> Polynomial:
    """A number as a polynomial."""
    return _trimmed(name, [value])


def exact_root(value: Fraction, degree: int = 2) -> Fraction | None:
    """The root of a number that is not negative, when it is rational."""
    parts = []
    for part in (value.numerator, value.denominator):
        near = math.isqrt(part) if degree == 2 else _integer_root(part, degree)
        if near**degree != part:
            return None
        parts.append(near)
    return Fraction(parts[0], parts[1])


def _integer_root(value: int, degree: int) -> int:
    low, high = 0, 1 << (value.bit_length() // degree + 1)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**degree <= value else (low, middle - 1)
    return low


def roots(p: Polynomial) -> list[Fraction | float] | None:
    """The real solutions of p = 0, exact where they are rational; None when every number is one."""
    if not p.terms:
        return None
    if p.degree == 0:
        return []
    if p.degree == 1:
        return [-p.at(0) / p.at(1)]
    assert p.degree == 2, "only linear and quadratic equations are solved here"
    a, b, c = p.at(2), p.at(1), p.at(0)
    under = b * b - 4 * a * c
    if under < 0:
        return []
    root = exact_root(under)
    found: list[Fraction | float]
    if root is not None:
        found = [(-b - root) / (2 * a), (-b + root) / (2 * a)]
    else:
        found = [float(-b / (2 * a)) + sign * math.sqrt(under) / float(2 * a) for sign in (-1, 1)]
    return sorted(set(found))
