"""Calls of an assertion that must fail, for each kind of assertion; the text of this file runs in the sandbox."""

from __future__ import annotations

import random
from typing import Any

from recollect.domains.wrong_operands import is_builtin, wrong

SAME = ("Equal", "Equals", "ListEqual", "TupleEqual", "SetEqual", "DictEqual", "SequenceEqual", "MultiLineEqual",
        "CountEqual", "ItemsEqual")  # fmt: skip
EQUALITIES = frozenset(f"assert{name}" for name in SAME)
RAISES = frozenset(("assertRaises", "raises", "assertWarns", "warns"))
MATCHES = frozenset(("assertRaisesRegex", "assertWarnsRegex", "assertLogs", "deprecated_call"))
ERRORS = (
    ZeroDivisionError,
    KeyError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    AttributeError,
    NotImplementedError,
)
OUTSIDE = ("numpy", "unittest", "pandas")  # whose functions assert_… are tried with other arguments


def failing(
    place: str, name: str, args: tuple[Any, ...], named: dict[str, Any], function: Any, rng: random.Random
) -> list[Any]:
    """(call, arguments, named) or (with, arguments, named, what is raised inside) of calls that must fail."""
    if name in RAISES or name in MATCHES:
        return _not_raising(name, args, named, rng)
    if name in EQUALITIES and len(args) >= 2:
        return [("call", (*pair, *args[2:]), named) for pair in _unequal(place, args[0], args[1], rng)]
    if name == "assertAlmostEqual" and len(args) >= 2:
        return [("call", (args[0], far, *args[2:]), named) for far in _far(args, named, rng)]
    if name == "assertIsInstance" and len(args) >= 2:
        return [] if _holds(args[1], object) else [("call", (object(), args[1]), {})]
    if name in PLAIN:
        return [("call", PLAIN[name](rng), {}) for _ in range(2)]
    outside = str(getattr(function, "__module__", "")).partition(".")[0] in OUTSIDE
    return _others(args, named, rng) if name.startswith("assert_") and outside and not place.endswith("?") else []


def _unequal(place: str, left: Any, right: Any, rng: random.Random) -> list[tuple[Any, Any]]:
    meant = place.endswith("?")
    if hasattr(type(left), "__next__") or hasattr(type(right), "__next__"):
        return []
    if is_builtin(left, meant) and not is_builtin(right, meant):
        return [(value, right) for value in wrong(left, rng)]
    return [(left, value) for value in wrong(right, rng)][: 4 if is_builtin(left, meant) else None]


def _far(args: tuple[Any, ...], named: dict[str, Any], rng: random.Random) -> list[Any]:
    """Values beyond the tolerance of assertAlmostEqual(first, second, places, msg, delta)."""
    given = dict(zip(("places", "msg", "delta"), args[2:], strict=False)) | named
    places = 7 if given.get("places") is None else given["places"]
    delta = given.get("delta")
    try:
        most = delta if delta is not None else max(10.0**-places, abs(args[1]) * 1e-3)
        return [args[1] + rng.choice((-1, 1)) * most * rng.uniform(2, 9) for _ in range(4)]
    except Exception:
        return []


def _not_raising(name: str, args: tuple[Any, ...], named: dict[str, Any], rng: random.Random) -> list[Any]:
    """A body that raises nothing, and one that raises something else."""
    kept = 1 if name in RAISES else 2
    expected = args[0] if args else named.get("expected_exception")
    kinds = expected if isinstance(expected, tuple) else (expected,)
    others = [e for e in ERRORS if not any(_related(e, kind) for kind in kinds)]
    raised = [rng.choice(others)("x")] if others and "aise" in name and not _holds(expected, Exception) else []
    if len(args) > kept and callable(args[kept]):
        return [("call", (*args[:kept], _body(error)), {}) for error in (None, *raised)]
    return [("with", args, named, error) for error in (None, *raised)]


def _body(error: BaseException | None) -> Any:
    def body(*args: Any, **named: Any) -> None:
        if error is not None:
            raise error

    return body


def _related(error: type, kind: Any) -> bool:
    return kind in error.__mro__ or error in getattr(kind, "__mro__", ())


def _holds(kinds: Any, kind: type) -> bool:
    """Whether a class, or one of several, is the one or a base of it."""
    if isinstance(kinds, tuple):
        return any(_holds(inner, kind) for inner in kinds)
    return kinds in kind.__mro__ or kinds is None


def _others(args: tuple[Any, ...], named: dict[str, Any], rng: random.Random) -> list[Any]:
    return [("call", tuple(rng.choice(wrong(v, rng) or [None]) for v in args), named) for _ in range(4 * bool(args))]


def _number(rng: random.Random) -> int:
    return rng.randint(-99, 99)


PLAIN: dict[str, Any] = {
    "assertTrue": lambda rng: (rng.choice((0, "", None, False, [])),),
    "assertFalse": lambda rng: (rng.choice((1, "a", True, [0])),),
    "assertIs": lambda rng: (object(), _number(rng)),
    "assertIsNot": lambda rng: (rng, rng),
    "assertIsNone": lambda rng: (_number(rng),),
    "assertIsNotNone": lambda rng: (None,),
    "assertNotEqual": lambda rng: ((n := _number(rng)), n),
    "assertNotAlmostEqual": lambda rng: ((n := _number(rng)), n),
    "assertIn": lambda rng: (_number(rng), rng.choice(([], (), [100, 200], {300: 1}))),
    "assertNotIn": lambda rng: ((n := _number(rng)), [5, n]),
    "assertNotIsInstance": lambda rng: (_number(rng), int),
    "assertGreater": lambda rng: ((n := _number(rng)), n + rng.randint(0, 9)),
    "assertGreaterEqual": lambda rng: ((n := _number(rng)), n + rng.randint(1, 9)),
    "assertLess": lambda rng: ((n := _number(rng)), n - rng.randint(0, 9)),
    "assertLessEqual": lambda rng: ((n := _number(rng)), n - rng.randint(1, 9)),
    "assertRegex": lambda rng: (str(_number(rng)), "[a-z]"),
    "assertNotRegex": lambda rng: (str(_number(rng)), "[0-9]"),
}  # arguments for which an assertion fails, whatever is tested
