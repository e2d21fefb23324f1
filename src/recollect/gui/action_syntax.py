"""Actions as models write them: UI-TARS' calls, and the calls of Qwen's tool `computer_use`.

Numbers are read as the model says them; `Frame` turns them into the screen's pixels. Text that holds no action, or one
that lacks what it needs, is an error in words for the model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recollect.chat import TOOL_PARSERS, TOOL_WRITERS
from recollect.gui.environment import CLICKS, ActionKind, GuiAction, Point
from recollect.types import ToolCall

LONGEST = 4000  # characters of a text that is typed
STEPS = 20  # of scrolling, at most
PIXELS_A_STEP = 100  # of scrolling, as Qwen's tool counts


class BadAction(ValueError):
    """What a model wrote is no action. The message is for the model."""


@dataclass(frozen=True)
class Frame:
    """From the numbers that a model says to the screen's pixels."""

    width: int  # of the screen
    height: int
    seen: tuple[float, float]  # what its width and height are in the model's numbers
    pointer: Point | None = None  # where it was left by the last action that had a place

    def point(self, x: float, y: float) -> Point:
        """A place on the screen; one outside of it is an error."""
        wide, high = self.seen
        if not (0 <= x <= wide and 0 <= y <= high):
            raise BadAction(f"({x:g},{y:g}) is outside of the screen of {wide:g} × {high:g}")
        return min(x * self.width / wide, self.width - 1), min(y * self.height / high, self.height - 1)

    def after(self, action: GuiAction) -> Frame:
        """The same with the pointer where an action leaves it."""
        return replace(self, pointer=action.end or action.point or self.pointer)

    def said(self, point: Point) -> tuple[int, int]:
        """The numbers of a place as a model would say them."""
        wide, high = self.seen
        return round(point[0] * wide / self.width), round(point[1] * high / self.height)


ReadAction = Callable[[str, Frame], GuiAction]

_CALL = re.compile(r"(?<![a-z_])([a-z_]+)\((.*)\)$")  # at the end of a line
_ARGUMENT = re.compile(r"([a-z_]+)\s*=\s*(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_UI_TARS: dict[str, ActionKind] = {
    "click": "click",
    "left_single": "click",
    "left_double": "double_click",
    "double_click": "double_click",
    "right_single": "right_click",
    "right_click": "right_click",
    "triple_click": "triple_click",
    "middle_click": "middle_click",
    "move": "move",
    "drag": "drag",
    "type": "type",
    "hotkey": "key",
    "key": "key",
    "press": "key",
    "scroll": "scroll",
    "wait": "wait",
    "finished": "finished",
    "call_user": "finished",
}
_STEPS = {"down": (5, 0), "up": (-5, 0), "right": (0, 5), "left": (0, -5)}  # down and to the right


def read_ui_tars(text: str, frame: Frame) -> GuiAction:
    """The action of a text that ends with `Action: click(start_box='(10,20)')` or the like."""
    lines = (line.rstrip() for line in text.rpartition("Action:")[2].split("\n"))
    call = next((found for line in lines if line.endswith(")") and (found := _CALL.search(line))), None)
    if call is None:
        raise BadAction("there is no action; write one such as Action: click(start_box='(10,20)')")
    name, inside = call.groups()
    kind = _UI_TARS.get(name)
    if kind is None:
        raise BadAction(f"there is no action {name[:40]}; there are {', '.join(_UI_TARS)}")
    given = {key: _unescaped(a or b) for key, a, b in _ARGUMENT.findall(inside)}
    place = next((given[key] for key in ("start_box", "point", "start_point") if key in given), "")
    end = next((given[key] for key in ("end_box", "end_point") if key in given), "")
    direction = given.get("direction", "down")
    if kind == "scroll" and direction not in _STEPS:
        raise BadAction(f"scroll down, up, right or left, and not {direction[:20]}")
    text, steps = given.get("content", given.get("key", "")), _STEPS[direction] if kind == "scroll" else (0, 0)
    point = _place(place, frame) or (frame.pointer if kind == "scroll" else None)
    return _made(kind, point, _place(end, frame), text, *steps)


def write_ui_tars(action: GuiAction, frame: Frame) -> str:
    """An action as UI-TARS writes it."""
    box = lambda point: f"'({','.join(map(str, frame.said(point)))})'"
    name = {"double_click": "left_double", "right_click": "right_single", "key": "hotkey"}.get(action.kind, action.kind)
    parts = [f"start_box={box(action.point)}"] if action.point else []
    parts += [f"end_box={box(action.end)}"] if action.end else []
    text = action.text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    parts += [f"{'key' if action.kind == 'key' else 'content'}='{text}'"] if action.text else []
    parts += [f"direction='{_direction(action)}'"] if action.kind == "scroll" else []
    return f"Action: {name}({', '.join(parts)})"


def _direction(action: GuiAction) -> str:
    if action.across:
        return "right" if action.across > 0 else "left"
    return "down" if action.amount > 0 else "up"


_QWEN: dict[str, ActionKind] = {
    "left_click": "click",
    "click": "click",
    "double_click": "double_click",
    "triple_click": "triple_click",
    "right_click": "right_click",
    "middle_click": "middle_click",
    "mouse_move": "move",
    "left_click_drag": "drag",
    "type": "type",
    "key": "key",
    "scroll": "scroll",
    "hscroll": "scroll",
    "wait": "wait",
    "terminate": "finished",
    "answer": "finished",
}


def read_qwen(text: str, frame: Frame) -> GuiAction:
    """The action of a text with a call of `computer_use`: {"action": "left_click", "coordinate": [10, 20]}."""
    call = next(iter(TOOL_PARSERS["hermes"](text, [])), None)
    if call is None or call.arguments is None:
        why = "there is no call that can be read" if call is None else f"the call cannot be read: {call.error}"
        raise BadAction(f"{why}; write one of computer_use")
    given: Mapping[str, Any] = call.arguments
    name = given.get("action")
    kind = _QWEN.get(name) if isinstance(name, str) else None
    if kind is None:
        raise BadAction(f"there is no action {str(name)[:40]}; there are {', '.join(_QWEN)}")
    keys = given.get("keys")
    text = given.get("text", given.get("status", ""))
    if kind == "key" and isinstance(keys, list):
        text = " ".join(map(str, keys))
    steps = _steps(given.get("pixels", 0)) if kind == "scroll" else 0
    place, end = _pair(given.get("coordinate"), frame), None
    if kind == "drag":
        place, end = _pair(given.get("start_coordinate"), frame) or frame.pointer, place
    if kind in (*CLICKS, "scroll"):
        place = place or frame.pointer
    amount, across = (0, steps) if name == "hscroll" else (-steps, 0)
    return _made(kind, place, end, str(text), amount, across)


def _steps(pixels: Any) -> int:
    """Steps of scrolling, up or to the right."""
    if isinstance(pixels, bool) or not isinstance(pixels, int | float) or not abs(pixels) < 1e6 or not pixels:
        raise BadAction("scroll needs pixels, a number: positive is up, or right")
    return int(pixels / abs(pixels) * max(1, abs(pixels) // PIXELS_A_STEP))


def write_qwen(action: GuiAction, frame: Frame) -> str:
    """An action as a call of `computer_use`."""
    names = {kind: name for name, kind in reversed(_QWEN.items())}
    given: dict[str, Any] = {"action": names[action.kind]}
    end = action.end or action.point
    if end:
        given["coordinate"] = list(frame.said(end))
    if action.kind == "drag" and action.point:
        given["start_coordinate"] = list(frame.said(action.point))
    if action.kind == "key":
        given["keys"] = action.text.split()
    elif action.text and action.kind != "finished":
        given["text"] = action.text
    if action.kind == "finished":
        given["status"] = action.text or "success"
    if action.kind == "scroll":
        given["action"] = "hscroll" if action.across else "scroll"
        given["pixels"] = PIXELS_A_STEP * (action.across or -action.amount)
    return TOOL_WRITERS["hermes"]([ToolCall("computer_use", given)])


def _made(
    kind: ActionKind, point: Point | None, end: Point | None, text: str, amount: int, across: int = 0
) -> GuiAction:
    """An action that has what its kind needs."""
    if kind in (*CLICKS, "move", "drag") and point is None:
        raise BadAction(f"{kind} needs a place")
    if kind == "drag" and end is None:
        raise BadAction("drag needs a place to end at")
    if kind in ("type", "key") and not text:
        raise BadAction(f"{kind} needs {'a text' if kind == 'type' else 'keys'}")
    if len(text) > LONGEST:
        raise BadAction(f"a text may have {LONGEST} characters")
    return GuiAction(kind, point, end, text, *(max(-STEPS, min(STEPS, n)) for n in (amount, across)))


def _place(text: str, frame: Frame) -> Point | None:
    """A point from (x,y), <point>x y</point>, or the middle of (x1,y1,x2,y2)."""
    if not text:
        return None
    numbers = [float(n) for n in _NUMBER.findall(text)]
    if len(numbers) == 4:
        numbers = [(numbers[0] + numbers[2]) / 2, (numbers[1] + numbers[3]) / 2]
    if len(numbers) != 2:
        raise BadAction(f"a place is two numbers, (x,y), and not {text[:40]}")
    return frame.point(numbers[0], numbers[1])


def _pair(value: Any, frame: Frame) -> Point | None:
    if value is None:
        return None
    is_pair = isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2
    if not is_pair or not all(isinstance(n, int | float) and not isinstance(n, bool) for n in value):
        raise BadAction(f"a coordinate is two numbers, [x, y], and not {str(value)[:40]}")
    return frame.point(float(value[0]), float(value[1]))


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


@dataclass(frozen=True)
class ActionSyntax:
    """How a family of models writes actions, and what its system prompt says about that."""

    read: ReadAction
    write: Callable[[GuiAction, Frame], str]
    prompt: str


UI_TARS_PROMPT = """You work with a computer. In each step you are given a screenshot; reply with the next action.

Action: click(start_box='(x,y)')
Action: left_double(start_box='(x,y)')
Action: right_single(start_box='(x,y)')
Action: drag(start_box='(x,y)', end_box='(x,y)')
Action: type(content='text')
Action: hotkey(key='ctrl c')
Action: scroll(start_box='(x,y)', direction='down, up, right or left')
Action: wait()
Action: finished(content='answer')"""
QWEN_PROMPT = """You work with a computer. In each step you are given a screenshot; reply with one call of the tool
computer_use inside <tool_call></tool_call>, as JSON: {"name": "computer_use", "arguments": {"action": …}}.

The actions are left_click, double_click, triple_click, right_click, middle_click and mouse_move with a coordinate
[x, y]; left_click_drag with the coordinate where it ends, and a start_coordinate if that is not where the pointer is;
type with a text; key with keys; scroll with pixels (positive is up) and hscroll with pixels (positive is right); wait;
and terminate with a status, success or failure. The screen has {width} × {height} pixels."""

SYNTAXES = {
    "ui_tars": ActionSyntax(read_ui_tars, write_ui_tars, UI_TARS_PROMPT),
    "qwen": ActionSyntax(read_qwen, write_qwen, QWEN_PROMPT),
}
