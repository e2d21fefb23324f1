"""Comparisons and arithmetic of tests, tried with wrong operands; the text of this file runs in the sandbox."""

from __future__ import annotations

import operator
from typing import Any

from recollect.domains.watch_state import DOUBTED, EXEMPT, RNG, report
from recollect.domains.wrong_operands import aligned, is_builtin, replaced, wrong
from recollect.rewards.decoys import meaningless

SIGNS: dict[str, Any] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda a, b: a in b,
    "not in": lambda a, b: a not in b,
    "is": operator.is_,
    "is not": operator.is_not,
    "same": lambda a, b: not operator.ne(a, b),
    "-": operator.sub,
    "/": operator.truediv,
    "^": operator.xor,
}
AGAIN = 4  # times as many decoys for what a first look doubts
AGAINST = {"<": ">", "<=": ">", ">": "<", ">=": "<"}
NEGATED = {"!=": "same", "not in": "in"}


def chain(place: str, signs: str, left: Any, *later: Any) -> Any:
    """A chain of comparisons, which ends with the first that does not hold."""
    result: Any = True
    for sign, get in zip(signs.split(), later, strict=True):
        right = get()
        result = compare(place, sign.replace("_", " "), left, right)
        if not result:
            return result
        left = right
    return result


def compare(place: str, sign: str, left: Any, right: Any) -> Any:
    """A comparison, tried with decoys where an operand has a say in it."""
    any_is_meant = place.endswith("?")
    known = is_builtin(left, any_is_meant), is_builtin(right, any_is_meant)
    if sign in ("in", "not in") and is_walked(right):
        return walks_to(place, left, right) is (sign == "in")
    if all(known) or left is right or sign in ("is", "is not") or place in EXEMPT:
        return SIGNS[sign](left, right)
    if sign in NEGATED:
        return _negated(place, sign, left, right)
    if sign in AGAINST:
        tries = [(AGAINST[sign], left, right), ({"<=": "<", ">=": ">"}.get(sign, sign), right, left)]
        return _tried(place, sign, left, right, tries, most=0)
    if sign == "in":
        return _contained(place, left, right, known)
    for inner in aligned(left, right, any_is_meant):
        compare(place, sign, *inner)
    pairs = lambda: [(left, d) for d in wrong(right, RNG)] if not known[0] else [(d, right) for d in wrong(left, RNG)]
    decoys = lambda: [(sign, a, b) for a, b in pairs()]
    return _tried(place, sign, left, right, decoys(), again=decoys)


def _negated(place: str, sign: str, left: Any, right: Any) -> Any:
    """A comparison that holds where another does not."""
    said = SIGNS[sign](left, right)
    if isinstance(said, bool):
        return not compare(place, NEGATED[sign], left, right)
    try:
        held = bool(compare(place, NEGATED[sign], left, right))
    except (ValueError, TypeError):  # of arrays and tables
        return said
    return not held if is_builtin(said) else said


def _contained(place: str, left: Any, right: Any, known: tuple[bool, bool]) -> Any:
    if type(right) in (list, tuple, set, frozenset, dict):
        holders = [[replaced(item, RNG, 0) for item in right] for _ in range(8)] if not known[0] else []
        tries = [("in", left, held) for held in holders] or [("in", d, right) for d in wrong(left, RNG)]
        return _tried(place, "in", left, right, tries)
    tries = [("in", value, right) for value in wrong(object(), RNG)]
    return _tried(place, "in", left, right, tries, most=len(tries) - 1)


def is_walked(holder: Any) -> bool:
    """Whether ``in`` walks through a value and uses it up."""
    return hasattr(type(holder), "__next__") and not hasattr(type(holder), "__contains__")


def walks_to(place: str, value: Any, holder: Any) -> bool:
    """Whether an iterator comes to a value; each comparison is tried."""
    return any(item is value or bool(compare(place, "==", item, value)) for item in holder)


def _tried(
    place: str, sign: str, left: Any, right: Any, tries: list[Any], most: int | None = None, again: Any = None
) -> Any:
    """What a comparison gives, if it is not also true for what must be false.

    ``again`` makes other decoys: an equality modulo 7, say, accepts some, and is asked more before it is doubted.
    """
    row = [(True, sign, left, right), *((False, *one) for one in tries)]
    RNG.shuffle(row)
    real: Any = None
    accepted = 0
    for is_real, name, a, b in row:
        try:
            said = SIGNS[name](a, b)
            accepted += not is_real and bool(said)
        except Exception:
            said = None
            if is_real:
                return SIGNS[sign](left, right)
        real = said if is_real else real
    hollow = accepted > most if most is not None else meaningless(accepted, len(tries))
    if hollow and again is not None:
        more = [one for _ in range(AGAIN) for one in again()]
        hollow = meaningless(accepted + sum(_comes_true(*one) for one in more), len(tries) + len(more))
    if type(real) in (int, float, str, type(None)):
        real = bool(real)
    if not isinstance(real, bool):
        DOUBTED.update({id(real): real} if hollow else {})
    elif real and (hollow or not SIGNS[sign](left, right)):  # or true only once
        report(place)
    return real


def _comes_true(name: str, left: Any, right: Any) -> bool:
    try:
        return bool(SIGNS[name](left, right))
    except Exception:
        return False


def combine(place: str, sign: str, left: Any, right: Any) -> Any:
    """Arithmetic, tried with other operands where one of the repository's has a say in it."""
    known = is_builtin(left), is_builtin(right)
    if all(known) or not any(known) or place in EXEMPT:
        return SIGNS[sign](left, right)
    tries = [(d, right) for d in wrong(left, RNG)] if known[0] else [(left, d) for d in wrong(right, RNG)]
    row = [(True, left, right), *((False, a, b) for a, b in tries)]
    RNG.shuffle(row)
    results = [(is_real, _attempt(sign, a, b)) for is_real, a, b in row]
    real = next(result for is_real, result in results if is_real)
    if real is None or type(real) not in (int, float, complex, bool):
        return SIGNS[sign](left, right)
    same = sum(type(r) is type(real) and r == real for is_real, r in results if not is_real)
    if meaningless(same, len(tries)):
        report(place)
    return real


def _attempt(sign: str, left: Any, right: Any) -> Any:
    try:
        return SIGNS[sign](left, right)
    except Exception:
        return None
