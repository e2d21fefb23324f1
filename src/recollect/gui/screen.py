"""A small made-up screen: buttons, fields, check boxes and lists with labels, on a grid of cells.

Every widget is one cell, and a list one cell for each line that it shows. What is drawn is in `screen_drawing.py`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from recollect.config.schema.data import SCREEN_CELL as CELL
from recollect.gui.environment import GuiAction, Point
from recollect.gui.screen_drawing import draw_screen
from recollect.types import Image

WidgetKind = Literal["button", "field", "box", "list"]

# what the fields of a row may be
STRICT = ConfigDict(extra="forbid")
Label = Annotated[str, Field(min_length=1, max_length=2)]  # letters that fit a cell
Natural = Annotated[int, Field(ge=0, strict=True)]
Cells = Annotated[int, Field(ge=1, le=60, strict=True)]
Scale = Annotated[int, Field(ge=1, le=16, strict=True)]
Byte = Annotated[int, Field(ge=0, le=255)]
Colour = tuple[Byte, Byte, Byte]


@dataclass
class Widget:
    """One widget: where it is, what is written on it, and its state."""

    __pydantic_config__ = STRICT
    kind: WidgetKind
    label: Label
    row: Natural
    column: Natural
    colour: Colour
    text: str = ""  # of a field: what was typed; of a list: the line that was picked
    on: bool = False  # a box that is ticked, a button that was pressed
    lines: list[Label] = field(default_factory=list)  # of a list
    first: Natural = 0  # the line that a list shows at its top
    shown: Cells = 1  # cells that it has, one below the other

    def holds(self, row: int, column: int) -> bool:
        """Whether a cell is its own."""
        return column == self.column and self.row <= row < self.row + self.shown

    @property
    def all_lines(self) -> list[str]:
        """What is written on it, lines that do not show among them."""
        return self.lines if self.kind == "list" else [self.label]

    @property
    def written(self) -> list[str]:
        """What can be read on it now, cell by cell."""
        return self.all_lines[self.first : self.first + self.shown]

    @property
    def state(self) -> tuple[str, bool]:
        """What actions change of it."""
        return self.text, self.on


WidgetLine = tuple[Widget, int]  # one of the lines that are written on a widget


@dataclass(frozen=True)
class Goal:
    """What has to be so: of the widgets, this one has changed in this way and no other has."""

    __pydantic_config__ = STRICT
    kind: WidgetKind | None  # None: nothing is to change
    label: str
    text: str = ""  # of a field or a list


@dataclass
class Screen:
    """A screen of widgets. It is an `Environment`; `screen_row.py` makes it from what `row` gives."""

    __pydantic_config__ = STRICT
    rows: Cells
    columns: Cells
    widgets: list[Widget]
    goal: Goal
    background: Colour = (255, 255, 255)
    scale: Scale = 1
    focus: Natural | None = None  # the field that keys go to

    def row(self) -> dict[str, Any]:
        """The screen as plain values, for a task's fields."""
        return asdict(self)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.columns * CELL * self.scale, self.rows * CELL * self.scale

    def centre(self, widget: Widget, line: int = 0) -> Point:
        """The middle of a widget's cell."""
        side = CELL * self.scale
        return (widget.column + 0.5) * side, (widget.row + line + 0.5) * side

    def at(self, point: Point) -> tuple[Widget | None, int]:
        """The widget at a place, and which of its cells."""
        side = CELL * self.scale
        row, column = int(point[1] // side), int(point[0] // side)
        found = next((w for w in self.widgets if w.holds(row, column)), None)
        return found, 0 if found is None else row - found.row

    @property
    def focused(self) -> Widget | None:
        """The field that keys go to."""
        return None if self.focus is None else self.widgets[self.focus]

    @property
    def wanted(self) -> WidgetLine:
        """The goal's widget, and which of its lines is to be picked."""
        widget = next(w for w in self.widgets if (w.kind, w.label) == (self.goal.kind, self.goal.label))
        return widget, widget.lines.index(self.goal.text) if widget.kind == "list" else 0

    @property
    def is_reached(self) -> bool:
        """True when the goal's widget, and no other, has changed as it says."""
        for widget in self.widgets:
            wanted = (
                self._wanted(widget)
                if (widget.kind, widget.label) == (self.goal.kind, self.goal.label)
                else ("", False)
            )
            if widget.state != wanted:
                return False
        return True

    def _wanted(self, widget: Widget) -> tuple[str, bool]:
        return (self.goal.text, False) if widget.kind in ("field", "list") else ("", True)

    def do(self, action: GuiAction) -> str:
        """Take an action."""
        if action.kind in ("click", "double_click", "triple_click"):
            assert action.point is not None
            return self._click(*self.at(action.point))
        if action.kind == "type":
            return self._type(action.text)
        if action.kind == "key":
            return self._press(action.text)
        if action.kind == "scroll":
            return self._scroll(action)
        return "" if action.kind in ("wait", "finished", "move") else f"{action.kind} has no effect here"

    def _click(self, widget: Widget | None, line: int) -> str:
        self.focus = None
        if widget is None:
            return ""
        if widget.kind == "field":
            self.focus = self.widgets.index(widget)
        elif widget.kind == "list":
            widget.text = widget.lines[widget.first + line]
        else:
            widget.on = True if widget.kind == "button" else not widget.on
        return ""

    def _type(self, text: str) -> str:
        if self.focused is None:
            return "there is no field to type into; click one first"
        self.focused.text += text.strip().upper()
        return ""

    def _press(self, keys: str) -> str:
        if self.focused is not None and keys.lower() in ("backspace", "delete"):
            self.focused.text = self.focused.text[:-1]
            return ""
        return "" if keys.lower() in ("enter", "return", "tab", "esc") else f"the keys {keys[:20]} have no effect here"

    def _scroll(self, action: GuiAction) -> str:
        widget = self.at(action.point)[0] if action.point else next((w for w in self.widgets if w.kind == "list"), None)
        if widget is None or widget.kind != "list" or not action.amount:
            return "there is nothing to scroll"
        step = 1 if action.amount > 0 else -1
        widget.first = max(0, min(len(widget.lines) - widget.shown, widget.first + step))
        return ""

    # ---- the environment ----

    async def see(self) -> Image:
        """A picture of the screen as it is now."""
        return draw_screen(self)

    async def act(self, action: GuiAction) -> str:
        """Take an action; what was wrong with it, or nothing."""
        return self.do(action)

    async def reached(self) -> bool:
        """True when the goal state is there."""
        return self.is_reached

    async def ended(self) -> bool:
        """True once a button is pressed or a line is picked: that closes the screen."""
        return any((w.kind == "button" and w.on) or (w.kind == "list" and w.text) for w in self.widgets)

    async def close(self) -> None:
        """Nothing to free."""


def reach_for(screen: Screen, widget: Widget, line: int) -> GuiAction:
    """A click on a line of a widget, or a scroll towards it where it does not show."""
    place = line - widget.first
    if not 0 <= place < widget.shown:
        return GuiAction("scroll", screen.centre(widget), amount=1 if place > 0 else -1)
    return GuiAction("click", screen.centre(widget, place))
