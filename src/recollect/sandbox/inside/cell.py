"""Running Python that a model wrote: with state kept between calls, or as a program of its own."""

from __future__ import annotations

import ast
import linecache
import os
import signal
import sys
import traceback
import types
from typing import Any

from recollect.sandbox.inside import wire

MAX_VALUE = 65536
MAX_FRAMES = 6


def fresh_main() -> dict[str, Any]:
    """The names of a new ``__main__``."""
    module = types.ModuleType("__main__")
    module.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = module
    return module.__dict__


def shown(error: BaseException, name: str) -> str:
    """A traceback that starts in the model's own code and leaves out the middle of a deep one."""
    if isinstance(error, SyntaxError):
        return "".join(traceback.format_exception_only(type(error), error)).rstrip()
    frames = traceback.extract_tb(error.__traceback__)
    own = [i for i, frame in enumerate(frames) if frame.filename.startswith(name)]
    kept = frames[own[0] :] if own else frames[-1:]
    lines = ["Traceback (most recent call last):\n"]
    if len(kept) > MAX_FRAMES:
        half = MAX_FRAMES // 2
        lines += traceback.format_list(kept[:half])
        lines += [f"  … {len(kept) - MAX_FRAMES} more calls …\n", *traceback.format_list(kept[-half:])]
    else:
        lines += traceback.format_list(kept)
    return "".join(lines + traceback.format_exception_only(type(error), error)).rstrip()


def _value(code: str, name: str, names: dict[str, Any]) -> str:
    """Run a block; the text of its last line's value when that line is an expression."""
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    tree = ast.parse(code, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    if tree.body:
        exec(compile(tree, name, "exec"), names)
    if not isinstance(last, ast.Expr):
        return ""
    value = eval(compile(ast.Expression(last.value), name, "eval"), names)
    if value is None:
        return ""
    names["_"] = value
    text = repr(value)
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}… [{len(text) - MAX_VALUE} characters cut]"


def run_cell(code: str, name: str, names: dict[str, Any]) -> dict[str, Any]:
    """One call: ``value`` of the last expression and ``error``, the traceback of what was raised."""
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return {"value": _value(code, name, names), "error": ""}
        finally:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except SystemExit as leave:
        failed = leave.code not in (None, 0)
        return {"value": "", "error": f"SystemExit: {leave.code}" if failed else ""}
    except KeyboardInterrupt:
        return {"value": "", "error": "KeyboardInterrupt"}
    except BaseException as error:
        return {"value": "", "error": shown(error, "<cell")}


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            continue


def serve(requests: int, control: int) -> None:
    """The process that holds a trajectory's Python state: blocks come in on one pipe, results go out on the other."""
    me, names, count = os.getpid(), fresh_main(), 0
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.fdopen(requests, "rb") as source:
        while head := source.read(wire.HEAD):
            code = source.read(wire.size(head)).decode("utf-8", "surrogatepass")  # what is no text fails as a program
            count += 1
            result = run_cell(code, f"<cell {count}>", names)
            _flush()
            if os.getpid() != me:  # the block forked, and this is its child
                os._exit(0)
            os.write(control, wire.pack(result))


def run_program(code: str, argv: list[str]) -> int:
    """Run a text as a program; its exit status."""
    name = "main.py"
    linecache.cache[name] = (len(code), None, code.splitlines(True), name)
    sys.argv = [name, *argv]
    status = 0
    try:
        exec(compile(code, name, "exec"), fresh_main())
    except SystemExit as leave:
        status = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        if isinstance(leave.code, str):
            print(leave.code, file=sys.stderr)
    except BaseException as error:
        print(shown(error, name), file=sys.stderr)
        status = 1
    _flush()
    return status & 0xFF
