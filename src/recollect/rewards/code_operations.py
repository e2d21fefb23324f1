"""What one process may do with an object of another; the text of this file runs in the sandbox."""

from __future__ import annotations

import builtins
import operator
from typing import Any

from recollect.rewards.code_values import bare, become

ARITHMETIC = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")


def _next(value: Any) -> list[Any]:
    """The next item in a list; an empty one at the end."""
    for item in value:
        return [item]
    return []


def _exit(value: Any, name: str, args: list[Any]) -> None:
    """Leave a context, with an error of a built-in class or without."""
    kind = getattr(builtins, name, RuntimeError) if name else None
    error = kind(*args) if kind else None
    value.__exit__(kind, error, None)


def _reflected(function: Any) -> Any:
    return lambda value, other: function(other, value)


OPERATIONS: dict[str, Any] = {
    "value": lambda value: value,
    "call": lambda value, args, named: value(*args, **named),
    "get": getattr,
    "set": setattr,
    "item": lambda value, key: value[key],
    "drop": lambda value, key: value.__delitem__(key),
    "become": become,
    "flat": bare,
    "enter": lambda value: value.__enter__(),
    "exit": _exit,
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
