"""The pictures of attempts: what was newly seen at each turn, and what was done on it."""

from __future__ import annotations

from pathlib import Path

from recollect.eval.strips import GAP, MARK, MOST, draw_strip, save_strips, shown
from recollect.types import Action, Completion, Group, Image, Task, Trajectory, Turn
from tests.seeing import pictures

A, B, C = pictures()
SAID = Completion((1,), (), "stop", 0, "x")


def attempt(*images: tuple[Image, ...], actions: tuple[Action, ...] = ()) -> Trajectory:
    made = Trajectory("t", 0)
    made.turns += [Turn("agent", [1], SAID, images=seen) for seen in images]
    made.actions += actions
    return made


def click(turn: int, x: int = 10, y: int = 20) -> Action:
    return Action("click", {"point": [x, y]}, "", turn=turn)


def test_every_screenshot_once_with_what_was_done_on_it() -> None:
    grows = attempt((A,), (A, B), (A, B, C), actions=(click(1), click(2), click(3)))
    assert shown(grows) == [(A, [click(1)]), (B, [click(2)]), (C, [click(3)])]
    slides = attempt((A,), (A, B), (B, C), (C, A), actions=(click(1), click(4)))
    assert [(image, len(done)) for image, done in shown(slides)] == [(A, 1), (B, 0), (C, 0), (A, 1)]
    assert [image for image, _ in shown(attempt(*[(A, B)] * 2))] == [A, B]
    assert shown(attempt((), ())) == []
    assert len(shown(attempt(*[(A, B, C) * n for n in range(1, 8)]))) == MOST


def test_marks_stand_where_something_was_done() -> None:
    action = Action("drag", {"point": [10, 20], "end": [30, 30]}, "", turn=1)
    plain, marked = draw_strip([(A, [])]), draw_strip([(A, [action])])
    scale = (plain.width - 2 * GAP) / A.width
    x, y = GAP + 20 * scale, GAP + 25 * scale  # half way
    reds = [(i, j) for i in range(marked.width) for j in range(marked.height) if marked.getpixel((i, j)) == MARK]
    assert any(abs(i - x) < 3 and abs(j - y) < 3 for i, j in reds)
    assert MARK not in plain.getdata()


def test_what_it_did_stands_below_and_may_be_anything() -> None:
    odd = [Action("type", {"text": "東京\n" * 50}, "", turn=1), Action("gui", "\ud800 no", "", "malformed", 1)]
    odd += [
        Action("scroll", {"amount": -3, "across": 2}, "", turn=1),
        Action("click", {"point": [1e9, -5]}, "", turn=1),
    ]
    assert draw_strip([(A, odd), (B, [])]).width == draw_strip([(A, []), (B, [])]).width


def test_only_attempts_with_images_are_drawn(tmp_path: Path) -> None:
    groups = [Group(Task(name, "q"), [made]) for name, made in (("a", attempt(())), ("b", attempt((A,))))]
    assert save_strips(tmp_path, groups) == {"b": "attempt-2.png"}
    assert [p.name for p in tmp_path.iterdir()] == ["attempt-2.png"]
