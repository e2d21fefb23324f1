"""Mathematical questions that a script can answer for sure, as Python programs; other questions get none.

A question is understood as a whole or not at all: an expression of numbers, one equation of degree two at most in one
unknown, or the derivative of a polynomial.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from recollect.tools.exact_arithmetic import BadExpression, ExpressionParser, tokens
from recollect.tools.polynomial import Polynomial

Program = tuple[str, str]  # what has to be computed, the Python that does it
_ASK = r"(?:please )?(?:(?:what is|what's|how much is|compute|calculate|evaluate|find|determine|work out) )?"
_SUM = re.compile(rf"{_ASK}(?:the )?(?:(?:value|result) of )?(?P<sum>[\d\s.,+\-*/^()]+?)(?: ?= ?)?", re.IGNORECASE)
_PERCENT = re.compile(rf"{_ASK}(?P<part>\d+(?:\.\d+)?) ?(?:%|percent) of (?P<whole>\d+(?:\.\d+)?)", re.IGNORECASE)
_SIDES = r"(?P<left>[\da-z\s.+\-*/^()]+?) ?= ?(?P<right>[\da-z\s.+\-*/^()]+?)"
_SOLVE = r"(?:solve|find|determine|work out)(?: the)?(?: (?:linear|quadratic|following))*(?: equation)?"
_EQUATIONS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"(?:please )?{_SOLVE}(?: for (?P<name>[a-z]))?(?: in)? ?:? ?{_SIDES}(?:,? for (?P<last>[a-z]))?",
        rf"(?:if|given(?: that)?|suppose(?: that)?|when) {_SIDES}(?:, ?then|,| then) ?"
        r"(?:what is|what's|find|solve for|determine|calculate)(?: the value of)? (?P<name>[a-z])",
        rf"{_ASK}(?:the value of )?(?P<name>[a-z]) (?:if|when|such that|given(?: that)?|where|in)(?: the equation)? "
        rf"{_SIDES}",
        _SIDES,
    )
]
_DERIVATIVE = re.compile(
    r"(?:please )?(?:(?:what is|what's|find|compute|calculate|determine|give) )?"
    r"(?:differentiate|(?:the )?(?:first )?derivative of) (?:[a-z](?:\([a-z]\))? ?= ?)?(?P<of>[\da-z\s.+\-*/^()]+?)"
    r"(?: with respect to (?P<name>[a-z]))?(?: at (?P<at>[a-z]) ?= ?(?P<point>-?\d+(?:/\d+|\.\d+)?))?",
    re.IGNORECASE,
)
_AMBIGUOUS = re.compile(r"/\s*(?:\d[\d.]*\s*[a-z(]|[a-z]\w*\s*\()|\d\s+\d|\b0\d|\d,\d{1,2}(?!\d)", re.IGNORECASE)
_WORD = re.compile(r"[a-z]{2}|e", re.IGNORECASE)  # functions, constants and words are not for this script

SOLVE = """from fractions import Fraction as F
from math import isqrt, sqrt
a, b, c = {terms}  # of {name}^2, {name} and 1
under = b * b - 4 * a * c
if a == b == 0:
    print("every {name} is a solution" if c == 0 else "there is no solution")
elif a == 0:
    print(-c / b)
elif under < 0:
    print("there is no real solution")
else:
    exact = F(isqrt(under.numerator * under.denominator), under.denominator)
    root = exact if exact * exact == under else sqrt(under)
    found = sorted({{(-b - root) / (2 * a), (-b + root) / (2 * a)}})
    print(*(x if root == exact else round(float(x), 6) for x in found), sep=", ")"""
DERIVE = """from fractions import Fraction as F
terms = {terms}  # of {name}^0, {name}^1, …
slope = [i * term for i, term in enumerate(terms)][1:]
"""
AT = "print(sum(term * F('{point}') ** i for i, term in enumerate(slope)))"
WRITTEN = """text = ""
for power, term in reversed(list(enumerate(slope))):
    if term:
        name = "" if power == 0 else "{name}" if power == 1 else f"{name}^{{power}}"
        size = str(abs(term)) if abs(term) != 1 or not name else ""
        size = f"({{size}})" if "/" in size and name else size
        sign = ("-" if term < 0 else "") if not text else " - " if term < 0 else " + "
        text += sign + size + name
print(text or 0)"""


def program(question: str) -> Program | None:
    """The program that answers a question; None where that is not certain."""
    text = " ".join(question.split()).rstrip("?.! ").translate(str.maketrans("×·÷−–", "**/--"))
    readers: tuple[Callable[[str], Program | None], ...] = (_percent, _derivative, _equation, _sum)
    try:
        return next((made for read in readers if (made := read(text)) is not None), None)
    except (BadExpression, ZeroDivisionError, OverflowError, RecursionError):
        return None


def _percent(text: str) -> Program | None:
    found = _PERCENT.fullmatch(text)
    return _printed(f"{found['part']} / 100 * {found['whole']}") if found else None


def _sum(text: str) -> Program | None:
    found = _SUM.fullmatch(text)
    if found is None or _AMBIGUOUS.search(found["sum"]) or not re.search(r"\d\s*\)*\s*[+\-*/^]", found["sum"]):
        return None
    return _printed(found["sum"].strip())


def _printed(expression: str) -> Program | None:
    """A sum as a program; only where its value is exact."""
    if not isinstance(ExpressionParser(tokens(expression)).whole(), Fraction):
        return None
    code = re.sub(r"(?<=\d),(?=\d{3})", "", expression).replace("^", "**")
    code = re.sub(r"([\d)])\s*\(", r"\1*(", code)
    if "/" not in code and "." not in code and not re.search(r"\*\*\s*[-(]", code):
        return expression, f"print({code})"
    exact = re.sub(r"\d+(?:\.\d*)?|\.\d+", lambda n: f"F('{n[0].rstrip('.')}')", code)
    shown = "float(x) if F(str(float(x))) == x else x" if "." in code else "x"
    return expression, f"from fractions import Fraction as F\nx = {exact}\nprint(x if x.denominator == 1 else {shown})"


def _equation(text: str) -> Program | None:
    for pattern in _EQUATIONS:
        found = pattern.fullmatch(text)
        if found is not None and (made := _solved(found)) is not None:
            return made
    return None


def _solved(found: re.Match[str]) -> Program | None:
    """One reading of an equation; None if it makes no sense."""
    if any(_AMBIGUOUS.search(found[side]) or _WORD.search(found[side]) for side in ("left", "right")):
        return None
    left, right = _value(found["left"]), _value(found["right"])
    both = [v for v in (left, right) if isinstance(v, Polynomial)]
    names = {v.name for v in both} | {v for k, v in found.groupdict().items() if k in ("name", "last") and v}
    if not both or len(names) > 1 or max(v.degree for v in both) > 2:
        return None
    terms = [_term(left, i) - _term(right, i) for i in (2, 1, 0)]
    plan = f"solve {found['left'].strip()} = {found['right'].strip()}"
    return plan, SOLVE.format(terms=", ".join(map(_fraction, terms)), name=names.pop())


def _derivative(text: str) -> Program | None:
    found = _DERIVATIVE.fullmatch(text)
    if found is None or _AMBIGUOUS.search(found["of"]) or _WORD.search(found["of"]):
        return None
    value = _value(found["of"])
    if not isinstance(value, Polynomial) or any(found[k] and found[k] != value.name for k in ("name", "at")):
        return None
    terms = f"[{', '.join(map(_fraction, value.terms))}]"
    code = DERIVE.format(terms=terms, name=value.name)
    code += AT.format(point=found["point"]) if found["point"] else WRITTEN.format(name=value.name)
    return f"the derivative of {found['of']}", code


def _value(text: str) -> Fraction | Polynomial:
    """An exact value."""
    value = ExpressionParser(tokens(text)).whole()
    if isinstance(value, float):
        raise BadExpression("the value is not exact")
    return value


def _term(value: Fraction | Polynomial, power: int) -> Fraction:
    return value.at(power) if isinstance(value, Polynomial) else value if power == 0 else Fraction(0)


def _fraction(value: Fraction) -> str:
    return f"F({value.numerator})" if value.denominator == 1 else f"F({value.numerator}, {value.denominator})"
