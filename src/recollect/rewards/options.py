"""Checks of a reward's options before it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

from recollect.rewards.decorator import marks_of
from recollect.types import BadInput

KINDS: dict[type, tuple[str, tuple[type, ...]]] = {  # of parameters: in words, and what is taken for one
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    bool: ("true or false", (bool,)),
    str: ("a text", (str,)),
}


def check_options(function: Callable[..., Any], options: Mapping[str, Any], where: str) -> None:
    """Refuse options of another type than their parameters, or that the reward itself says cannot work."""
    hints = _hints(function)
    for name, value in options.items():
        words, taken = KINDS.get(hints.get(name, object), ("", ()))
        if words and (not isinstance(value, taken) or (isinstance(value, bool) and bool not in taken)):
            raise BadInput(f"{where}({name}={value}): {name} is {words}")
    check = marks_of(function).check
    if check is not None:
        try:
            check(**options)
        except BadInput as error:
            given = ",".join(f"{name}={value}" for name, value in options.items())
            raise BadInput(f"{where}({given}): {error}") from None


def _hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    """The types of the parameters, as far as they are known."""
    try:
        return get_type_hints(function)
    except Exception:  # a name that only a type checker imports
        return {}
