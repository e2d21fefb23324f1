"""Made-up screens from rows of data: what cannot be drawn or reached is refused in words."""

from __future__ import annotations

import math
from typing import Any

import pytest

from recollect.config.compose import compose
from recollect.gui.screen import CELL, Goal, Screen, Widget
from recollect.gui.screen_row import read_screen, too_large
from recollect.images.image_files import MOST_PIXELS
from recollect.tasks.screens import make_task

GREY = [200, 200, 200]
LIST = {"kind": "list", "label": "LI", "row": 0, "column": 1, "colour": GREY, "lines": ["AA", "CC"], "shown": 2}
BUTTON = {"kind": "button", "label": "KA", "row": 0, "column": 0, "colour": GREY}
WHOLE = {"rows": 2, "columns": 2, "widgets": [BUTTON, LIST], "goal": {"kind": "button", "label": "KA"}}


def test_a_screen_comes_back_as_it_was() -> None:
    cfg = compose(None, ["agent.agent_type=gui", "data.screen.goals=[press,tick,fill,pick]"])
    for i in range(20):
        row = make_task(cfg, 0, i, "train").fields["screen"]
        assert read_screen(row).row() == row
    widgets = [Widget("button", "KA", 0, 0, (200, 200, 200))]
    made = read_screen({**WHOLE, "widgets": [BUTTON]})
    assert made == Screen(2, 2, widgets, Goal("button", "KA"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"rows": 0}, "rows: .*greater than or equal to 1"),
        ({"rows": 100_000}, "rows: .*less than or equal to 60"),
        ({"rows": 2.5}, "rows: .*valid integer"),
        ({"rows": "2"}, "rows: .*valid integer"),
        ({"scale": 0}, "scale: "),
        ({"rows": 60, "columns": 60, "scale": 16}, "more than 40,000,000 pixels"),
        ({"background": [300, 0, 0]}, "background.0: "),
        ({"background": [0, 0]}, "background.2: "),
        ({"widgets": "abc"}, "widgets: "),
        ({"widgets": [7]}, "widgets.0: "),
        ({"widgets": [{**BUTTON, "kind": "knob"}]}, "widgets.0.kind: "),
        ({"widgets": [{**BUTTON, "label": "LONG"}]}, "widgets.0.label: "),
        ({"widgets": [{**BUTTON, "label": 5}]}, "widgets.0.label: "),
        ({"widgets": [{**BUTTON, "row": -1}]}, "widgets.0.row: "),
        ({"widgets": [{**BUTTON, "size": 5}]}, "widgets.0.size: Unexpected"),
        ({"widgets": [{**BUTTON, "row": 2}]}, "the widget KA is outside"),
        ({"widgets": [BUTTON, {**LIST, "row": 1}]}, "the widget LI is outside"),
        ({"widgets": [BUTTON, {**LIST, "first": 1}]}, "the list LI shows more lines than it has"),
        ({"goal": {"kind": "button", "label": "ZZ"}}, "of which there is none"),
        ({"widgets": [BUTTON, {**BUTTON, "row": 1}]}, "of which there are several"),
        ({"goal": {"kind": "list", "label": "LI", "text": "XX"}}, "the list LI has no line XX"),
        ({"focus": 0}, "focus 0 is the number of no field"),
        ({"wallpaper": "x"}, "wallpaper: Unexpected"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        read_screen({**WHOLE, **change})
    assert "\n" not in str(caught.value)


def test_something_else_is_no_screen() -> None:
    for said in ({}, {"rows": 2}, []):
        with pytest.raises(ValueError, match=":"):
            read_screen(said)  # type: ignore[arg-type]


def test_the_bound_is_that_of_images() -> None:
    side = math.isqrt(MOST_PIXELS) // CELL
    assert not too_large(side, side, 1)
    assert too_large(side + 1, side + 1, 1)
