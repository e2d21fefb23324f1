"""Values that cross between two processes as what they are; the text of this file runs in the sandbox."""

from __future__ import annotations

from typing import Any

FACTORIES = {kind.__name__: kind for kind in (int, float, str, list, dict, set, tuple, bool)}
MADE: dict[str, Any] = {
    "fractions.Fraction": lambda v: [v.numerator, v.denominator],
    "decimal.Decimal": lambda v: [str(v)],
    "datetime.date": lambda v: [v.year, v.month, v.day],
    "datetime.datetime": lambda v: [v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond, v.tzinfo],
    "datetime.time": lambda v: [v.hour, v.minute, v.second, v.microsecond, v.tzinfo],
    "datetime.timedelta": lambda v: [v.days, v.seconds, v.microseconds],
    "datetime.timezone": lambda v: [v.utcoffset(None), v.tzname(None)],
    "zoneinfo.ZoneInfo": lambda v: [v.key],
    "pathlib.PosixPath": lambda v: [str(v)],
    "pathlib.PurePosixPath": lambda v: [str(v)],
    "uuid.UUID": lambda v: [str(v)],
    "builtins.range": lambda v: [v.start, v.stop, v.step],
    "collections.deque": lambda v: [list(v), v.maxlen],
    "collections.Counter": lambda v: [dict(v)],
    "collections.OrderedDict": lambda v: [list(v.items())],
}  # plain values of the standard library, and what makes them anew
BASES: dict[str, Any] = {kind.__name__: kind for kind in (int, float, complex, str, bytes, tuple, frozenset)}
CHANGING: dict[str, Any] = {kind.__name__: kind for kind in (list, dict, set, bytearray)}
HOLDING = (*CHANGING.values(), tuple)
CHANGED_BY_NAME = frozenset(f"collections.{name}" for name in ("deque", "Counter", "OrderedDict"))
OPERATORS = frozenset(
    f"__{name}__"
    for name in (
        *("eq", "ne", "lt", "le", "gt", "ge", "hash", "bool", "len", "iter", "contains", "getitem", "call"),
        *("neg", "abs", "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor"),
        *("radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rpow", "rmatmul", "rand", "ror", "rxor"),
    )
)


def name_of(kind: type) -> str:
    """A class as its module and name."""
    return f"{kind.__module__}.{kind.__qualname__}"


def base_of(kind: type) -> type | None:
    """The built-in class of immutable values that a class derives from, unless it has operators of its own."""
    found = next((base for base in BASES.values() if issubclass(kind, base)), None)
    own = {name for k in own_classes(kind) for name in vars(k)}
    if found is int and "_member_map_" in own:
        own -= {"__or__", "__and__", "__xor__", "__ror__", "__rand__", "__rxor__"}  # what enum gives to its classes
    return None if own & OPERATORS else found


def own_classes(kind: type) -> list[type]:
    """A class and those that it derives from, without Python's."""
    return [k for k in kind.__mro__ if k.__module__ == "solution"]


def bare(value: Any) -> Any:
    """A value of a class that derives from a built-in one, as that; another as it is."""
    if type(value) in (bool, *BASES.values(), *CHANGING.values()):
        return value
    for base in BASES.values():
        if isinstance(value, base):
            return frozenset(base.__iter__(value)) if base is frozenset else base(*base.__getnewargs__(value))
    if isinstance(value, dict):
        return dict(dict.items(value))
    return next((base(base.__iter__(value)) for base in CHANGING.values() if isinstance(value, base)), value)


def has_known_default(value: Any) -> bool:
    """Whether it is a defaultdict that the other side can make."""
    return name_of(type(value)) == "collections.defaultdict" and value.default_factory in (None, *FACTORIES.values())


def become(given: Any, now: Any) -> None:
    """Let a container hold what another one of its class holds."""
    if type(given) is not type(now):
        return
    if isinstance(given, list | bytearray):
        given[:] = now
    elif isinstance(given, dict | set):
        given.clear()
        given |= now
    elif name_of(type(given)) == "collections.deque":
        given.clear()
        given.extend(now)


def containers(value: Any, found: dict[int, Any] | None = None) -> dict[int, Any]:
    """id → container that may change, of all inside a value, in order."""
    found = {} if found is None else found
    known = type(value) in HOLDING or name_of(type(value)) in CHANGED_BY_NAME or has_known_default(value)
    if id(value) in found or not known:
        return found
    if type(value) is not tuple:
        found[id(value)] = value
    for inner in () if type(value) is bytearray else value.values() if isinstance(value, dict) else value:
        containers(inner, found)
    return found
