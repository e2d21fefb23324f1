"""Which values Python itself compares, and wrong ones in place of others; the text of this file runs in the sandbox."""

from __future__ import annotations

import random
import sys
from collections import OrderedDict, defaultdict, deque
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

from recollect.rewards.decoys import decoy, decoys, unrelated

HEAP, IMMUTABLE = (
    1 << 9,
    1 << 8,
)  # flags of classes: made at run time; cannot be changed, which Python code cannot ask for
SEQUENCES: tuple[type, ...] = (list, tuple, set, frozenset, deque, type({}.keys()), type({}.values()), type({}.items()))
MAPPINGS = (dict, OrderedDict, defaultdict)
BASES = (bool, int, float, complex, str, bytes, tuple, list, dict, frozenset, set)
MANY = 20_000  # values of a container that are looked at


def is_builtin(value: Any, any_is_meant: bool = False) -> bool:
    """Whether a value and all it holds are of classes that no Python code has made, so that no equality is forged."""
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
        elif not (_is_given(item, kind) or (any_is_meant and item is _anything())):
            return False
    return True


def _is_given(value: Any, kind: type) -> bool:
    if kind.__name__ == "ndarray" and not kind.__flags__ & HEAP:
        return bool(value.dtype.kind != "O")
    return not kind.__flags__ & HEAP or bool(kind.__flags__ & IMMUTABLE)


def _anything() -> Any:
    return getattr(sys.modules.get("unittest.mock"), "ANY", None)


def wrong(value: Any, rng: random.Random) -> list[Any]:
    """Values that are not equal to this one."""
    if type(value).__name__.startswith("Approx") and hasattr(value, "expected"):
        return [made for _ in range(8) if (made := _far_approx(value, rng)) is not None]
    if is_builtin(value):
        return decoys(value, rng)
    stands_in = str(type(value).__module__).startswith("unittest.mock")  # equal to itself alone
    made = [changed(value, rng) for _ in range(0 if stands_in else 8)]
    return [*(v for v in made if v is not value), *(unrelated(rng) for _ in range(4))]


def aligned(left: Any, right: Any, any_is_meant: bool) -> list[tuple[Any, Any]]:
    """What stands at the same places of two containers, as far as not both are built in."""
    if type(left) is not type(right) or type(left) not in (list, tuple, dict) or len(left) != len(right):
        return []
    keys = [k for k in left if k in right] if type(left) is dict else range(len(left))
    pairs = [(left[k], right[k]) for k in keys]
    return [pair for pair in pairs if not all(is_builtin(value, any_is_meant) for value in pair)][:50]


def changed(value: Any, rng: random.Random, depth: int = 0) -> Any:
    """A value like this one in which everything plain is different; the value itself if nothing in it is plain."""
    kind = type(value)
    if kind in BASES or is_builtin(value):
        return _changed_items(value, rng, depth) if kind in (list, tuple, dict) and value else decoy(value, rng)
    base = next((b for b in BASES if isinstance(value, b)), None)
    with suppress(Exception):
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
        return {k: changed(v, rng, depth + 1) for k, v in value.items()}
    return type(value)(changed(v, rng, depth + 1) for v in value)


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
