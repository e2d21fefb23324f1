"""Which values Python itself compares, and wrong ones in place of others; the text of this file runs in the sandbox."""

from __future__ import annotations

import datetime
import random
import sys
from collections import OrderedDict, defaultdict, deque
from contextlib import suppress
from decimal import Decimal
from types import MappingProxyType, SimpleNamespace
from typing import Any

from recollect.rewards.decoys import decoy, decoys, unrelated

HEAP = 1 << 9  # the flag of classes that are made at run time; Python code makes no others
PLAIN_TYPES = frozenset(
    (bool, int, float, complex, str, bytes, bytearray, range, type(None), type(Ellipsis), type(NotImplemented))
)  # exact types whose values hold no others
SEQUENCES: tuple[type, ...] = (list, tuple, set, frozenset, deque, type({}.keys()), type({}.values()), type({}.items()))
MAPPINGS = (dict, OrderedDict, defaultdict)
BASES = (bool, int, float, complex, str, bytes, tuple, list, dict, frozenset, set)
MANY = 20_000  # values of a container that are looked at


def is_builtin(value: Any, any_is_meant: bool = False) -> bool:
    """Whether a value and all it holds are of plain types and containers of Python: no equality of theirs is forged."""
    left, seen = [value], 0
    while left:
        item, seen = left.pop(), seen + 1
        kind = type(item)
        if seen > MANY:
            return False
        if kind in SEQUENCES:
            left.extend(item)
        elif kind in MAPPINGS:
            left.extend(item.keys())
            left.extend(item.values())
        elif kind is SimpleNamespace:
            left.extend(vars(item).values())
        elif not (kind in PLAIN_TYPES or _is_numeric(item, kind) or (any_is_meant and item is _anything())):
            return False
    return True


def _is_numeric(value: Any, kind: type) -> bool:
    """Whether a value is an array or a number of numpy's that holds no objects."""
    if kind.__flags__ & HEAP or kind.__module__ != "numpy" or not hasattr(kind, "dtype"):
        return False
    return not value.dtype.hasobject


def _anything() -> Any:
    return getattr(sys.modules.get("unittest.mock"), "ANY", None)


def wrong(value: Any, rng: random.Random) -> list[Any]:
    """Values that are not equal to this one."""
    if type(value).__name__.startswith("Approx") and hasattr(value, "expected"):
        return [made for _ in range(8) if (made := _far_approx(value, rng)) is not None]
    if is_builtin(value):
        return [*decoys(value, rng), *([not value] * 4 if type(value) is bool else [])]
    stands_in = str(type(value).__module__).startswith("unittest.mock")  # equal to itself alone
    made = [changed(value, rng) for _ in range(0 if stands_in else 8)]
    return [*(v for v in made if v is not value), *(unrelated(rng) for _ in range(4))]


def aligned(left: Any, right: Any, any_is_meant: bool) -> list[tuple[Any, Any]]:
    """What stands at the same places of two containers, as far as not both are built in."""
    left, right = _parts(left), _parts(right)
    if type(left) is not type(right) or type(left) not in (list, tuple, dict) or len(left) != len(right):
        return []
    keys = [k for k in left if k in right] if type(left) is dict else range(len(left))
    pairs = [(left[k], right[k]) for k in keys]
    return [pair for pair in pairs if not all(is_builtin(value, any_is_meant) for value in pair)][:50]


def _parts(value: Any) -> Any:
    """What a container holds, as a list, tuple or dict."""
    kind = type(value)
    if kind is slice:
        return (value.start, value.stop, value.step)
    if kind is deque:
        return list(value)
    if kind is SimpleNamespace:
        return vars(value)
    return dict(value) if kind in (OrderedDict, defaultdict, MappingProxyType) else value


def changed(value: Any, rng: random.Random, depth: int = 0) -> Any:
    """A value like this one in which everything plain is different; the value itself if nothing in it is plain."""
    kind = type(value)
    if kind in BASES or is_builtin(value):
        return _changed_items(value, rng, depth) if kind in (list, tuple, dict) and value else decoy(value, rng)
    base = next((b for b in BASES if issubclass(kind, b)), None)
    with suppress(Exception):
        if kind in REMADE:
            return REMADE[kind](value, rng)
        made = _made(kind, base, changed(base(value), rng, depth + 1) if base else None)
        fields = {k: changed(v, rng, depth + 1) if depth < 3 else v for k, v in _fields(value).items()}
        for name, item in fields.items():
            object.__setattr__(made, name, item)
        return made if base or any(fields[k] is not v for k, v in _fields(value).items()) else value
    return unrelated(rng) if base else value


def _changed_items(value: Any, rng: random.Random, depth: int) -> Any:
    if depth >= 3 or len(value) > 400:
        return decoy(value, rng)
    if type(value) is dict:
        return {k: replaced(v, rng, depth + 1) for k, v in value.items()}
    return type(value)(replaced(v, rng, depth + 1) for v in value)


def replaced(value: Any, rng: random.Random, depth: int) -> Any:
    """Another value, of no particular kind where none like it can be made."""
    made = changed(value, rng, depth)
    return unrelated(rng) if made is value and value is not _anything() else made


def _later(value: Any, rng: random.Random) -> Any:
    days = type(value) is datetime.date
    step = rng.randint(1, 400) if days else rng.randint(1, rng.choice((60, 40_000)))
    return value + rng.choice((-1, 1)) * datetime.timedelta(**{"days" if days else "seconds": step})


REMADE: dict[type, Any] = {
    **dict.fromkeys((datetime.datetime, datetime.date, datetime.timedelta), _later),
    Decimal: lambda value, rng: value + rng.choice((-1, 1)) * rng.randint(1, 60),
    slice: lambda value, rng: slice(*(replaced(v, rng, 1) for v in (value.start, value.stop, value.step))),
    MappingProxyType: lambda value, rng: MappingProxyType(changed(dict(value), rng, 1)),
}  # exact types of C that hold what they are made of where no attribute shows it


def _made(kind: Any, base: Any, plain: Any) -> Any:
    """An object of a class without its constructor."""
    if base is None:
        return object.__new__(kind)
    if base in (list, dict, set):
        made = base.__new__(kind)
        base.__init__(made, plain)
        return made
    return base.__new__(kind, plain)


def _fields(value: Any) -> dict[str, Any]:
    """What an object holds."""
    slots = [n for k in type(value).__mro__ for n in _names(k.__dict__.get("__slots__", ()))]
    held = {n: getattr(value, n) for n in slots if n not in ("__dict__", "__weakref__") and hasattr(value, n)}
    return {**held, **getattr(value, "__dict__", {})}


def _names(slots: Any) -> list[str]:
    return [slots] if isinstance(slots, str) else list(slots)


def _far_approx(value: Any, rng: random.Random) -> Any:
    """Another expectation with the same tolerance, beyond it."""
    approx = sys.modules["pytest"].approx
    with suppress(Exception):
        return approx(_shifted(value.expected, rng, value.abs or 0, value.rel or 0), rel=value.rel, abs=value.abs)
    return None


def _shifted(value: Any, rng: random.Random, most: float, share: float) -> Any:
    if isinstance(value, dict):
        return {k: _shifted(v, rng, most, share) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_shifted(v, rng, most, share) for v in value]
    return value + rng.choice((-1, 1)) * (max(1, abs(value)) * (1 + 10 * share) + 10 * most) * rng.uniform(1, 3)
