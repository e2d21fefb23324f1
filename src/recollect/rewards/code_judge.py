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

from recollect.rewards.code_far import HeldValue
from recollect.rewards.code_link import ALIASES, DEEP, HELPERS, Gone, Link
from recollect.rewards.code_objects import SECRET, ProgramObject
from recollect.rewards.code_stand_ins import JudgeLink
from recollect.rewards.code_values import bare, base_of, own_classes


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
        base = next(k.__name__ for k in value.__mro__[1:] if k.__module__ in ("builtins", "solution"))
        return ["error", base, value.__name__]
    if isinstance(value, type):
        return ["class", link.keep(value), [name, *_ancestry(value)]]
    kind = "async" if inspect.iscoroutinefunction(value) else "function" if inspect.isfunction(value) else "far"
    return [kind, link.keep(value), name if isinstance(name, str) else ""]


def _ancestry(kind: type) -> list[Any]:
    """The built-in class of values that a class derives from, the classes of the program's, and what they replace."""
    base, own = base_of(kind), own_classes(kind)
    replaced = {name for k in own for name in vars(k) if base and hasattr(base, name) and not name.startswith("_")}
    return [base.__name__ if base else "", [k.__name__ for k in own], sorted(replaced)]


def _flat(value: ProgramObject) -> Any:
    """An object of a class that derives from a built-in one, as that."""
    found = value._far_ask("flat")
    if isinstance(found, ProgramObject):
        raise TypeError("an object is no literal")
    return found


def show(value: Any, depth: int = 0) -> str:
    """A plain value as a literal."""
    if depth > DEEP:
        raise ValueError("nested too deeply")
    if value is None or value is True or value is False:
        return repr(value)
    if isinstance(value, ProgramObject | HeldValue):
        return show(bare(value) if isinstance(value, HeldValue) else _flat(value), depth + 1)
    if type(value) is int:
        return hex(value)
    if isinstance(value, float):
        return repr(value) if value - value == 0 else "1e999" if value > 0 else "-1e999" if value < 0 else "None"
    if type(value) in (str, bytes, complex):
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
