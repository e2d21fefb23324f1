"""Judging a program from another process than its own; the text of this file runs in the sandbox.

The judge forks a worker before it has read the tests. The worker loads the program and answers calls; the judge runs
the tests, where a name of the program's is a stand-in that asks the worker. What comes back is plain data: numbers,
texts and containers of the built-in types. An object of the program's own stays with the worker; the judge holds a
reference to it (``code_objects.py``). So no patched built-in, no operator of the program's and no descriptor of the
judge's decides a test.
"""

from __future__ import annotations

import builtins
import ctypes
import importlib
import inspect
import json
import os
import sys
import types
from contextlib import suppress
from typing import Any

from recollect.rewards.code_far import Far
from recollect.rewards.code_link import ALIASES, DEEP, HARMLESS, HELPERS, Gone, Link
from recollect.rewards.code_objects import SECRET, ProgramObject


def work(link: Link, code: str, given: list[list[str]]) -> None:
    """The worker: load the imports and classes it is given, then the program, say what there is, and answer."""
    space = fresh_module()
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


def fresh_module() -> dict[str, Any]:
    """The names of an empty module, not ``__main__``: the part of a program that runs a file does not run."""
    module = sys.modules["solution"] = types.ModuleType("solution")
    return vars(module)


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
    kind = "function" if kind == "far" and inspect.isfunction(value) else kind
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
        return self.classes.get(kind, ProgramObject)(self, number)

    def names(self, told: list[Any]) -> dict[str, Any]:
        """Every name of the program's, as the tests may use it; none of Python's own, such as its built-ins."""
        told = [row for row in told if not str(row[0]).startswith("__")]
        for name, kind, number, _ in told:
            if kind == "class":
                self.classes[name] = FarType(name, (ProgramObject,), {"_far_class": self.named(number)})
        return {name: found for name, kind, at, of in told if (found := self._name(name, kind, at, of)) is not None}

    def named(self, number: int) -> ProgramObject:
        """The stand-in for something that has a name, and so may be called again with other arguments."""
        found = ProgramObject(self, int(number))
        found.__dict__["_far_named"] = True
        return found

    def _name(self, name: str, kind: str, at: Any, of: str) -> Any:
        if kind == "module":
            return _own(name, str(at), of)
        if kind == "error":
            base = getattr(builtins, str(at), None)
            if not (isinstance(base, type) and issubclass(base, Exception)):
                return None
            return self.shared.setdefault(of, type(of, (base,), {}))
        if kind == "async":
            return _awaited(self.named(at))
        if kind == "class":
            return self.classes[name]
        if kind == "function":
            return self.named(at)
        return self.ask("value", at)


def _own(name: str, place: str, of: str) -> Any:
    """The judge's own module, or what a module holds, under the name that it has there; else None."""
    if place.partition(".")[0] not in HELPERS or name not in (of or place.rpartition(".")[2], ALIASES.get(place)):
        return None
    with suppress(ImportError, AttributeError):
        found = importlib.import_module(place)
        return getattr(found, of) if of else found
    return None


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


def judge(link: JudgeLink, out: Any, steps: list[list[str]], given: set[str], sources: dict[str, str]) -> None:
    """Run the tests, and say of each what it gave. Objects of the ``given`` classes cross as what they hold.

    ``sources`` says of names where they come from: "" is the program, "=" is the program for an assignment alone,
    and else it is the judge's own module.
    """
    told = link.receive()
    if told[0] != "loaded":
        return
    names = {n: v for n, v in link.names(told[1]).items() if n in sources or not hasattr(builtins, n)}
    space: dict[str, Any] = {"__name__": "__main__", **names, **_own_names(sources)}
    for number, (kind, text) in enumerate(steps):
        try:
            said = _step(kind, text, space)
            link.shared.update({n: space[n] for n in given & set(space) if type(space[n]) is type})
        except Gone:
            return
        except BaseException:
            continue
        if sources.get(text.rpartition(" = ")[2]) == "=":
            space.pop(text.rpartition(" = ")[2], None)
        if kind != "setup":
            out.write(f"@recollect {number} {said}\n")
            out.flush()


def _own_names(sources: dict[str, str]) -> dict[str, Any]:
    """Modules, and what modules hold, that tests use without importing them."""
    found: dict[str, Any] = {}
    for name, place in sources.items():
        if place not in ("", "="):
            with suppress(ImportError, AttributeError):
                module = importlib.import_module(place)
                found[name] = module if name in (place, ALIASES.get(place)) else getattr(module, name)
    return found


def _step(kind: str, text: str, space: dict[str, Any]) -> str:
    """Run one statement."""
    if kind == "value":
        return show(eval(compile(text, "test", "eval"), space))
    exec(compile(text, "test", "exec"), space)
    return "passed"


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
        given, steps, sources = json.load(file)
    SECRET[0] = os.urandom(16)
    os.write(down[1], json.dumps(given).encode() + b"\n")
    with os.fdopen(out, "w", encoding="utf-8") as verdicts:
        try:
            judge(JudgeLink(up[0], down[1]), verdicts, steps, {name for name, _ in given if name}, sources)
        except (Gone, ValueError, TypeError, LookupError, RecursionError, OSError):
            return


def _line(fd: int) -> bytes:
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = os.read(fd, 1)
        if not piece:
            break
        line += piece
    return bytes(line)
