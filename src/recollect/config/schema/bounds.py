"""The rule of one setting, written at its field: ``chunk_size: int = positive(5000)``. ``problems`` checks them all.

Rules between settings are in `config/rules.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from recollect.runtime.address import is_address

Rule = Callable[[str, Any], str]  # (key, value) → what is wrong; empty: nothing


def limited(default: Any, rule: Rule, infinite: bool = False, null: bool = False, **facts: Any) -> Any:
    """A field with a rule. ``infinite`` allows inf, which means no limit; ``null`` checks None too."""
    about = {"rule": rule, "infinite": infinite, "null": null, **facts}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=about)
    return field(default=default, metadata=about)


def must(default: Any, test: Callable[[Any], bool], words: str, infinite: bool = False) -> Any:
    """A value that passes a test; in the message ``words`` follow `key=value`."""
    return limited(default, lambda key, value: "" if test(value) else f"{key}={value}{words}", infinite)


def positive(default: Any, infinite: bool = False) -> Any:
    """Above 0."""
    return must(default, lambda value: value > 0, " must be positive", infinite)


def positive_by_any_name(default: int, *also: str) -> Any:
    """Above 0, for a setting with other names too, of which the user may know any."""
    words = f"must be positive (other names of it: {', '.join(also)})"
    return limited(default, lambda key, value: "" if value > 0 else f"{key}={value} {words}", also=also)


def not_negative(default: Any, infinite: bool = False) -> Any:
    """0 or more."""
    return must(default, lambda value: value >= 0, " must not be negative", infinite)


def from_minus_one(default: Any) -> Any:
    """-1, which has a meaning of its own, or more."""
    return must(default, lambda value: value >= -1, " must be -1 or more")


def share(default: float) -> Any:
    """From 0 to 1."""
    return must(default, lambda value: 0 <= value <= 1, " must be between 0 and 1")


def part(default: float) -> Any:
    """Above 0, up to 1."""
    return must(default, lambda value: 0 < value <= 1, " must be in (0, 1]")


def below_one(default: float) -> Any:
    """From 0, below 1."""
    return must(default, lambda value: 0 <= value < 1, " must be in [0, 1)")


def address(default: str | None = None) -> Any:
    """An HTTP address, or nothing."""
    words = " is no address; it starts with http:// or https://"
    return must(default, lambda value: not value or is_address(value), words)


def address_or_model() -> Any:
    """An HTTP address, a model to load or to serve as in ``frozen:DIR`` and ``serve:DIR``, or nothing."""
    words = " is no address; it starts with http:// or https://, or is frozen:MODEL or serve:MODEL"
    named = lambda value: value.startswith(("frozen:", "serve:")) and value.partition(":")[2]
    return must(None, lambda value: not value or is_address(value) or named(value), words)


def filled(default: str, hint: str) -> Any:
    """A text that is not empty."""
    return limited(default, lambda key, value: "" if value else f"{key} is empty; {hint}")


def only_one(words: str) -> Any:
    """A number that must be 1 here; ``words`` say why."""
    return limited(1, lambda key, value: "" if value == 1 else f"{key}={value} {words}; set {key}=1")


def each_positive(default: list[int]) -> Any:
    """A list of numbers above 0."""
    return limited(
        default,
        lambda key, values: next((f"{key}[{i}]={v} must be positive" for i, v in enumerate(values) if not v > 0), ""),
    )


def each_number() -> Any:
    """A list of numbers from 0, as GPUs are counted; empty by default."""
    return limited(
        [],
        lambda key, values: next((f"{key}[{i}]={v} must not be negative" for i, v in enumerate(values) if v < 0), ""),
    )


def each_address(default: list[str]) -> Any:
    """A list of different HTTP addresses."""
    words = "is no address; it starts with http:// or https://"

    def rule(key: str, values: list[str]) -> str:
        wrong = next((f"{key}: {v} {words}" for v in values if not is_address(v)), "")
        return wrong or (f"{key} names a server twice" if len({v.rstrip("/") for v in values}) < len(values) else "")

    return limited(default, rule)


def each_host() -> Any:
    """A list of names of hosts, or of IPv4 addresses; empty by default."""

    def rule(key: str, values: list[str]) -> str:
        wrong = next((v for v in values if not re.fullmatch(r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)*", v)), None)
        return "" if wrong is None else f"{key}: {wrong} is no host; it is a name without http:// and port"

    return limited([], rule)


FIRST: Any = object()


@dataclass(frozen=True)
class Choices:
    """The names that a setting may have: those given, and those of a registry, which is read when somebody asks."""

    given: tuple[str, ...]
    of: Collection[str] = ()
    own: bool = False  # module:function is a name too

    def names(self) -> list[str]:
        """All of them."""
        return [*self.given, *self.of]


def choice(*names: str, of: Collection[str] = (), default: Any = FIRST, own: bool = False, hint: str = "") -> Any:
    """One of some names, or a list of them: those given, of which the first is the default, then those of a registry.

    ``own`` also allows ``module:function``; "null" stands for None.
    """

    words = hint or ("or module:function" if own else "")
    choices = Choices(names, of, own)

    def rule(key: str, value: Any) -> str:
        known = choices.names()
        for item in value if isinstance(value, list) else ["null" if value is None else value]:
            if item not in known and not (own and ":" in item):
                return f"{key}={item} is unknown; known: {', '.join(known)}" + (f" ({words})" if words else "")
        return ""

    return limited(names[0] if default is FIRST else default, rule, null="null" in names, choices=choices)


def problems(tree: Any) -> Iterator[str]:
    """What is wrong with single settings: first numbers that are not finite, then values against their rules."""
    found = list(_settings(tree, ""))
    odd = [f"{key}={item} must be a finite number" for key, value, about in found for item in _not_finite(value, about)]
    yield from odd
    for key, value, about in () if odd else found:
        if "rule" in about and (value is not None or about.get("null")) and (said := about["rule"](key, value)):
            yield said


def _not_finite(value: Any, about: Any) -> list[float]:
    numbers = [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, float)]
    return [x for x in numbers if not math.isfinite(x) and not (about.get("infinite") and x == math.inf)]


def _settings(section: Any, prefix: str) -> Iterator[tuple[str, Any, Any]]:
    """(key, value, what is said about its field) of every setting of a tree."""
    for each in fields(section):
        key, value = f"{prefix}{each.name}", getattr(section, each.name)
        if is_dataclass(value):
            yield from _settings(value, f"{key}.")
        else:
            yield key, value, each.metadata


def other_names(section: type, name: str) -> tuple[str, ...]:
    """The other keys of a setting that has several names."""
    return tuple(next(each.metadata["also"] for each in fields(section) if each.name == name))
