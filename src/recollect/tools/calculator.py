"""A calculator for the model: exact where numbers can be exact, without ``eval``, bounded in time and size."""

from __future__ import annotations

from fractions import Fraction

from recollect.tools.exact_arithmetic import BadExpression, ExpressionParser, tokens
from recollect.tools.polynomial import Polynomial, roots
from recollect.tools.tool_definition import tool
from recollect.types import ToolResult

MAX_EXPRESSION = 2000


@tool(timeout=10.0, max_length=5000)
async def calculator(expression: str) -> ToolResult:
    """Compute an arithmetic expression exactly, or solve an equation in one unknown.

    Args:
        expression: For example (3 + 4) * 12 / 5, 2^10, sqrt(2), 15% * 80, gcd(12, 18), or solve(2*x + 3 = 7).
    """
    try:
        return ToolResult(calculate(expression))
    except BadExpression as error:
        return ToolResult(f"Error: {error}", "exception")


def calculate(expression: str) -> str:
    """The value of an expression, or the solutions of an equation, as text; BadExpression says what is wrong."""
    if len(expression) > MAX_EXPRESSION:
        raise BadExpression(f"the expression is longer than {MAX_EXPRESSION} characters")
    text = expression.strip().strip("`$").strip()
    if text.startswith("solve"):
        inner = text[len("solve") :].strip()
        text = inner[1:-1] if inner.startswith("(") and inner.endswith(")") else inner
        name = text.rpartition(",")
        text = name[0] if name[0] and name[2].strip().isidentifier() else text
    sides = text.rstrip("= ?").split("=")
    if len(sides) > 2:
        raise BadExpression("there is more than one =")
    try:
        values = [ExpressionParser(tokens(side)).whole() for side in sides]
        if len(values) == 1:
            return shown(values[0])
        return _compared(*values)
    except ZeroDivisionError:
        raise BadExpression("division by zero") from None
    except OverflowError:
        raise BadExpression("the result is too large") from None
    except RecursionError:
        raise BadExpression("the expression is nested too deeply") from None


def _compared(left: Fraction | float | Polynomial, right: Fraction | float | Polynomial) -> str:
    """The solutions of an equation, or whether two numbers are equal."""
    both = [side for side in (left, right) if isinstance(side, Polynomial)]
    if not both:
        return str(left == right)
    name = both[0].name
    if any(side.name != name for side in both):
        raise BadExpression("there is more than one unknown")
    difference = Polynomial(name, ())
    for side, sign in ((left, 1), (right, -1)):
        if isinstance(side, float):
            side = Fraction(side)
        one = side if isinstance(side, Polynomial) else Polynomial(name, (side,) if side else ())
        difference = difference + (one if sign > 0 else -one)
    if difference.degree > 2:
        raise BadExpression(f"an equation of degree {difference.degree} cannot be solved here")
    found = roots(difference)
    if found is None:
        return f"every {name} is a solution"
    return " or ".join(f"{name} = {shown(value)}" for value in found) or "there is no real solution"


def shown(value: Fraction | float | Polynomial) -> str:
    """A value as text: integers and finite decimals exactly, other fractions with an approximate decimal."""
    if isinstance(value, Polynomial):
        return _polynomial(value)
    if isinstance(value, float):
        return f"{value:.12g}"
    if value.denominator == 1:
        return str(value.numerator)
    twos_and_fives, places = value.denominator, 0
    for factor in (2, 5):
        count = 0
        while twos_and_fives % factor == 0:
            twos_and_fives //= factor
            count += 1
        places = max(places, count)
    if twos_and_fives == 1 and places <= 20:
        digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
        return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"
    return f"{value} ≈ {float(value):.12g}"


def _polynomial(p: Polynomial) -> str:
    text = ""
    for power in range(p.degree, -1, -1):
        factor = p.at(power)
        if factor == 0:
            continue
        sign = "-" if factor < 0 else "+"
        size = shown(abs(factor)).split(" ")[0]
        power_text = "" if power == 0 else p.name if power == 1 else f"{p.name}^{power}"
        term = power_text if size == "1" and power else f"{size}*{power_text}" if power else size
        text += f" {sign} {term}" if text else f"-{term}" if factor < 0 else term
    return text or "0"
