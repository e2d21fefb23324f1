"""What watches the assertions of a repository's tests while they run; the text of this file runs in the sandbox.

An assertion means something if it fails for wrong values. So each that could be made to pass, because an operand is of
a class of the repository's or a function stands between, is tried with decoys too, in random order with the real
operands. One that accepts them is hollow, and its test fails. Built-in values need no such trial: Python compares them.
"""

from __future__ import annotations

import operator
import os
import random
import sys
import unittest
from collections import deque
from itertools import pairwise
from typing import Any

from recollect.domains.failing_assertions import EQUALITIES, failing
from recollect.domains.kept_machinery import (
    keep_class,
    keep_helpers,
    keep_module,
    machinery_changes,
    own_changes,
    remember,
)
from recollect.domains.wrong_operands import aligned, is_builtin, replaced, wrong
from recollect.rewards.decoys import meaningless

WATCH, SPOIL, LOOK = "watch", "spoil", "look"
MODE: list[str] = [WATCH]  # spoil: every test fails; look: the same, and hollow places are only noted
HOLLOW: list[str] = []
EXEMPT: set[str] = set()  # places that are hollow in the repository as it came
DOUBTED: dict[int, Any] = {}  # results of hollow comparisons that are not bool
DEPTH = [0]
RNG = random.Random(os.urandom(16))
FOUND, EVENTS = "hollow.txt", "events.txt"
FOLDER = os.path.dirname(os.path.abspath(__file__))
NOTED: set[tuple[str, str]] = set()
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
AGAINST = {"<": ">", "<=": ">", ">": "<", ">=": "<"}
NEGATED = {"!=": "same", "not in": "in"}


def setup(mode: str, exempt: list[str]) -> None:
    """Begin: remember the machinery of the tests before anything of the repository is loaded."""
    MODE[0] = mode
    EXEMPT.update(exempt)
    remember()


def module(path: str, held: dict[str, Any], given: list[str], has_more: bool, patched: list[str]) -> None:
    """The first line of a module of the tests."""
    note("begun", path)
    keep_module(held, frozenset(given), has_more, patched)


def loaded(path: str, held: dict[str, Any], defined: list[str]) -> None:
    """Its last line."""
    note("loaded", path)
    keep_helpers(held, defined)


def made(kind: Any) -> None:
    """A class of the tests, just defined."""
    keep_class(kind)


def note(what: str, name: str) -> None:
    """Write down what has happened, once."""
    if (what, name) not in NOTED:
        NOTED.add((what, name))
        _write(EVENTS, f"{what} {name}")


def _write(file_name: str, line: str) -> None:
    with open(os.path.join(FOLDER, file_name), "a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def report(place: str) -> None:
    """A hollow place."""
    if place in EXEMPT:
        return
    HOLLOW.append(place)
    if MODE[0] == LOOK:
        _write(FOUND, place)
    else:
        raise AssertionError(f"{place} accepts wrong values")


def begin(name: str, test: Any = None) -> Any:
    """The begin of a test."""
    DEPTH[0] += 1
    note("entered", name)
    return sys.exc_info()[1], test


def end(begun: Any) -> None:
    """The end of a test: it fails if an assertion was hollow, or if all tests are to fail."""
    DEPTH[0] -= 1
    for name in (*machinery_changes(), *own_changes(begun[1])):
        report(name)
    if sys.exc_info()[1] is not begun[0]:
        return
    if MODE[0] != WATCH or HOLLOW:
        raise AssertionError("hollow" if HOLLOW and MODE[0] == WATCH else "spoilt")


def truth(value: Any) -> Any:
    """The value of a plain assertion."""
    return False if _spoils() else doubt(value)


def doubt(value: Any) -> Any:
    """A value that a test asks for its truth."""
    if DOUBTED.get(id(value)) is value:
        report(f"{type(value).__name__} as truth")
    return value


def _spoils() -> bool:
    return MODE[0] == SPOIL and DEPTH[0] > 0 and RNG.random() < 0.5


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
        return _walked(place, left, right) is (sign == "in")
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
    pairs = [(left, d) for d in wrong(right, RNG)] if not known[0] else [(d, right) for d in wrong(left, RNG)]
    return _tried(place, sign, left, right, [(sign, a, b) for a, b in pairs])


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


def _walked(place: str, value: Any, holder: Any) -> bool:
    """Whether an iterator comes to a value; each comparison is tried."""
    return any(item is value or bool(compare(place, "==", item, value)) for item in holder)


def _tried(place: str, sign: str, left: Any, right: Any, tries: list[Any], most: int | None = None) -> Any:
    """What a comparison gives, if it is not also true for what must be false."""
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
    if type(real) in (int, float, str, type(None)):
        real = bool(real)
    if not isinstance(real, bool):
        DOUBTED.update({id(real): real} if hollow else {})
    elif real and hollow:
        report(place)
    return real


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


def call(place: str, name: str, function: Any, /, *args: Any, **named: Any) -> Any:
    """A call of an assertion, tried with arguments for which it must fail."""
    own = getattr(function, "__globals__", {}).get(__name__) is sys.modules.get(__name__)
    if own or place in EXEMPT:  # what it compares is watched itself
        return function(*args, **named)
    args = tuple(list(v) if name in LISTED and hasattr(type(v), "__next__") else v for v in args)
    if name == "fail":
        function(*args, **named)
        report(place)  # for it came back
    if name in ("assertIn", "assertNotIn") and len(args) >= 2 and is_walked(args[1]):
        args = (args[0], [args[0]] if _walked(place, args[0], args[1]) else [], *args[2:])
    elif name in WATCHED and len(args) >= 2:
        compare(place, WATCHED[name], args[0], args[1])
    for value in args[:1]:
        doubt(value)
    calls = failing(place, name, args, named, function, RNG)
    if calls and _spoils():
        _spoilt(function, RNG.choice(calls))
    row: list[Any] = [None, *calls]
    RNG.shuffle(row)
    accepted, result = 0, None
    for wrongly in row:
        if wrongly is None:
            result = function(*args, **named)
        else:
            accepted += passes(function, wrongly)
    if meaningless(accepted, len(calls)):
        report(place)
    return result


def lookup(place: str, name: str, function: Any, /, *args: Any, **named: Any) -> Any:
    """A call that compares inside, as ``index`` and ``max`` do; its comparisons are tried first."""
    owner: Any = getattr(function, "__self__", None)
    if name in ("index", "count") and type(owner) in (list, tuple, deque) and args:
        pairs = [("==", args[0], item) for item in tuple(owner)[:50]]
    elif name in ("max", "min") and len(args) > 1:
        pairs = [("<", a, b) for a, b in pairwise(args)]
    else:
        pairs = [("==", args[0], args[1])] if name == "eq" and len(args) == 2 else []
    for pair in pairs:
        compare(place, *pair)
    return function(*args, **named)


def _spoilt(function: Any, wrongly: Any) -> None:
    if wrongly[0] == "call":
        function(*wrongly[1], **wrongly[2])


def passes(function: Any, wrongly: Any) -> bool:
    """Whether an assertion passes a call that it must not: (call, arguments) or (with, arguments, what is raised)."""
    how, args, named, *raised = wrongly
    try:
        if how == "call":
            function(*args, **named)
        else:
            with function(*args, **named):
                if raised[0] is not None:
                    raise raised[0]
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except unittest.SkipTest:
        return True
    except BaseException as error:
        return type(error).__name__ in ("Skipped", "XFailed", "Exit")
    return True


LISTED = ("assertCountEqual", "assertSequenceEqual", "assertItemsEqual")
WATCHED: dict[str, str] = {
    "assertGreater": ">",
    "assertGreaterEqual": ">=",
    "assertLess": "<",
    "assertLessEqual": "<=",
    "assertIn": "in",
    "assertNotEqual": "!=",
    **dict.fromkeys(EQUALITIES - set(LISTED), "=="),
}
