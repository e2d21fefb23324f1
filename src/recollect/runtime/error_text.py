"""What an error says. Errors of plugins are programs: their texts may raise, exit, or never seem to end."""

from __future__ import annotations

from collections.abc import Iterable

MOST = 20_000  # characters of an error that are kept
MOST_NAMES, LONGEST_NAME = 20, 140  # of a list in a message
MOST_SHOWN = 2_000  # characters of a message that people are shown
_name = type.__dict__["__name__"].__get__  # a metaclass can give a class another, which is a program too


def error_text(error: BaseException) -> str:
    """The message of an error, bounded, or a remark when it has none that can be read."""
    try:
        text = str.__str__(str(error))[:MOST]
    except BaseException:  # what the text of an error raises is no wish to end the program
        return "(its message cannot be read)"
    return text.encode("utf-8", "replace").decode()


def named_error(error: BaseException) -> str:
    """The class and the message of an error."""
    return f"{_name(type(error))}: {error_text(error)}"


def listed(names: Iterable[object]) -> str:
    """Names that a user gave, for a message: the first few, each no longer than a line."""
    found = [str(name) for name in names]
    shown = [name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…" for name in found[:MOST_NAMES]]
    more = f" and {len(found) - MOST_NAMES:,} more" if len(found) > MOST_NAMES else ""
    return ", ".join(shown) + more


def shortened(text: str, whole: int = 0) -> str:
    """A message that people can read, of one that has so many characters in all."""
    size = max(len(text), whole)
    return text if size <= MOST_SHOWN else f"{text[:MOST_SHOWN]} … ({size:,} characters in all)"
