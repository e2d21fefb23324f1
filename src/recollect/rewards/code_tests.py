"""Tests of a programming task, and how a program is run against them.

Two styles: text in and text out, and assertions. What a program is compared with stays here, outside the sandbox: of an
assertion ``call == value`` the program sees only the call and says what it gives. A program that exits early, prints
what it likes or returns objects that equal everything gains nothing by it. Where functions are called, the program is
a module ``solution``; it is ``__main__`` for text in and out alone. An assertion of another form is decided
by a second process inside, which the program answers but cannot enter (``code_judge.py``).
"""

from __future__ import annotations

import ast
import base64
import json
import marshal
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from recollect.rewards.code_shared import is_import, shared
from recollect.rewards.code_sources import sources_of
from recollect.rewards.code_steps import literal, steps_of
from recollect.rewards.joined_source import joined
from recollect.rewards.solution_method import with_function
from recollect.runtime.error_text import listed


@dataclass(frozen=True)
class InOut:
    """One run with an input and the output it must have."""

    stdin: str
    stdout: str

    def program(self, code: str) -> tuple[str, str]:
        """The program to run, and its input."""
        return code, self.stdin

    def passed(self, status: int, out: str) -> int:
        """1 when it ended well and wrote the output; white space at the ends of lines and of the text is ignored."""
        return int(status == 0 and _lines(out) == _lines(self.stdout))


@dataclass(frozen=True)
class AssertionScript:
    """Assertions that are run one after another in one process."""

    steps: tuple[tuple[str, str, Any], ...]  # (kind, source, expected): kind is setup, value or check
    entry_point: str = ""

    @property
    def count(self) -> int:
        """How many of the steps are tests."""
        return sum(kind != "setup" for kind, _, _ in self.steps)

    def program(self, code: str) -> tuple[str, str]:
        """The program to run, and its input: calls alone are made by the program, all else is judged beside it."""
        code = with_function(code, self.entry_point)
        steps = [(kind, source) for kind, source, _ in self.steps]
        plain = {"setup": is_import, "value": _plain_call}
        if all(kind in plain and plain[kind](source) for kind, source in steps):
            return f"{_HARNESS}\n_harness({code!r}, {steps!r})\n", ""
        given = shared([source for kind, source in steps if kind == "setup"], code)
        return f"{_judge()}\nmain({code!r})\n", json.dumps([given, steps, sources_of(steps, self.entry_point)])

    def passed(self, status: int, out: str) -> int:
        """How many tests passed; the exit status does not matter, since every verdict was written when it was known."""
        said: dict[int, str] = {}
        for line in out.split("\n"):
            mark, _, rest = line.partition(" ")
            number, _, value = rest.partition(" ")
            if mark == "@recollect" and number.isdigit() and int(number) not in said:
                said[int(number)] = value
        return sum(
            i in said and (said[i] == "passed" if kind == "check" else _same(said[i], expected))
            for i, (kind, _, expected) in enumerate(self.steps)
            if kind != "setup"
        )


@dataclass(frozen=True)
class FromJSON:
    """An expected value that JSON has no better way to write; alone in a list it may stand for itself."""

    value: Any


@dataclass(frozen=True)
class Tests:
    """All tests of a task."""

    parts: tuple[InOut | AssertionScript, ...]

    @property
    def count(self) -> int:
        """How many tests there are."""
        return sum(p.count if isinstance(p, AssertionScript) else 1 for p in self.parts)


def read_tests(row: Mapping[str, Any]) -> Tests:
    """The tests of a data row.

    Text in and out: ``inputs`` and ``outputs``, the same inside ``input_output`` (JSON), or ``tests`` with ``input``
    and ``output``. Assertions: ``tests``, ``test_list`` or ``test`` (a text or a list), after ``test_setup_code`` and
    ``test_imports``; a function ``check(candidate)`` is called with ``entry_point``.
    """
    pairs: Mapping[str, Any] = row
    if row.get("input_output"):
        pairs = json.loads(row["input_output"]) if isinstance(row["input_output"], str) else row["input_output"]
    if pairs.get("inputs") is not None and pairs.get("outputs") is not None:
        if pairs.get("fn_name"):
            return _checked(_called(pairs["fn_name"], pairs["inputs"], pairs["outputs"]))
        return _checked(_in_out(pairs["inputs"], pairs["outputs"]))
    tests = next((row[k] for k in ("tests", "test_list", "test") if row.get(k)), None)
    if tests is None:
        raise ValueError(f"code_reward found no tests in the data row; it has {listed(row)}")
    items: list[Any] = [tests] if isinstance(tests, str | Mapping) else list(tests)
    if all(isinstance(t, Mapping) for t in items):
        return _checked(_in_out([t["input"] for t in items], [t["output"] for t in items]))
    before = [*_texts(row.get("test_imports")), *_texts(row.get("test_setup_code"))]
    entry_point = str(row.get("entry_point") or "")
    steps = steps_of("\n".join([*before, *map(str, items)]), entry_point)
    return _checked([AssertionScript(tuple(steps), entry_point)])


def _texts(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value or [])


def _checked(parts: Sequence[InOut | AssertionScript]) -> Tests:
    made = Tests(tuple(parts))
    if made.count == 0:
        raise ValueError("code_reward: the task's tests hold no assertion, and no input with an output")
    return made


def _in_out(inputs: Sequence[Any], outputs: Sequence[Any]) -> list[InOut]:
    if len(inputs) != len(outputs):
        raise ValueError(f"code_reward: {len(inputs)} inputs, but {len(outputs)} outputs")
    return [InOut(_stream(i), _stream(o)) for i, o in zip(inputs, outputs, strict=True)]


def _stream(value: Any) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _called(name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[AssertionScript]:
    calls = [f"{name}({', '.join(map(repr, arguments))})" for arguments in inputs]
    steps = tuple(("value", call, FromJSON(value)) for call, value in zip(calls, outputs, strict=True))
    return [AssertionScript(steps, name)]


def _plain_call(source: str) -> bool:
    """Whether an expression is one call with literal arguments, so that nothing but the call decides its value."""
    node = ast.parse(source, mode="eval").body
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
        return False
    return all(literal(value)[0] for value in [*node.args, *(named.value for named in node.keywords)])


@cache
def _judge() -> str:
    """The judge's program, compiled once: the sandbox runs the same Python."""
    parts = (
        *("code_far", "code_values", "code_operations", "code_link"),
        *("decoys", "code_objects", "code_stand_ins", "code_judge"),
    )
    code = compile(joined([f"recollect.rewards.{part}" for part in parts]), "judge", "exec", dont_inherit=True)
    text = base64.b64encode(zlib.compress(marshal.dumps(code))).decode()
    return f"import binascii, marshal, zlib\nexec(marshal.loads(zlib.decompress(binascii.a2b_base64({text!r}))))"


def _same(said: str, expected: Any) -> bool:
    """Whether a program's value, written as a literal, equals the expected one."""
    try:
        value = ast.literal_eval(said)
        if isinstance(expected, FromJSON):
            plain = json.loads(json.dumps(value))  # tuples are lists there, and keys are texts
            return bool(plain == expected.value or [plain] == expected.value)
        return bool(value == expected)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


_HARNESS = """
import os as _os, sys as _sys
def _harness(code, steps):
    out = _os.fdopen(_os.dup(1), "w", encoding="utf-8")
    null = _os.open(_os.devnull, _os.O_RDWR)
    _os.dup2(null, 0)
    _os.dup2(null, 1)
    def show(v, depth=0):
        if depth > 50:
            raise TypeError("too deep")
        if v is None or v is True or v is False:
            return repr(v)
        if isinstance(v, float):
            return float.__repr__(v) if v - v == 0 else "1e999" if v > 0 else "-1e999" if v < 0 else "None"
        if isinstance(v, int):
            return hex(int.__index__(v))
        for kind in (str, bytes, complex):
            if isinstance(v, kind):
                return kind.__repr__(v)
        if isinstance(v, dict):
            return "{" + ", ".join(show(a, depth + 1) + ": " + show(b, depth + 1) for a, b in dict.items(v)) + "}"
        for kind, start, end in ((list, "[", "]"), (tuple, "(", ")"), (set, "{", "}"), (frozenset, "{", "}")):
            if isinstance(v, kind):
                inner = "".join(show(x, depth + 1) + ", " for x in kind.__iter__(v))
                return start + inner + end if inner or start != "{" else "set()"
        return show(v.item(), depth + 1)
    _sys.modules["solution"] = type(_sys)("solution")
    space = vars(_sys.modules["solution"])
    try:
        exec(compile(code, "program", "exec"), space)
    except BaseException:
        return
    for number, (kind, text) in enumerate(steps):
        said = None
        try:
            if kind == "value":
                said = show(eval(compile(text, "test", "eval"), space))
            else:
                exec(compile(text, "test", "exec"), space)
        except BaseException:
            continue
        if said is not None:
            out.write("@recollect %d %s\\n" % (number, said))
            out.flush()
    _os._exit(0)
"""
