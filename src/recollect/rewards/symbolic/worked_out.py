"""Whether an expression is worked out: nothing is left to do in it. A part of the program ``compare.py``."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import sympy

OPERATOR = re.compile(
    r"\\(i{1,3}nt|oint|sum|prod|lim|partial|nabla|binom|dbinom|tbinom|gcd|lcm|max|min|det|b?mod|pmod|l?floor|l?ceil)\b"
    r"|\\operatorname|\\[dt]?frac\s*\{\s*(?:\\mathrm\s*\{)?\s*d|\\dot\b|\\prime|[A-Za-z)\]}]'|(?<=[0-9A-Za-z)}])!"
)
UNEVALUATED = ("Integral", "Derivative", "Sum", "Product", "Limit", "Subs", "factorial", "binomial")
FRACTION = re.compile(r"\\[dt]?frac\s*\{\s*(\d+)\s*\}\s*\{\s*(\d+)\s*\}|(?<![\w.^])(\d+)\s*/\s*(\d+)(?![\d.])")


# ---- as it is written ----


def leaves_no_more(said: str, gold: str) -> bool:
    """Whether an expression, before parsing, leaves nothing to do that the gold one does not leave."""
    if operators(said) - operators(gold):
        return False
    return not any(left(said) and not left(gold) for left in (powers_of_logarithms, fractions_to_shorten))


def operators(text: str) -> Counter[str]:
    """The operators in an expression that ask for a computation."""
    return Counter(m.group(1) or m.group(0) for m in OPERATOR.finditer(text))


def fractions_to_shorten(text: str) -> bool:
    """Whether 84/2 stands in an expression; parsing would shorten it."""
    found = ([int(part) for part in m.groups() if part] for m in FRACTION.finditer(text))
    return any(math.gcd(above, below) > 1 or below == 1 for above, below in found)


def powers_of_logarithms(text: str) -> bool:
    """Whether e is raised to the logarithm of a number, which parsing would work out."""
    for place in re.finditer(r"(?<![A-Za-z\\])e\s*\^|\\exp(?![A-Za-z])", text):
        inside = _group(text[place.end() :].lstrip())
        if re.search(r"\\(ln|log)\b", inside) and not re.search(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", inside)):
            return True
    return False


def _group(text: str) -> str:
    """The group in brackets that begins a text, or its first sign."""
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign in "{(") - (sign in "})")
        if depth <= 0:
            return text[: place + 1]
    return text


# ---- as it is parsed ----


def nodes(expression: Any) -> Iterator[Any]:
    """An expression and everything in it, sums and products with all of their terms."""
    return sympy.preorder_traversal(expression)


def flat(node: Any) -> list[Any]:
    """The terms of a sum or the factors of a product, those inside an inner one included."""
    kind = type(node)
    return [part for arg in node.args for part in (flat(arg) if type(arg) is kind else [arg])]


def is_literal(node: Any) -> bool:
    """A number that is written out, or its reciprocal."""
    if isinstance(node, sympy.Pow):
        return isinstance(node.base, sympy.Integer) and node.exp == -1
    if isinstance(node, sympy.Mul):
        return all(map(is_literal, flat(node)))
    return isinstance(node, sympy.Rational | sympy.Float)


def is_worked_out(expression: Any) -> bool:
    """Nothing is left to do in it: no 6 + 6, no x + 0, no 2x/4, no pi/2 - pi/4, no 32^2, no integral, no arctan(1)."""
    return not any(type(n).__name__ in UNEVALUATED or _is_open(n) for n in nodes(expression))


def _is_open(node: Any) -> bool:
    if isinstance(node, sympy.Function) and node.is_number:
        return not node.doit().has(type(node))
    if isinstance(node, sympy.Add):
        terms = flat(node)
        numbers = [a for a in terms if is_literal(a)]
        return len(numbers) > 1 or any(n == 0 for n in numbers) or any(map(_is_whole_power, terms)) or has_like(node)
    if isinstance(node, sympy.Mul):
        factors = bare(node)
        return _is_open_product(factors) or _has_repeated_base(factors)
    return isinstance(node, sympy.Pow) and _is_open_power(node)


def has_like(node: Any) -> bool:
    """Whether a sum has like terms, which could be added up."""
    return len(flat(node)) > len(sympy.Add.make_args(node.doit()))


def bare(product: Any) -> list[Any]:
    """The factors of a product, those below a fraction line one by one."""
    found = []
    for part in flat(product):
        if isinstance(part, sympy.Pow) and part.exp == -1 and isinstance(part.base, sympy.Mul):
            found += [sympy.Pow(f, -1, evaluate=False) for f in flat(part.base)]
        else:
            found.append(part)
    return found


def base_and_power(factor: Any) -> tuple[Any, Any]:
    """What is raised to which power, a power of a power taken as one."""
    base, power = factor, sympy.Integer(1)
    while isinstance(base, sympy.Pow | sympy.exp):
        power *= base.exp
        base = base.base
    return base, power


def _is_whole_power(node: Any) -> bool:
    """2^10 or 3^-2; 1/3 is a fraction, and powers of 10 belong to numbers."""
    if not isinstance(node, sympy.Pow) or node.exp == -1:
        return False
    return isinstance(node.base, sympy.Rational) and isinstance(node.exp, sympy.Integer) and node.base != 10


def _is_open_power(node: Any) -> bool:
    base, power = node.base, node.exp
    if power in (0, 1) or base in (0, 1):
        return True
    if _is_whole_power(node):  # large ones of a prime are as good as their digits
        return not (base.is_Integer and sympy.isprime(abs(base)) and power > 0 and power * math.log10(abs(base)) >= 3)
    if isinstance(base, sympy.Rational) and isinstance(power, sympy.Rational):
        return not base.is_Integer if power == -1 else base > 0 and sympy.Pow(base, power).is_Rational
    if isinstance(base, sympy.Pow) and power != -1 and power.is_Integer:  # (x^2)^3, and the square of a root
        return bool((base.exp * power).is_Integer)
    return power == -1 and any(f.as_base_exp()[1].could_extract_minus_sign() for f in flat(base) if base.is_Mul)


def _has_repeated_base(factors: list[Any]) -> bool:
    """x times x, or x over its root. A root beside its base is no such thing: 3 sqrt(3), sqrt(3)/3."""
    powers: dict[Any, list[Any]] = {}
    for base, power in map(base_and_power, factors):
        if power.is_Rational and not (base in (1, -1) or isinstance(base, sympy.Float)):
            powers.setdefault(base, []).append(power)
    return any(_is_repeated(base, found) for base, found in powers.items())


def _is_repeated(base: Any, powers: list[Any]) -> bool:
    above, below = [p for p in powers if p > 0], [p for p in powers if p < 0]
    if above and below:
        return not (all(p < 1 for p in above) and all(p.is_Integer for p in below))
    wholes = sum(bool(p.is_Integer) for p in powers)
    return max(wholes, len(powers) - wholes) > 1 and not isinstance(base, sympy.Add)


def _is_open_product(factors: list[Any]) -> bool:
    above = [abs(f) for f in factors if isinstance(f, sympy.Rational | sympy.Float) and f != -1]
    below = [f.base for f in factors if isinstance(f, sympy.Pow) and is_literal(f)]
    signs = sum(bool(f.is_number and is_literal(f) and f < 0) for f in factors)
    if any(isinstance(f, sympy.Pow) and isinstance(f.base, sympy.Float) and f.exp == -1 for f in factors):
        return True
    if len(above) > 1 or len(below) > 1 or signs > 1 or 0 in above or 1 in below:
        return True
    if 1 in above and len(factors) - signs > 1 and not below:  # 1/x is written with a 1
        return not any(isinstance(f, sympy.Pow) and f.exp.could_extract_minus_sign() for f in factors)
    whole = [int(n) for n in above if isinstance(n, sympy.Integer)]
    under = [int(base) for base, power in map(base_and_power, factors) if base.is_Integer and power.is_negative]
    return any(math.gcd(n, d) > 1 for n in whole for d in under)
