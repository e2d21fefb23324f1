"""Judging a program from another process than its own; the text of this file runs in the sandbox.

The judge forks a worker before it has read the tests. The worker loads the program and answers calls; the judge runs
the tests, where a name of the program's is a stand-in that asks the worker. What comes back is plain data: numbers,
texts and containers of the built-in types. An object of the program's own stays with the worker; the judge holds a
reference that has attributes, can be called, indexed and iterated, but equals nothing, has no order and is not true. So
no patched built-in, no operator of the program's and no descriptor of the judge's decides a test.
"""

from __future__ import annotations

import ast
import builtins
import ctypes
import importlib
import inspect
import json
import os
from contextlib import suppress
from typing import Any

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
        "math",
        "cmath",
        "itertools",
        "functools",
        "operator",
        "collections",
        "re",
        "string",
        "random",
        "statistics",
        "heapq",
        "bisect",
        "typing",
        "copy",
        "json",
        "datetime",
        "decimal",
        "fractions",
        "numpy",
    ]
)  # modules that tests may use because the program has imported them; they are the judge's own
HOLDERS: dict[str, Any] = {"l": list, "t": tuple, "e": set, "z": frozenset}
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
        return self.far(rest[0], rest[1])

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
        fits = isinstance(found, type) and issubclass(found, Exception)
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
}


HARMLESS = {name: OPERATIONS[name] for name in ("call", "iter", "next", "len", "str", "repr")}
"""What the worker may do with the tests' objects: nothing that leads from one to another."""


class Far:
    """An object of the other process. It has no order, equals only itself, and is neither true nor false."""

    def __init__(self, link: Link, number: int) -> None:
        self.__dict__.update(_far_link=link, _far_number=number)

    def _far_ask(self, what: str, *values: Any) -> Any:
        return self._far_link.ask(what, self._far_number, *values)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self._far_ask("call", list(args), named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_far") or (name.startswith("__") and name not in ("__name__", "__doc__")):
            raise AttributeError(name)
        return self._far_ask("get", name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._far_ask("set", name, value)

    def __getitem__(self, key: Any) -> Any:
        return self._far_ask("item", key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._far_ask("put", key, value)

    def __len__(self) -> int:
        return int(self._far_ask("len"))

    def __iter__(self) -> Any:
        walker = self._far_ask("iter")
        if not isinstance(walker, Far):
            yield from walker
            return
        while found := walker._far_ask("next"):
            yield found[0]

    def __next__(self) -> Any:
        found = self._far_ask("next")
        if not found:
            raise StopIteration
        return found[0]

    def __str__(self) -> str:
        return str(self._far_ask("str"))

    def __repr__(self) -> str:
        return str(self._far_ask("repr"))

    def __bool__(self) -> bool:
        raise TypeError("an object of the program's is neither true nor false")

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Far) and other._far_number == self._far_number

    __hash__ = object.__hash__


def work(link: Link, code: str, given: list[list[str]]) -> None:
    """The worker: load the imports and classes it is given, then the program, say what there is, and answer."""
    space: dict[str, Any] = {"__name__": "__main__"}
    try:
        for _, text in given:
            with suppress(Exception):
                exec(compile(text, "setup", "exec"), space)
        before = dict(space)
        exec(compile(code, "program", "exec"), space)
        own = [name for name, value in space.items() if name not in before or before[name] is not value]
        link.shared.update({name: space[name] for name, _ in given if name in space and name not in own})
        link.send(["loaded", [[name, *_kind(link, space[name])] for name in own]])
        while True:
            link.answer(link.receive())
    finally:
        os._exit(0)


def _kind(link: Link, value: Any) -> list[Any]:
    """How the judge gets at a name of the program's."""
    name, place = getattr(value, "__name__", ""), str(getattr(value, "__module__", ""))
    if inspect.ismodule(value):
        return ["module", value.__name__, ""]
    if place.partition(".")[0] in HELPERS and isinstance(name, str):
        return ["module", place, name]
    if isinstance(value, type) and issubclass(value, Exception):
        base = next(k.__name__ for k in value.__mro__ if k.__module__ == "builtins")
        return ["error", base, value.__name__]
    link.kept.append(value)
    kind = "async" if inspect.iscoroutinefunction(value) else "class" if isinstance(value, type) else "far"
    return [kind, len(link.kept) - 1, name if isinstance(name, str) else ""]


class JudgeLink(Link):
    """The judge's side: stand-ins are of classes with the program's names."""

    def __init__(self, source: int, sink: int) -> None:
        super().__init__(source, sink, {})
        self.classes: dict[str, type] = {}

    @property
    def operations(self) -> dict[str, Any]:
        return HARMLESS

    def far(self, number: int, kind: str) -> Any:
        return self.classes.get(kind, Far)(self, number)

    def names(self, told: list[Any]) -> dict[str, Any]:
        """Every name of the program's, as the tests may use it; none of Python's own, such as its built-ins."""
        told = [row for row in told if not str(row[0]).startswith("__")]
        for name, kind, number, _ in told:
            if kind == "class":
                self.classes[name] = FarType(name, (Far,), {"_far_class": Far(self, number)})
        return {name: found for name, kind, at, of in told if (found := self._name(name, kind, at, of)) is not None}

    def _name(self, name: str, kind: str, at: Any, of: str) -> Any:
        if kind == "module":
            if str(at).partition(".")[0] not in HELPERS:
                return None
            with suppress(ImportError, AttributeError):
                found = importlib.import_module(at)
                return getattr(found, of) if of else found
            return None
        if kind == "error":
            return self.shared.setdefault(of, type(of, (getattr(builtins, at),), {}))
        if kind == "async":
            return _awaited(Far(self, at))
        if kind == "class":
            return self.classes[name]
        return self.ask("value", at)


class FarType(type):
    """The class of stand-ins for a class of the program's: calling it makes an object over there."""

    def __call__(cls, *args: Any, **named: Any) -> Any:
        if args and isinstance(args[0], Link):  # a reference that came over the link
            return super().__call__(*args)
        return cls.__dict__["_far_class"](*args, **named)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return cls.__dict__["_far_class"]._far_ask("get", name)


def _awaited(far: Far) -> Any:
    async def call(*args: Any, **named: Any) -> Any:
        return far(*args, **named)

    return call


def show(value: Any, depth: int = 0) -> str:
    """A plain value as a literal."""
    if depth > DEEP:
        raise ValueError("nested too deeply")
    if value is None or value is True or value is False:
        return repr(value)
    if isinstance(value, float):
        return repr(value) if value - value == 0 else "1e999" if value > 0 else "-1e999" if value < 0 else "None"
    if type(value) in (int, str, bytes, complex):
        return repr(value)
    if type(value).__name__ in ("Fraction", "Decimal"):
        return repr(int(value) if value == int(value) else float(value))
    if isinstance(value, bytearray):
        return repr(bytes(value))
    if isinstance(value, dict):
        return "{" + ", ".join(f"{show(k, depth + 1)}: {show(v, depth + 1)}" for k, v in value.items()) + "}"
    for kind, start, end in ((list, "[", "]"), (tuple, "(", ")"), (set, "{", "}"), (frozenset, "{", "}")):
        if isinstance(value, kind):
            inner = "".join(show(v, depth + 1) + ", " for v in value)
            return start + inner + end if inner or start != "{" else "set()"
    return show(value.tolist() if hasattr(value, "tolist") else value.item(), depth + 1)


def judge(link: JudgeLink, out: Any, steps: list[list[str]], given: set[str]) -> None:
    """Run the tests, and say of each what it gave. Objects of the ``given`` classes cross as what they hold."""
    told = link.receive()
    if told[0] != "loaded":
        return
    names = link.names(told[1])
    space: dict[str, Any] = {"__name__": "__main__", **{n: v for n, v in names.items() if not hasattr(builtins, n)}}
    for number, (kind, text) in enumerate(steps):
        try:
            said = _step(kind, text, space, names)
            link.shared.update({n: space[n] for n in given & set(space) if type(space[n]) is type})
        except Gone:
            return
        except BaseException:
            continue
        if kind != "setup":
            out.write(f"@recollect {number} {said}\n")
            out.flush()


def _step(kind: str, text: str, space: dict[str, Any], names: dict[str, Any]) -> str:
    """Run one statement. A name of a built-in is the program's only where the statement uses no other of its names."""
    nodes = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    used = {node.id for node in nodes}
    lent = {} if used & set(space) else {name: value for name, value in names.items() if name in used}
    space.update(lent)
    try:
        if kind == "value":
            return show(eval(compile(text, "test", "eval"), space))
        exec(compile(text, "test", "exec"), space)
        return "passed"
    finally:
        for name in lent:
            space.pop(name, None)


def main(code: str) -> None:
    """Part the judge from the worker before the tests are known, and judge."""
    out, tests = os.dup(1), os.dup(0)
    down, up = os.pipe(), os.pipe()
    ctypes.CDLL(None).prctl(4, 0)  # not dumpable: nobody of the same user looks into its memory and descriptors
    worker = os.fork()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1) if worker else (0, 1, 2):
        os.dup2(null, stream)
    if worker == 0:
        ends = (down[0], up[1])
        for fd in set(range(3, 256)) - set(ends):
            with suppress(OSError):
                os.close(fd)
        work(Link(*ends, {}), code, json.loads(_line(down[0])))
    os.close(down[0])
    os.close(up[1])
    with os.fdopen(tests, encoding="utf-8") as file:
        given, steps = json.load(file)
    os.write(down[1], json.dumps(given).encode() + b"\n")
    with os.fdopen(out, "w", encoding="utf-8") as verdicts:
        try:
            judge(JudgeLink(up[0], down[1]), verdicts, steps, {name for name, _ in given if name})
        except (Gone, ValueError, RecursionError, OSError):
            return


def _line(fd: int) -> bytes:
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = os.read(fd, 1)
        if not piece:
            break
        line += piece
    return bytes(line)
