"""Actions in UI-TARS' and Qwen's forms: read back what was written, scaled to the screen, refused in words."""

from __future__ import annotations

from contextlib import suppress
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.gui.action_syntax import LONGEST, SYNTAXES, BadAction, Frame
from recollect.gui.environment import CLICKS, GuiAction


def called(arguments: str) -> str:
    """A call of computer_use."""
    return f'<tool_call>{{"name": "computer_use", "arguments": {arguments}}}</tool_call>'


FRAME = Frame(1280, 800, (640.0, 400.0))  # the model sees half of each side
SAME = Frame(500, 500, (500.0, 500.0))

points = st.tuples(st.integers(0, 499).map(float), st.integers(0, 499).map(float))
words = st.text(st.characters(codec="utf-8", exclude_characters="\x00\r"), min_size=1, max_size=20)
acts = st.one_of(
    st.builds(GuiAction, st.sampled_from([*CLICKS, "move"]), points),
    st.builds(GuiAction, st.just("drag"), points, points),
    st.builds(GuiAction, st.just("scroll"), points, amount=st.sampled_from([-5, 5])),
    st.builds(GuiAction, st.just("scroll"), points, across=st.sampled_from([-5, 5])),
    st.builds(GuiAction, st.just("type"), text=words.filter(lambda t: "\n" not in t)),
    st.builds(GuiAction, st.just("key"), text=st.sampled_from(["ctrl c", "enter"])),
    st.builds(GuiAction, st.just("wait")),
)


@given(acts, st.sampled_from(sorted(SYNTAXES)))
def test_what_is_written_is_read_back(action: GuiAction, name: str) -> None:
    syntax = SYNTAXES[name]
    assert syntax.read(syntax.write(action, SAME), SAME) == action


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Action: click(start_box='(100,50)')", GuiAction("click", (200.0, 100.0))),
        (
            "Thought: I see (it).\nAction: click(start_box='<|box_start|>(100,50)<|box_end|>')",
            GuiAction("click", (200, 100)),
        ),
        ("click(point='<point>100 50</point>')", GuiAction("click", (200, 100))),
        ("Action: left_double(start_box='[90, 40, 110, 60]')", GuiAction("double_click", (200, 100))),
        ("Action: right_single(start_box='(0,0)')", GuiAction("right_click", (0, 0))),
        ("Action: drag(start_box='(0,0)', end_box='(640,400)')", GuiAction("drag", (0, 0), (1279, 799))),
        ("Action: type(content='it\\'s (\\\\n)\\nnew')", GuiAction("type", text="it's (\\n)\nnew")),
        ("Action: hotkey(key='ctrl c')", GuiAction("key", text="ctrl c")),
        ("Action: scroll(start_box='(1,1)', direction='up')", GuiAction("scroll", (2, 2), amount=-5)),
        ("Action: scroll(start_box='(1,1)', direction='right')", GuiAction("scroll", (2, 2), across=5)),
        ("Action: scroll(direction='left')", GuiAction("scroll", across=-5)),
        ("Action: wait()", GuiAction("wait")),
        ("Action: call_user()", GuiAction("finished")),
        ("Action: finished(content='42')", GuiAction("finished", text="42")),
    ],
)
def test_the_forms_of_ui_tars(text: str, expected: GuiAction) -> None:
    assert SYNTAXES["ui_tars"].read(text, FRAME) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('{"action": "left_click", "coordinate": [100, 50]}', GuiAction("click", (200, 100))),
        ('{"action": "double_click", "coordinate": [100, 50]}', GuiAction("double_click", (200, 100))),
        (
            '{"action": "left_click_drag", "start_coordinate": [0, 0], "coordinate": [100, 50]}',
            GuiAction("drag", (0, 0), (200, 100)),
        ),
        ('{"action": "type", "text": "abc"}', GuiAction("type", text="abc")),
        ('{"action": "key", "keys": ["ctrl", "c"]}', GuiAction("key", text="ctrl c")),
        ('{"action": "scroll", "coordinate": [1, 1], "pixels": -300}', GuiAction("scroll", (2, 2), amount=3)),
        ('{"action": "hscroll", "coordinate": [1, 1], "pixels": 250}', GuiAction("scroll", (2, 2), across=2)),
        ('{"action": "mouse_move", "coordinate": [100, 50]}', GuiAction("move", (200, 100))),
        ('{"action": "triple_click", "coordinate": [100, 50]}', GuiAction("triple_click", (200, 100))),
        ('{"action": "middle_click", "coordinate": [100, 50]}', GuiAction("middle_click", (200, 100))),
        ('{"action": "wait", "time": 1}', GuiAction("wait")),
        ('{"action": "terminate", "status": "failure"}', GuiAction("finished", text="failure")),
    ],
)
def test_the_forms_of_qwen(given: str, expected: GuiAction) -> None:
    text = f'<tool_call>\n{{"name": "computer_use", "arguments": {given}}}\n</tool_call>'
    assert SYNTAXES["qwen"].read(text, FRAME) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('{"action": "left_click"}', GuiAction("click", (20, 10))),
        ('{"action": "left_click_drag", "coordinate": [100, 50]}', GuiAction("drag", (20, 10), (200, 100))),
        ('{"action": "scroll", "pixels": 100}', GuiAction("scroll", (20, 10), amount=-1)),
    ],
)
def test_qwens_actions_begin_where_the_pointer_is(given: str, expected: GuiAction) -> None:
    read = SYNTAXES["qwen"].read
    after = FRAME.after(read(called('{"action": "mouse_move", "coordinate": [10, 5]}'), FRAME))
    assert read(called(given), after.after(GuiAction("wait"))) == expected
    assert after.after(expected).pointer == (expected.end or expected.point)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("ui_tars", "I will click the button.", "there is no action"),
        ("ui_tars", "Action: fly(start_box='(1,2)')", "no action fly"),
        ("ui_tars", "Action: click()", "click needs a place"),
        ("ui_tars", "Action: click(start_box='(1)')", "a place is two numbers"),
        ("ui_tars", "Action: click(start_box='(700,2)')", "outside of the screen of 640"),
        ("ui_tars", "Action: click(start_box='(-7,2)')", "outside"),
        ("ui_tars", "Action: drag(start_box='(7,2)')", "a place to end at"),
        ("ui_tars", "Action: type(content='')", "type needs a text"),
        ("ui_tars", "Action: scroll(direction='round')", "scroll down, up, right or left"),
        ("ui_tars", f"Action: type(content='{'x' * (LONGEST + 1)}')", "a text may have"),
        ("qwen", "click", "there is no call"),
        ("qwen", called('{"action": "left_click"}'), "click needs a place"),
        ("qwen", called('{"action": "left_click_drag", "coordinate": [1, 1]}'), "drag needs a place"),
        ("qwen", "<tool_call>[1]</tool_call>", "the call cannot be read"),
        ("qwen", "<tool_call>" + "[" * 100_000, "cannot be read"),
        (
            "qwen",
            '<tool_call>{"name": "computer_use", "arguments": {"action": "left_click", "coordinate": [1]}}</tool_call>',
            "a coordinate is two",
        ),
        (
            "qwen",
            called('{"action": "left_click", "coordinate": [true, 1]}'),
            "a coordinate is two",
        ),
        (
            "qwen",
            '<tool_call>{"name": "computer_use", "arguments": {"action": "scroll", "pixels": NaN}}</tool_call>',
            "scroll needs pixels",
        ),
        (
            "qwen",
            '<tool_call>{"name": "computer_use", "arguments": {"action": "type", "text": ""}}</tool_call>',
            "type needs a text",
        ),
    ],
)
def test_what_is_no_action_is_said_in_words(name: str, text: str, why: str) -> None:
    with pytest.raises(BadAction, match=why):
        SYNTAXES[name].read(text, FRAME)


@given(st.text(max_size=80), st.sampled_from(sorted(SYNTAXES)))
def test_nothing_that_a_model_says_breaks_the_reader(text: str, name: str) -> None:
    for whole in (text, f"Action: click({text})", f"<tool_call>{text}", f'<tool_call>{{"arguments": {text}}}'):
        with suppress(BadAction):
            SYNTAXES[name].read(whole, FRAME)


@pytest.mark.parametrize("name", SYNTAXES)
@pytest.mark.parametrize("said", ["a", "a(", "Action: click(", "<tool_call>{", "x='"])
def test_a_model_that_repeats_itself_costs_no_time(said: str, name: str) -> None:
    start = perf_counter()
    with suppress(BadAction):
        SYNTAXES[name].read(said * (30_000 // len(said)), FRAME)
    assert perf_counter() - start < 4
