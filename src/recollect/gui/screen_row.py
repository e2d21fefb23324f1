"""A made-up screen from what a task's row says. What cannot be drawn, or has a goal that cannot be, is refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from recollect.gui.screen import CELL, Screen
from recollect.images.image_files import MOST_PIXELS


def read_screen(said: Mapping[str, Any]) -> Screen:
    """The screen that a row describes, as it is at the beginning; a ValueError says what is wrong with it."""
    try:
        screen = _reader().validate_python(said)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if (problem := next(_problems(screen), None)) is not None:
        raise ValueError(problem)
    return screen


@cache
def _reader() -> TypeAdapter[Screen]:
    return TypeAdapter(Screen)


def too_large(rows: int, columns: int, scale: int) -> bool:
    """True for a screen of more pixels than an image may have."""
    return rows * columns * (CELL * scale) ** 2 > MOST_PIXELS


def _problems(screen: Screen) -> Iterator[str]:
    """What is wrong with a screen whose fields are right one by one."""
    if too_large(screen.rows, screen.columns, screen.scale):
        yield f"{screen.rows} × {screen.columns} cells at scale {screen.scale} have more than {MOST_PIXELS:,} pixels"
    for widget in screen.widgets:
        if widget.row + widget.shown > screen.rows or widget.column >= screen.columns:
            yield f"the widget {widget.label} is outside of the screen"
        if widget.kind == "list" and widget.first + widget.shown > len(widget.lines):
            yield f"the list {widget.label} shows more lines than it has"
    fields = [i for i, widget in enumerate(screen.widgets) if widget.kind == "field"]
    if screen.focus is not None and screen.focus not in fields:
        yield f"focus {screen.focus} is the number of no field"
    goal = screen.goal
    meant = [w for w in screen.widgets if (w.kind, w.label) == (goal.kind, goal.label)]
    if goal.kind is not None and len(meant) != 1:
        yield f"the goal is about a {goal.kind} {goal.label}, of which there {'are several' if meant else 'is none'}"
    elif goal.kind == "list" and goal.text not in meant[0].lines:
        yield f"the list {goal.label} has no line {goal.text}"
