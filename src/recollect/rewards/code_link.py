"""How two processes ask each other about their objects; the text of this file runs in the sandbox.

Plain data crosses as itself and is made anew from built-in types. Everything else crosses as a reference.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import inspect
import io
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from recollect.rewards.code_far import Far, HeldValue
from recollect.rewards.code_operations import OPERATIONS
from recollect.rewards.code_values import (
    CHANGING,
    FACTORIES,
    MADE,
    bare,
    base_of,
    become,
    containers,
    has_known_default,
    name_of,
)

MOST = 1 << 26  # bytes of a message
DEEP = 200  # levels of containers
HELPERS = frozenset(
    [
        *("math", "cmath", "itertools", "functools", "operator", "collections", "re", "string", "random", "statistics"),
        *("heapq", "bisect", "typing", "copy", "json", "datetime", "decimal", "fractions", "numpy"),
    ]
)  # modules that tests may use because the program has imported them; they are the judge's own
ALIASES = {"numpy": "np", "datetime": "dt"}
HOLDERS: dict[str, Any] = {"l": list, "t": tuple, "e": set, "z": frozenset}
ENDINGS = (StopIteration, StopAsyncIteration)  # what raises one ends the loop of whoever called


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
        self.numbers: dict[int, int] = {}  # id of what is kept → where
        self.args: list[Any] = []  # containers of the call that is under way, which both sides number alike
        self.places: dict[int, int] = {}  # id of such a container → where

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

    def pack(self, value: Any, depth: int = 0, top: bool = False) -> Any:
        """A value as JSON: plain data as itself, everything else as a reference, and so a container of the call's."""
        if depth > DEEP:
            raise ValueError("nested too deeply")
        if value is None or value is True or value is False:
            return value
        kind = type(value)
        if kind is int:
            return ["i", hex(value)]
        if kind is float:
            return ["f", repr(value)]
        if kind in (str, bytes, complex):
            return ["s", repr(value)]
        if id(value) in self.places and not top:
            return ["arg", self.places[id(value)]]
        if kind is bytearray:
            return ["b", repr(bytes(value))]
        if kind is dict:
            return ["d", *([self.pack(k, depth + 1), self.pack(v, depth + 1)] for k, v in value.items())]
        for mark, holder in HOLDERS.items():
            if kind is holder:
                return [mark, *(self.pack(v, depth + 1) for v in value)]
        return self._pack_object(value, depth)

    def _pack_object(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if isinstance(value, Far | HeldValue):
            return ["yours", value.__dict__["_far_number"]]
        if name_of(kind) in MADE:
            return ["m", name_of(kind), *(self.pack(part, depth + 1) for part in MADE[name_of(kind)](value))]
        if has_known_default(value):
            return ["dd", getattr(value.default_factory, "__name__", ""), self.pack(dict(value), depth + 1)]
        if kind.__module__ == "numpy" and hasattr(value, "tolist"):
            plain = self.pack(value.tolist(), depth + 1)
            return plain if kind.__name__ != "ndarray" else ["a", str(value.dtype), plain]
        if self.shared.get(kind.__name__) is kind:
            fields = {k: v for k, v in vars(value).items() if isinstance(k, str)}
            return ["o", kind.__name__, self.pack(fields, depth + 1)]
        return self.pack_other(value, depth)

    def pack_other(self, value: Any, depth: int) -> Any:
        """A reference; of a class that derives from a built-in one, with the value."""
        base = base_of(type(value))
        inside = [base.__name__, self.pack(bare(value), depth + 1)] if base else []
        return ["mine", self.keep(value), type(value).__name__, *inside]

    def keep(self, value: Any) -> int:
        """The number by which the other side names an object of this one's."""
        if id(value) not in self.numbers:
            self.kept.append(value)
            self.numbers[id(value)] = len(self.kept) - 1
        return self.numbers[id(value)]

    def unpack(self, given: Any) -> Any:
        """The value of what ``pack`` made on the other side."""
        if given is None or given is True or given is False:
            return given
        mark, rest = given[0], given[1:]
        if mark == "i":
            return int(rest[0], 16)
        if mark == "f":
            return float(rest[0])
        if mark == "arg":
            return self.args[rest[0]]
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
        if mark == "dd":
            return importlib.import_module("collections").defaultdict(FACTORIES.get(rest[0]), self.unpack(rest[1]))
        if mark == "a":
            return importlib.import_module("numpy").array(self.unpack(rest[1]), dtype=rest[0])
        if mark == "o":
            made = self.shared[rest[0]]
            value = made.__new__(made)
            value.__dict__.update(self.unpack(rest[1]))
            return value
        if mark == "lent":
            return self.borrow(int(rest[0]), self.unpack(rest[1]))
        if mark == "yours":
            return self.kept[rest[0]]
        return self.far(int(rest[0]), str(rest[1]), *rest[2:])

    def far(self, number: int, kind: str, *inside: Any) -> Any:
        """The stand-in for an object of the other side."""
        return Far(self, number)

    def borrow(self, number: int, value: Any) -> Any:
        """A container that an object of the other side holds."""
        return value

    def ask(self, what: str, number: int, *values: Any) -> Any:
        """Let the other side do something with an object of its own; meanwhile it may ask in turn."""
        with self.numbered([*containers(list(values)).values()][1:] if what == "call" else []):
            self.send(["ask", what, number, [self.pack(v) for v in values], self.contents(), self.listens()])
            while (message := self.receive())[0] == "ask":
                with self.numbered([]):
                    self.answer(message)
            if message[0] == "raised":
                raise self.error(str(message[1]), self.unpack(message[2]), int(message[3]))
            for place, content in message[2]:
                become(self.args[place], self.unpack(content))
            if message[3]:
                sys.stdout.write(str(message[3]))
            return self.unpack(message[1])

    def answer(self, message: list[Any]) -> None:
        """Do what the other side asks for."""
        _, what, number, given, contents, listens = message
        heard = io.StringIO()
        try:
            with self.numbered([self.shell(content) for content in contents]):
                for value, content in zip(self.args, contents, strict=True):
                    become(value, self.unpack(content))
                before, values = self.contents(), [self.unpack(v) for v in given]
                with contextlib.redirect_stdout(heard) if listens else contextlib.nullcontext():
                    value = self.operations[what](self.kept[number], *values)
                    if inspect.iscoroutine(value):
                        value = importlib.import_module("asyncio").run(value)
                changed = [[i, now] for i, now in enumerate(self.contents()) if now != before[i]]
                packed = ["value", self.pack_result(what, value), changed, heard.getvalue()]
        except Gone:
            raise
        except BaseException as error:
            packed = ["raised", type(error).__name__, self._pack_args(error), self.keep(error)]
        self.send(packed)

    @contextlib.contextmanager
    def numbered(self, args: list[Any]) -> Iterator[None]:
        """While a call is under way: its containers, by the numbers that both sides give them."""
        before = self.args, self.places
        self.args, self.places = args, {id(value): place for place, value in enumerate(args)}
        try:
            yield
        finally:
            self.args, self.places = before

    def contents(self) -> list[Any]:
        """What the containers of a call hold."""
        return [self.pack(value, top=True) for value in self.args]

    def shell(self, content: Any) -> Any:
        """An empty container for a content."""
        mark, *rest = content
        if mark == "b":
            return bytearray()
        if rest[:1] == ["collections.deque"]:
            return importlib.import_module("collections").deque((), self.unpack(rest[2]))
        return self.unpack([mark, *rest[:1], ["d"]] if mark == "dd" else [mark, *rest[: mark == "m"]])

    def listens(self) -> bool:
        """Whether this side wants to know what the other one prints."""
        return False

    def pack_result(self, what: str, value: Any) -> Any:
        """What an operation gives; a container that an object holds has a number too."""
        if what in ("get", "item") and type(value) in CHANGING.values() and id(value) not in self.places:
            return ["lent", self.keep(value), self.pack(value)]
        return self.pack(value)

    def _pack_args(self, error: BaseException) -> Any:
        with contextlib.suppress(Exception):
            return self.pack(list(error.args))
        return ["l"]

    def error(self, name: str, args: list[Any], number: int) -> BaseException:
        """What the other side raised, as an exception of this one's."""
        found: Any = self.shared.get(name, getattr(builtins, name, None))
        fits = isinstance(found, type) and issubclass(found, Exception) and not issubclass(found, ENDINGS)
        return found(*args) if fits else RuntimeError(f"{name}: {args}")
