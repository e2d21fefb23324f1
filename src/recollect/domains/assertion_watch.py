"""What watches the assertions of a repository's tests while they run; the text of this file runs in the sandbox.

An assertion means something if it fails for wrong values. So each that could be made to pass, because an operand is of
a class of the repository's or a function stands between, is tried with decoys too, in random order with the real
operands. One that accepts them is hollow, and its test fails. Built-in values need no such trial: Python compares them.
"""

from __future__ import annotations

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
from recollect.domains.watch_state import DEPTH, DOUBTED, EXEMPT, HOLLOW, MODE, RNG, SPOIL, WATCH, note, report
from recollect.domains.watched_comparisons import compare, is_walked, walks_to
from recollect.rewards.decoys import meaningless


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
        args = (args[0], [args[0]] if walks_to(place, args[0], args[1]) else [], *args[2:])
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
