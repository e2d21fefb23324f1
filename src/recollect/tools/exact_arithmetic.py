"""Reading and computing arithmetic: fractions stay exact, only roots and transcendental functions become floats.

Integers stay below ``MAX_BITS`` bits, so nothing a model writes can take long.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction

from recollect.tools.polynomial import MAX_DEGREE, Polynomial, constant, exact_root, unknown

Value = Fraction | float | Polynomial
MAX_BITS = 13000  # about 3900 digits, below the length at which Python refuses to print an integer
MAX_DEPTH = 60
MAX_FACTORIAL = 1000

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:(?:\d{1,3}(?:,\d{3})+(?![\d,])|\d+)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+(?![\w.]))?)"
    r"|(?P<name>[A-Za-zπ_]\w*)|(?P<sign>\*\*|//|[-+*/%^()!,√]))"
)
_ALIKE = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "[": "(", "]": ")", "{": "(", "}": ")"})


class BadExpression(ValueError):
    """The expression cannot be computed; the message says why."""


def tokens(text: str) -> list[str]:
    """The numbers, names and signs of an expression. A comma in 1,234 belongs to the number outside of functions."""
    text = text.translate(_ALIKE).replace("\\cdot", "*").replace("\\times", "*").replace("$", "")
    found: list[str] = []
    opened: list[bool] = []  # for every open parenthesis, whether it belongs to a function
    place = 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or not match[0].strip():
            rest = text[place:].strip()
            if not rest:
                break
            raise BadExpression(f"{rest[:20]!r} is not understood")
        token = match[0].strip()
        if "," in token and len(token) > 1 and any(opened):
            token = token[: token.index(",")]
            place = text.index(token, place) + len(token)
        else:
            place = match.end()
        if token == "(":
            opened.append(bool(found) and found[-1] in FUNCTIONS)
        elif token == ")" and opened:
            opened.pop()
        found.append(token)
    return found


class ExpressionParser:
    """Computes while it reads: sums of products of powers."""

    def __init__(self, read: list[str]) -> None:
        self._tokens, self._at, self._depth = read, 0, 0

    def whole(self) -> Value:
        """The value of all tokens."""
        if not self._tokens:
            raise BadExpression("the expression is empty")
        value = self._sum()
        if self._next() is not None:
            raise BadExpression(f"{self._next()!r} is not expected here")
        return value

    def _next(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self, *wanted: str) -> str | None:
        token = self._next()
        if token is None or token not in wanted:
            return None
        self._at += 1
        return token

    def _sum(self) -> Value:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise BadExpression("the expression is nested too deeply")
        value = self._product()
        while sign := self._take("+", "-"):
            other = self._product()
            value = _add(value, other if sign == "+" else _multiply(Fraction(-1), other))
        self._depth -= 1
        return value

    def _product(self) -> Value:
        value = self._signed()
        while True:
            if self._take("*"):
                value = _multiply(value, self._signed())
            elif sign := self._take("/", "//", "%"):
                value = _divide(value, self._signed(), sign)
            elif self._starts_operand():  # 2x, 3(4 + 5)
                value = _multiply(value, self._power())
            else:
                return value

    def _starts_operand(self) -> bool:
        token = self._next()
        return token is not None and (token == "(" or token == "√" or token[0].isalpha())

    def _signed(self) -> Value:
        sign = Fraction(1)
        while token := self._take("-", "+"):
            sign = -sign if token == "-" else sign
        value = self._power()
        return value if sign > 0 else _multiply(sign, value)

    def _power(self) -> Value:
        base = self._postfix()
        if not self._take("**", "^"):
            return base
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise BadExpression("the expression is nested too deeply")
        exponent = self._signed()
        self._depth -= 1
        return _raise(base, exponent)

    def _postfix(self) -> Value:
        value = self._operand()
        while True:
            if self._take("!"):
                value = _factorial(value)
            elif self._next() == "%" and not self._operand_follows():
                self._at += 1
                value = _divide(value, Fraction(100), "/")
            else:
                return value

    def _operand_follows(self) -> bool:
        """Whether a % is a remainder: then what it divides by comes next."""
        after = self._tokens[self._at + 1] if self._at + 1 < len(self._tokens) else ""
        return bool(after) and (after == "(" or after[0].isalnum() or after[0] in ".π")

    def _operand(self) -> Value:
        token = self._next()
        if token is None:
            raise BadExpression("the expression ends too early")
        self._at += 1
        if token == "(":
            return self._closed()
        if token == "√":
            return FUNCTIONS["sqrt"](self._postfix())
        if token[0].isdigit() or token[0] == ".":
            return _number(token)
        if token in CONSTANTS:
            return CONSTANTS[token]
        if token in FUNCTIONS:
            return self._function(token)
        if re.fullmatch(r"[A-Za-z]", token):
            return unknown(token)
        raise BadExpression(f"{token!r} is not known")

    def _closed(self) -> Value:
        value = self._sum()
        if not self._take(")"):
            raise BadExpression("a parenthesis is not closed")
        return value

    def _function(self, name: str) -> Value:
        if not self._take("("):
            raise BadExpression(f"{name} needs parentheses")
        arguments = [] if self._next() == ")" else [self._sum()]
        while self._take(","):
            arguments.append(self._sum())
        if not self._take(")"):
            raise BadExpression("a parenthesis is not closed")
        try:
            return FUNCTIONS[name](*arguments)
        except BadExpression:
            raise
        except (TypeError, ValueError):
            raise BadExpression(f"{name} does not take {len(arguments)} arguments of this kind") from None


def _number(token: str) -> Fraction:
    mantissa, _, exponent = token.replace(",", "").lower().partition("e")
    if exponent and abs(int(exponent)) > 300:
        raise BadExpression("the number is too large")
    return _bounded(Fraction(mantissa.rstrip(".") or "0") * Fraction(10) ** int(exponent or 0))


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise BadExpression("the result is too large")
    return value


def _checked(value: float | complex) -> float:
    if isinstance(value, complex) or value != value:
        raise BadExpression("the result is not a real number")
    if math.isinf(value):
        raise BadExpression("the result is too large")
    return value


def _alike(a: Value, b: Value) -> tuple[Polynomial, Polynomial] | None:
    """Both as polynomials in the same unknown, if either is one."""
    name = a.name if isinstance(a, Polynomial) else b.name if isinstance(b, Polynomial) else ""
    if not name:
        return None
    both = [v if isinstance(v, Polynomial) else constant(name, Fraction(v)) for v in (a, b)]
    if both[0].name != both[1].name:
        raise BadExpression("there is more than one unknown")
    return both[0], both[1]


def _add(a: Value, b: Value) -> Value:
    if pair := _alike(a, b):
        return _lowered(pair[0] + pair[1])
    assert not isinstance(a, Polynomial)
    assert not isinstance(b, Polynomial)
    return _bounded(a + b) if isinstance(a, Fraction) and isinstance(b, Fraction) else _checked(float(a) + float(b))


def _multiply(a: Value, b: Value) -> Value:
    if pair := _alike(a, b):
        if pair[0].degree + pair[1].degree > MAX_DEGREE:
            raise BadExpression("the power of the unknown is too large")
        product = pair[0] * pair[1]
        for term in product.terms:
            _bounded(term)
        return _lowered(product)
    assert not isinstance(a, Polynomial)
    assert not isinstance(b, Polynomial)
    return _bounded(a * b) if isinstance(a, Fraction) and isinstance(b, Fraction) else _checked(float(a) * float(b))


def _divide(a: Value, b: Value, sign: str) -> Value:
    if isinstance(b, Polynomial):
        raise BadExpression("division by an unknown is not supported")
    if sign == "/":
        return _multiply(a, 1 / b)
    if isinstance(a, Polynomial):
        raise BadExpression(f"{sign} needs numbers")
    quotient = Fraction(a // b)
    return _bounded(quotient) if sign == "//" else a % b


def _lowered(p: Polynomial) -> Value:
    return p if p.degree else p.at(0)


def _raise(base: Value, exponent: Value) -> Value:
    if isinstance(exponent, Polynomial):
        raise BadExpression("an unknown in an exponent is not supported")
    if isinstance(base, Polynomial):
        if not isinstance(exponent, Fraction) or exponent.denominator != 1 or not 0 <= exponent <= MAX_DEGREE:
            raise BadExpression("this power of an unknown is not supported")
        power: Value = Fraction(1)
        for _ in range(int(exponent)):
            power = _multiply(power, base)
        return power
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        if exponent.denominator == 1:
            bits = max(base.numerator.bit_length(), base.denominator.bit_length())
            if (bits - 1) * abs(int(exponent)) > MAX_BITS and abs(base) != 1:
                raise BadExpression("the result is too large")
            return _bounded(base ** int(exponent))
        if base >= 0 and exponent.denominator <= 64 and abs(exponent.numerator) <= 64:
            root = exact_root(base, exponent.denominator)
            if root is not None:
                return _raise(root, Fraction(exponent.numerator))
    return _checked(float(base) ** float(exponent))


def _factorial(value: Value) -> Fraction:
    number = _integer(value)
    if number < 0 or number > MAX_FACTORIAL:
        raise BadExpression(f"factorial takes integers from 0 to {MAX_FACTORIAL}")
    return Fraction(math.factorial(number))


def _integer(value: Value) -> int:
    if isinstance(value, Polynomial) or value != int(value):
        raise BadExpression("an integer is needed")
    return int(value)


def _real(value: Value) -> float:
    if isinstance(value, Polynomial):
        raise BadExpression("functions of an unknown are not supported")
    return float(value)


def _exact(value: Value) -> Fraction | float:
    if isinstance(value, Polynomial):
        raise BadExpression("functions of an unknown are not supported")
    return value


def _float(function: Callable[..., float]) -> Callable[..., Value]:
    def run(*arguments: Value) -> Value:
        try:
            return _checked(function(*map(_real, arguments)))
        except ValueError as error:
            raise (
                error if isinstance(error, BadExpression) else BadExpression("the result is not a real number")
            ) from None

    return run


def _round(value: Value, digits: Value = Fraction(0)) -> Value:
    places = _integer(digits)
    if abs(places) > 100:
        raise BadExpression("round takes at most 100 digits")
    scale = Fraction(10) ** places
    scaled = Fraction(_exact(value)) * scale
    whole = math.floor(abs(scaled) + Fraction(1, 2))  # halves away from zero, as people round
    return Fraction(whole if scaled >= 0 else -whole) / scale


def _sqrt(value: Value) -> Value:
    return _raise(_exact(value), Fraction(1, 2))


def _absolute(value: Value) -> Value:
    number = _exact(value)
    return -number if number < 0 else number


def _sum(*values: Value) -> Value:
    total: Value = Fraction(0)
    for value in values:
        total = _add(total, value)
    return total


def _cbrt(value: Value) -> Value:
    root = _raise(_absolute(value), Fraction(1, 3))
    return _multiply(Fraction(-1), root) if _real(value) < 0 else root


def _log(value: Value, base: Value | None = None) -> Value:
    number, to = _exact(value), None if base is None else _real(base)
    if number <= 0 or (to is not None and (to <= 0 or to == 1)):
        raise BadExpression("log takes positive numbers")
    natural = (
        math.log(number.numerator) - math.log(number.denominator) if isinstance(number, Fraction) else math.log(number)
    )
    if to is None:
        return natural
    guess = round(natural / math.log(to))
    if isinstance(number, Fraction) and isinstance(base, Fraction) and abs(guess) < 4000 and base**guess == number:
        return Fraction(guess)
    return natural / math.log(to)


CONSTANTS: dict[str, Value] = {"pi": math.pi, "π": math.pi, "e": math.e, "tau": math.tau}
FUNCTIONS: dict[str, Callable[..., Value]] = {
    "sqrt": _sqrt,
    "cbrt": _cbrt,
    "abs": _absolute,
    "min": lambda *v: min(map(_exact, v)),
    "max": lambda *v: max(map(_exact, v)),
    "sum": _sum,
    "round": _round,
    "floor": lambda v: Fraction(math.floor(_exact(v))),
    "ceil": lambda v: Fraction(math.ceil(_exact(v))),
    "gcd": lambda *v: Fraction(math.gcd(*map(_integer, v))),
    "lcm": lambda *v: _bounded(Fraction(math.lcm(*map(_integer, v)))),
    "factorial": _factorial,
    "log": _log,
    "ln": _log,
    "log2": lambda v: _log(v, Fraction(2)),
    "log10": lambda v: _log(v, Fraction(10)),
    "exp": _float(math.exp),
    "mod": lambda a, b: _divide(a, b, "%"),
    **{
        name: _float(getattr(math, name))
        for name in ("sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")
    },
    "degrees": _float(math.degrees),
    "radians": _float(math.radians),
}
