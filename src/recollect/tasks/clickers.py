"""Scripted players of made-up screens: a clicker that solves them, and a sloppy one that looks for anything.

Both think of something that is written, say where it is, and act there. What cannot be seen is scrolled for.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from recollect.gui.action_syntax import SYNTAXES
from recollect.gui.environment import GuiAction, Point
from recollect.gui.on_screen import OnScreen
from recollect.gui.screen import Screen, WidgetLine, reach_for
from recollect.types import Task, Trajectory

PlaceInNumbers = Callable[[Point], tuple[int, int]]  # the numbers that a model says of a place


def clicker(task: Task, trajectory: Trajectory) -> str:
    """What a perfect agent says next. Where nothing is asked for, it reads the screen aloud."""
    world, screen = _on(trajectory)
    write = SYNTAXES[world.syntax].write
    if screen.is_reached:
        thought = "" if screen.goal.kind else f"Thought: {read_aloud(screen, world.frame.said, task.id)}\n"
        return thought + write(GuiAction("finished"), world.frame)
    if screen.focused is screen.wanted[0]:
        return write(GuiAction("type", text=screen.goal.text), world.frame)
    return looking_for(screen.wanted, world, screen)


def sloppy_clicker(task: Task, trajectory: Trajectory) -> str:
    """What an agent says that has the form right, but looks for anything that is written, until it finds it."""
    world, screen = _on(trajectory)
    if screen.goal.kind is None:
        return clicker(task, trajectory)
    if screen.goal.kind == "field" and screen.focused is not None and not screen.focused.text:
        return SYNTAXES[world.syntax].write(GuiAction("type", text=screen.goal.text), world.frame)
    chance = random.Random(f"sloppy:{task.id}")  # the same in every turn
    return looking_for(chance.choice([(w, i) for w in screen.widgets for i in range(len(w.all_lines))]), world, screen)


def looking_for(line: WidgetLine, world: OnScreen, screen: Screen) -> str:
    """A thought about something that is written, and the action at its place."""
    action, (widget, number) = reach_for(screen, *line), line
    seen = action.kind == "click" and action.point is not None
    where = "{},{}".format(*world.frame.said(action.point)) if seen and action.point else "none"
    return f"Thought: {widget.all_lines[number]} {where}\n{SYNTAXES[world.syntax].write(action, world.frame)}"


def read_aloud(screen: Screen, said: PlaceInNumbers, seed: str) -> str:
    """What is written on a screen and where, in any order."""
    lines = [(text, screen.centre(w, i)) for w in screen.widgets for i, text in enumerate(w.written)]
    random.Random(seed).shuffle(lines)
    return " ".join(f"{text} {x},{y}" for text, (x, y) in ((text, said(point)) for text, point in lines))


def _on(trajectory: Trajectory) -> tuple[OnScreen, Screen]:
    """The screen that an attempt is under way on."""
    world = trajectory.world
    assert isinstance(world, OnScreen), "the agent gui shows its screen to whoever plays it"
    assert isinstance(world.environment, Screen), "the clickers play made-up screens alone"
    return world, world.environment
