"""What a value of a file may be. Each function returns the value, or raises ValueError that says what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def text(value: Any) -> str:
    """A text, such as a name or a path."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text")
    return value


def number(value: Any) -> float:
    """A number; YAML reads 2e-5 as a text."""
    if isinstance(value, bool):
        raise ValueError("a number")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError("a number") from None


def whole(value: Any) -> int:
    """A whole number."""
    try:
        found = number(value)
    except ValueError:
        raise ValueError("a whole number") from None
    if not found.is_integer():
        raise ValueError("a whole number")
    return int(found)


def count(value: Any) -> int:
    """A positive whole number."""
    try:
        found = whole(value)
    except ValueError:
        found = 0
    if found < 1:
        raise ValueError("a positive whole number")
    return found


def flag(value: Any) -> bool:
    """True or false; a command line has them as texts."""
    known = {"true": True, "false": False}
    found = value if isinstance(value, bool) else known.get(str(value).lower())
    if found is None:
        raise ValueError("true or false")
    return found


def texts(value: Any) -> list[str]:
    """A list of texts, or one."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise ValueError("a text or a list of texts")
    return found


def mapping(value: Any) -> dict[str, Any]:
    """Keys and values."""
    if not isinstance(value, Mapping):
        raise ValueError("a mapping")
    return dict(value)


def one_of(*names: str) -> Any:
    """One of some texts; YAML reads `no` as false."""

    def read(value: Any) -> str:
        found = "no" if value is False else value
        if found not in names:
            raise ValueError(" or ".join(names))
        return str(found)

    return read
