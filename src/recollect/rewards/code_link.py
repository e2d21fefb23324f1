"""How two processes ask each other about their objects; the text of this file runs in the sandbox.

Plain data crosses as itself and is made anew from built-in types. Everything else crosses as a reference.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import json
import operator
import os
from typing import Any

from recollect.rewards.code_far import Far

MOST = 1 << 26  # bytes of a message
DEEP = 200  # levels of containers
SCALARS = (int, str, bytes, complex)
MADE: dict[str, Any] = {
    "fractions.Fraction": lambda v: [v.numerator, v.denominator],
    "decimal.Decimal": lambda v: [str(v)],
    "datetime.date": lambda v: [v.year, v.month, v.day],
    "datetime.datetime": lambda v: [v.year, v.month, v.day, v.hour, v.minute, v.second, v.microsecond],
    "datetime.timedelta": lambda v: [v.days, v.seconds, v.microseconds],
    "builtins.range": lambda v: [v.start, v.stop, v.step],
    "collections.deque": lambda v: [list(v)],
}  # plain values of the standard library, and what makes them anew
HELPERS = frozenset(
    [
        *("math", "cmath", "itertools", "functools", "operator", "collections", "re", "string", "random", "statistics"),
        *("heapq", "bisect", "typing", "copy", "json", "datetime", "decimal", "fractions", "numpy"),
    ]
)  # modules that tests may use because the program has imported them; they are the judge's own
ALIASES = {"numpy": "np", "datetime": "dt"}
HOLDERS: dict[str, Any] = {"l": list, "t": tuple, "e": set, "z": frozenset}
ENDINGS = (StopIteration, StopAsyncIteration)  # what raises one ends the loop of whoever called
ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")
CHANGING = (list, dict, set, bytearray)


class Gone(BaseException):
    """The other process does not answer any more."""


class Link:
    """One side of the conversation: objects that the other side may name, and how values cross."""

    @property
    def operations(self) -> dict[str, Any]:
        """What the other side may do with them."""
        return OPERATIONS

    def __init__(self, source: int, sink: int, shared: dict[str, Any]) -> None:
        self.source, self.sink = os.fdopen(source, "rb"), os.fdopen(sink, "wb")
        self.shared = shared  # names by which both sides know the classes that the tests define
        self.kept: list[Any] = []

    def send(self, message: list[Any]) -> None:
        """A line of JSON."""
        try:
            self.sink.write(json.dumps(message).encode() + b"\n")
            self.sink.flush()
        except OSError:
            raise Gone from None

    def receive(self) -> list[Any]:
        """The next message."""
        line = self.source.readline(MOST)
        if not line.endswith(b"\n"):
            raise Gone
        message = json.loads(line)
        if not isinstance(message, list) or not message:
            raise Gone
        return message

    def pack(self, value: Any, depth: int = 0) -> Any:
        """A value as JSON: plain data as itself, everything else as a reference."""
        if depth > DEEP:
            raise ValueError("nested too deeply")
        if value is None or value is True or value is False:
            return value
        if isinstance(value, float):
            return ["f", float.__repr__(value)]
        for kind in SCALARS:
            if isinstance(value, kind):
                return ["s", kind.__repr__(value)]
        if isinstance(value, bytearray):
            return ["b", repr(bytes(value))]
        if isinstance(value, dict):
            return ["d", *([self.pack(k, depth + 1), self.pack(v, depth + 1)] for k, v in dict.items(value))]
        for mark, holder in HOLDERS.items():
            if isinstance(value, holder):
                return [mark, *(self.pack(v, depth + 1) for v in holder.__iter__(value))]
        return self._pack_object(value, depth)

    def _pack_object(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if isinstance(value, Far):
            return ["yours", value._far_number]
        name = f"{kind.__module__}.{kind.__qualname__}"
        if name in MADE:
            return ["m", name, *(self.pack(part, depth + 1) for part in MADE[name](value))]
        if kind.__module__ == "numpy" and hasattr(value, "tolist"):
            plain = self.pack(value.tolist(), depth + 1)
            return plain if kind.__name__ != "ndarray" else ["a", str(value.dtype), plain]
        if self.shared.get(kind.__name__) is kind:
            fields = {k: v for k, v in vars(value).items() if isinstance(k, str)}
            return ["o", kind.__name__, self.pack(fields, depth + 1)]
        self.kept.append(value)
        return ["mine", len(self.kept) - 1, kind.__name__]

    def unpack(self, given: Any) -> Any:
        """The value of what ``pack`` made on the other side."""
        if given is None or given is True or given is False:
            return given
        mark, rest = given[0], given[1:]
        if mark == "f":
            return float(rest[0])
        if mark == "s":
            return ast.literal_eval(rest[0])
        if mark == "b":
            return bytearray(ast.literal_eval(rest[0]))
        if mark == "d":
            return {self.unpack(k): self.unpack(v) for k, v in rest}
        if mark in HOLDERS:
            return HOLDERS[mark](map(self.unpack, rest))
        if mark == "m":
            place, _, name = str(rest[0]).rpartition(".")
            return (
                getattr(importlib.import_module(place), name)(*map(self.unpack, rest[1:])) if rest[0] in MADE else None
            )
        if mark == "a":
            return importlib.import_module("numpy").array(self.unpack(rest[1]), dtype=rest[0])
        if mark == "o":
            made = self.shared[rest[0]]
            value = made.__new__(made)
            value.__dict__.update(self.unpack(rest[1]))
            return value
        if mark == "yours":
            return self.kept[rest[0]]
        return self.far(int(rest[0]), str(rest[1]))

    def far(self, number: int, kind: str) -> Any:
        """The stand-in for an object of the other side."""
        return Far(self, number)

    def ask(self, what: str, number: int, *values: Any) -> Any:
        """Let the other side do something with an object of its own; meanwhile it may ask in turn."""
        self.send(["ask", what, number, [self.pack(v) for v in values]])
        while (message := self.receive())[0] == "ask":
            self.answer(message)
        if message[0] == "raised":
            raise self.error(message[1], self.unpack(message[2]))
        for given, now in zip(values[0] if what == "call" else (), self.unpack(message[2]), strict=False):
            _become(given, now)
        return self.unpack(message[1])

    def answer(self, message: list[Any]) -> None:
        """Do what the other side asks for."""
        _, what, number, given = message
        try:
            values = [self.unpack(v) for v in given]
            value = self.operations[what](self.kept[number], *values)
            if inspect.iscoroutine(value):
                value = importlib.import_module("asyncio").run(value)
            now = [v if isinstance(v, CHANGING) else None for v in values[0]] if what == "call" else []
            packed = ["value", self.pack(value), self.pack(now)]
        except Gone:
            raise
        except BaseException as error:
            packed = ["raised", type(error).__name__, self.pack([str(v) for v in error.args])]
        self.send(packed)

    def error(self, name: str, args: list[Any]) -> BaseException:
        """What the other side raised, as an exception of this one's."""
        found: Any = self.shared.get(name, getattr(builtins, name, None))
        fits = isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, ENDINGS)
        return found(*args) if fits else RuntimeError(f"{name}: {args}")


def _become(given: Any, now: Any) -> None:
    """Let an argument be what the other side made of its copy."""
    if type(given) is not type(now) or given == now:
        return
    if isinstance(given, list | bytearray):
        given[:] = now
    elif isinstance(given, dict | set):
        given.clear()
        given.update(now)


def _next(value: Any) -> list[Any]:
    """The next item in a list; an empty one at the end."""
    for item in value:
        return [item]
    return []


def _reflected(function: Any) -> Any:
    return lambda value, other: function(other, value)


OPERATIONS: dict[str, Any] = {
    "value": lambda value: value,
    "call": lambda value, args, named: value(*args, **named),
    "get": getattr,
    "set": setattr,
    "item": lambda value, key: value[key],
    "put": lambda value, key, item: value.__setitem__(key, item),
    "len": lambda value: len(value),
    "iter": iter,
    "next": _next,
    "str": lambda value: str.__str__(str(value)),
    "repr": lambda value: str.__str__(repr(value)),
    "bool": bool,
    "hash": hash,
    "contains": lambda value, item: item in value,
    **{name: getattr(operator, f"__{name}__") for name in ("eq", "lt", "le", "gt", "ge", "neg", "abs", *ARITHMETIC)},
    **{f"r{name}": _reflected(getattr(operator, f"__{name}__")) for name in ARITHMETIC},
}


HARMLESS = {name: OPERATIONS[name] for name in ("call", "iter", "next", "len", "str", "repr")}
"""What the worker may do with the tests' objects: nothing that leads from one to another."""
