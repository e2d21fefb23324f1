"""What can be said about a reward before it is ever called: that its options fit, and that it looks at the task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, get_type_hints

from recollect.rewards.registry import marks_of
from recollect.types import BadInput

KINDS: dict[type, tuple[str, tuple[type, ...]]] = {  # of parameters: in words, and what is taken for one
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    bool: ("true or false", (bool,)),
    str: ("a text", (str,)),
}
SAID = {"answer", "final_response"}  # names that a reward may ask for, and both are the agent's


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


def refuse_itself(function: Callable[..., Any], where: str) -> None:
    """Refuse a reward that compares what the agent said with what the agent said."""
    wanted = signature(function).parameters
    everything = any(p.kind is p.VAR_KEYWORD for p in wanted.values())
    if wanted.keys() >= SAID and not everything and not wanted.keys() - {*SAID, "trajectory"}:
        raise BadInput(
            f"{where} compares `answer`, which is the agent's answer, with `final_response`, which the agent said too; "
            "the accepted answers are in `golden_answers`"
        )


def _hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    """The types of the parameters, as far as they can be found out."""
    try:
        return get_type_hints(function)
    except Exception:  # a name that only a type checker imports
        return {}
