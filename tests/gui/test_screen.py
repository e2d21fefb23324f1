"""Made-up screens: repeatable, drawn with what they hold, and solved by the scripted clicker."""

from __future__ import annotations

import asyncio
import random

import pytest

from recollect.config.compose import compose
from recollect.gui.environment import GuiAction
from recollect.gui.screen import Goal, Screen, Widget, reach_for
from recollect.gui.screen_row import read_screen
from recollect.images.image_files import pixels
from recollect.tasks.screens import colours, instruction, labels, make_screen, make_task

CFG = compose(None, ["agent.agent_type=gui", "data.screen.goals=[press,tick,fill,pick]", "data.screen.rows=5"])


def screens(count: int = 60) -> list[Screen]:
    return [make_screen(random.Random(f"{i}"), "train", CFG) for i in range(count)]


def test_the_clicker_reaches_every_goal_in_few_steps() -> None:
    kinds = set()
    for screen in screens():
        again, steps = read_screen(screen.row()), 0
        kinds.add(screen.goal.kind)
        while not again.is_reached:
            types = again.focused is again.wanted[0]
            done = GuiAction("type", text=again.goal.text) if types else reach_for(again, *again.wanted)
            assert again.do(done) == ""
            steps += 1
            assert steps <= 5
    assert kinds == {"button", "box", "field", "list"}


def test_tasks_are_the_same_for_the_same_seed_and_drawn_the_same() -> None:
    one, two = (make_task(CFG, 3, 5, "train") for _ in range(2))
    assert one.fields == two.fields
    assert one.question == instruction(read_screen(one.fields["screen"]).goal)
    from recollect.gui.screen_drawing import draw_screen

    assert draw_screen(read_screen(one.fields["screen"])) is draw_screen(read_screen(two.fields["screen"]))
    assert make_task(CFG, 3, 6, "train").fields != one.fields


def test_labels_and_colours_never_meet() -> None:
    assert set(labels("train")).isdisjoint(labels("held_out"))
    assert set(colours("train")).isdisjoint(colours("held_out"))
    for i in range(20):
        screen = read_screen(make_task(CFG, 0, i, "held_out").fields["screen"])
        written = {w.label for w in screen.widgets} | {line for w in screen.widgets for line in w.lines}
        assert written <= set(labels("held_out"))
        assert {w.colour for w in screen.widgets} <= set(colours("held_out"))


def test_widgets_that_are_alike() -> None:
    cfg = compose(None, ["agent.agent_type=gui", "data.screen.alike=1.0", "data.screen.widgets=6"])
    for i in range(20):
        screen = make_screen(random.Random(f"{i}"), "train", cfg)
        assert {w.kind for w in screen.widgets} == {screen.goal.kind}
        assert len(screen.widgets) > 1


def desk() -> Screen:
    grey = (200, 200, 200)
    widgets = [
        Widget("button", "OK", 0, 0, grey),
        Widget("field", "NA", 0, 1, grey),
        Widget("box", "BX", 1, 0, grey),
        Widget("list", "LI", 2, 2, grey, lines=["AA", "CC", "EE", "HH"], shown=2),
    ]
    return Screen(4, 4, widgets, Goal("field", "NA", "KT"))


def test_what_actions_do() -> None:
    screen = desk()
    assert screen.do(GuiAction("type", text="x")) == "there is no field to type into; click one first"
    screen.do(GuiAction("click", (24, 8)))
    screen.do(GuiAction("type", text="kx"))
    screen.do(GuiAction("key", text="backspace"))
    screen.do(GuiAction("type", text="t"))
    assert screen.is_reached
    screen.do(GuiAction("click", (8, 24)))
    assert not screen.is_reached  # another widget has changed too
    screen.do(GuiAction("click", (8, 24)))
    assert screen.is_reached
    assert screen.do(GuiAction("click", (60, 8))) == ""
    assert screen.do(GuiAction("scroll", (8, 8), amount=5)) == "there is nothing to scroll"
    assert screen.do(GuiAction("scroll", (40, 40), across=5)) == "there is nothing to scroll"
    assert screen.do(GuiAction("move", (40, 40))) == ""
    for amount, first in ((5, 1), (5, 2), (5, 2), (-5, 1)):
        screen.do(GuiAction("scroll", (40, 40), amount=amount))
        assert screen.widgets[3].first == first
    assert not asyncio.run(screen.ended())
    screen.do(GuiAction("click", (40, 56)))
    assert screen.widgets[3].text == "EE"
    assert asyncio.run(screen.ended())
    assert "no effect" in screen.do(GuiAction("drag", (1, 1), (2, 2)))
    assert "no effect" in screen.do(GuiAction("key", text="ctrl q"))


@pytest.mark.parametrize("scale", [1, 3])
def test_the_picture_shows_the_state(scale: int) -> None:
    from recollect.gui.screen_drawing import draw_screen

    screen = desk()
    screen.scale = scale
    before = draw_screen(screen)
    assert (before.width, before.height) == screen.size == (64 * scale, 64 * scale)
    middle = screen.centre(screen.widgets[2])
    assert screen.at(middle)[0] is screen.widgets[2]
    screen.do(GuiAction("click", middle))
    after = draw_screen(screen)
    assert after is not before
    assert pixels(after).getpixel((0, 24 * scale)) == (200, 200, 200)
