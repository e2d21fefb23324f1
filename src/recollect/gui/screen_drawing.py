"""Drawing a made-up screen with Pillow: letters of eight pixels, two to a cell."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from recollect.images.image_files import drawn, pillow
from recollect.types import Image

if TYPE_CHECKING:
    from recollect.gui.screen import Screen, Widget

LETTER = 8  # pixels of a letter's side at scale 1
BLACK, WHITE, GREY = (0, 0, 0), (255, 255, 255), (150, 150, 150)


@lru_cache(maxsize=256)
def _glyph(letter: str) -> Any:
    """A letter as a mask of LETTER × LETTER pixels, in Pillow's own font."""
    from PIL import ImageDraw, ImageFont

    library = pillow()
    wide = library.new("L", (3 * LETTER, 3 * LETTER))
    ImageDraw.Draw(wide).text((LETTER, LETTER), letter, fill=255, font=ImageFont.load_default_imagefont())
    box = wide.getbbox() or (0, 0, 1, 1)
    cut = wide.crop((box[0], box[1], min(box[2], box[0] + LETTER), min(box[3], box[1] + LETTER)))
    made = library.new("L", (LETTER, LETTER))
    made.paste(cut, ((LETTER - cut.width) // 2, (LETTER - cut.height) // 2))
    return made


def draw_screen(screen: Screen) -> Image:
    """A picture of a screen."""
    from PIL import ImageDraw

    library = pillow()
    size = screen.columns * 2 * LETTER, screen.rows * 2 * LETTER
    picture = library.new("RGB", size, screen.background)
    pen = ImageDraw.Draw(picture)
    for number, widget in enumerate(screen.widgets):
        _draw(picture, pen, widget, number == screen.focus)
    if screen.scale > 1:
        picture = picture.resize((size[0] * screen.scale, size[1] * screen.scale), library.Resampling.NEAREST)
    return drawn(picture)


def _draw(picture: Any, pen: Any, widget: Widget, focused: bool) -> None:
    x, y = widget.column * 2 * LETTER, widget.row * 2 * LETTER
    high = 2 * LETTER * widget.shown
    pen.rectangle((x, y, x + 2 * LETTER - 1, y + high - 1), fill=widget.colour)
    if widget.kind == "list":
        for i, line in enumerate(widget.written):
            _write(picture, line, x, y + i * 2 * LETTER, WHITE if line == widget.text else BLACK)
        return
    _write(picture, widget.label, x, y, BLACK)
    below = y + LETTER
    if widget.kind == "field":
        edge = BLACK if focused else GREY
        pen.rectangle((x, below, x + 2 * LETTER - 1, below + LETTER - 1), fill=WHITE, outline=edge)
        _write(picture, widget.text[:2], x, below, BLACK)
    elif widget.kind == "box":
        pen.rectangle((x + 4, below, x + 11, below + LETTER - 1), fill=WHITE, outline=BLACK)
        if widget.on:
            pen.line((x + 5, below + 1, x + 10, below + 6), fill=BLACK)
            pen.line((x + 5, below + 6, x + 10, below + 1), fill=BLACK)
    else:
        pen.line((x, below + LETTER - 1, x + 2 * LETTER - 1, below + LETTER - 1), fill=BLACK)


def _write(picture: Any, text: str, x: int, y: int, colour: tuple[int, int, int]) -> None:
    for i, letter in enumerate(text):
        picture.paste(colour, (x + i * LETTER, y), _glyph(letter))
