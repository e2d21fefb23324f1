"""What an attempt was shown, side by side as one picture, with what it did on each screenshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recollect.images.image_files import pillow, pixels
from recollect.types import Action, Group, Image, Trajectory

MOST = 8  # pictures of a strip
SIDE = 240  # pixels that a picture's longer side is scaled to, about
GAP, LINE = 8, 16  # pixels between pictures, and of a line of text
MARK, RING = (220, 38, 38), 8
PAPER, INK = (255, 255, 255), (34, 34, 34)


def save_strips(folder: Path, groups: Sequence[Group]) -> dict[str, str]:
    """Draw the first attempts of some groups, where they were shown images: the picture's name, by task."""
    made: dict[str, str] = {}
    for number, group in enumerate(groups, 1):
        if seen := shown(group.trajectories[0]):
            name = f"attempt-{number}.png"
            draw_strip(seen).save(folder / name)
            made[group.task.id] = name
    return made


def shown(made: Trajectory) -> list[tuple[Image, list[Action]]]:
    """What an attempt saw newly at each turn, and what it did then; the last ones where there are many."""
    seen: list[tuple[Image, list[Action]]] = []
    before: tuple[Image, ...] = ()
    for number, turn in enumerate(made.turns, 1):
        goes_on = turn.images[: len(before)] == before  # if not, old screenshots have left the prompt
        fresh = turn.images[len(before) :] if goes_on else turn.images[-1:]
        seen += [(image, []) for image in fresh]
        if seen:
            seen[-1][1].extend(a for a in made.actions if a.turn == number)
        before = turn.images
    return seen[-MOST:]


def draw_strip(seen: Sequence[tuple[Image, Sequence[Action]]]) -> Any:
    """The pictures from left to right, with marks where something was done and words below."""
    from PIL import ImageDraw

    library = pillow()
    scaled = [_scaled(image) for image, _ in seen]
    width = sum(p.width for p in scaled) + GAP * (len(scaled) + 1)
    strip = library.new("RGB", (width, max(p.height for p in scaled) + 2 * GAP + LINE), PAPER)
    pen, left = ImageDraw.Draw(strip), GAP
    for picture, (image, actions) in zip(scaled, seen, strict=True):
        strip.paste(picture, (left, GAP))
        for action in actions:
            _mark(pen, action, picture.width / image.width, (left, GAP))
        words = "; ".join(map(_words, actions))
        pen.text((left, GAP + picture.height + 3), _fitting(pen, words, picture.width), fill=INK)
        left += picture.width + GAP
    return strip


def _scaled(image: Image) -> Any:
    """A picture of about SIDE pixels; one that grows does so by whole numbers, so that its pixels stay sharp."""
    picture, ratio = pixels(image), SIDE / max(image.width, image.height)
    ratio = max(1, round(ratio)) if ratio >= 1 else ratio
    size = max(1, round(image.width * ratio)), max(1, round(image.height * ratio))
    way = pillow().Resampling.NEAREST if ratio >= 1 else pillow().Resampling.LANCZOS
    return picture.resize(size, way)


def _given(action: Action) -> Mapping[str, Any]:
    return action.input if isinstance(action.input, Mapping) else {}


def _mark(pen: Any, action: Action, scale: float, corner: tuple[int, int]) -> None:
    """A ring where something was done, and a line to where a drag ended."""
    given = [_given(action)[name] for name in ("point", "end") if name in _given(action)]
    places = [(corner[0] + x * scale, corner[1] + y * scale) for x, y in given]
    for x, y in places[:1]:
        pen.ellipse((x - RING, y - RING, x + RING, y + RING), outline=MARK, width=2)
    if len(places) == 2:
        pen.line(places, fill=MARK, width=2)


def _words(action: Action) -> str:
    """An action in words."""
    given = _given(action)
    ways = {"amount": ("up", "down"), "across": ("left", "right")}
    said = [
        ways[name][given[name] > 0] if name in ways else str(given[name]) for name in ("text", *ways) if name in given
    ]
    failed = [] if action.outcome == "ok" else [f"({action.outcome})"]
    return " ".join([action.tool, *said, *failed])


def _fitting(pen: Any, text: str, width: int) -> str:
    """A text cut to a width in pixels; Pillow's own font has no other letters than those of Latin-1."""
    text = " ".join(text.encode("latin-1", "replace").decode("latin-1").split())
    while text and pen.textlength(text) > width:
        text = text[:-1]
    return text
