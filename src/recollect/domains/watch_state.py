"""What the watch knows while tests run, and what it writes down; the text of this file runs in the sandbox."""

from __future__ import annotations

import os
import random
from typing import Any

WATCH, SPOIL, LOOK = "watch", "spoil", "look"
MODE: list[str] = [WATCH]  # spoil: every test fails; look: the same, and hollow places are only noted
HOLLOW: list[str] = []
EXEMPT: set[str] = set()  # places that are hollow in the repository as it came
DOUBTED: dict[int, Any] = {}  # results of hollow comparisons that are not bool
DEPTH = [0]
RNG = random.Random(os.urandom(16))
FOUND, EVENTS = "hollow.txt", "events.txt"
FOLDER = os.path.dirname(os.path.abspath(__file__))
NOTED: set[tuple[str, str]] = set()


def note(what: str, name: str) -> None:
    """Write down what has happened, once."""
    if (what, name) not in NOTED:
        NOTED.add((what, name))
        write_line(EVENTS, f"{what} {name}")


def write_line(file_name: str, line: str) -> None:
    """Add a line to a file beside the watch."""
    with open(os.path.join(FOLDER, file_name), "a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def report(place: str) -> None:
    """A hollow place."""
    if place in EXEMPT:
        return
    HOLLOW.append(place)
    if MODE[0] == LOOK:
        write_line(FOUND, place)
    else:
        raise AssertionError(f"{place} accepts wrong values")
