"""What the model is shown of a tool's value."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from recollect.chat.media import WHY, media_in
from recollect.images.content import ImageColumn, image_from, marked
from recollect.images.image_files import check_size, drawn, in_colours
from recollect.types import IMAGE_MARK, Image, ToolResult


def cut(text: str, most: int, side: str = "middle") -> str:
    """A text of at most ``most`` characters, with a mark that says how much is missing.

    A longer one keeps its beginning (``left``), its end (``right``), or both (``middle``).
    """
    if len(text) <= most:
        return text
    missing = len(text)
    for _ in range(3):  # the number of digits may change with the number
        marker = f"\n… [{missing} characters cut] …\n"
        missing = len(text) - (most - len(marker))
    keep = most - len(marker)
    if keep < 2:
        return text[:most]
    behind = {"left": 0, "right": keep}.get(side, keep // 2)
    return text[: keep - behind] + marker + text[len(text) - behind :]


def as_text(value: Any) -> str:
    """A value as text: strings as they are, structures as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def _shown(value: Any) -> ToolResult:
    """What a tool returned, as text and images; for a dict with ``observation``, only that and its ``image``."""
    if isinstance(value, Image) or is_picture(value):
        return ToolResult("", images=(as_image(value),))
    if isinstance(value, dict) and isinstance(value.get("observation"), str):
        return ToolResult(value["observation"], images=(as_image(value["image"]),) if value.get("image") else ())
    if not (isinstance(value, list) and all(isinstance(p, dict) and "type" in p for p in value)):
        return ToolResult(as_text(value))
    column = ImageColumn([], "the tool", None)
    text = marked(value, column)
    if not column.taken:
        if (found := media_in(value)) is not None:
            raise ValueError(f"the tool returned {found}; {WHY}")
        return ToolResult(as_text(value))
    return ToolResult(text.replace(IMAGE_MARK, ""), images=tuple(column.taken))


def is_picture(value: Any) -> bool:
    """True for a picture of Pillow's; without Pillow there is none."""
    library = sys.modules.get("PIL.Image")
    return library is not None and isinstance(value, library.Image)


def as_image(value: Any) -> Image:
    """The image that a tool returned: one of ours, Pillow's, bytes, a data URL, or an object with one."""
    if isinstance(value, Image):
        return value
    if not is_picture(value):
        return image_from(value, "the tool's image", None)
    check_size(value.width, value.height, "the tool's image")
    return drawn(in_colours(value))


def as_result(value: Any, most: int) -> ToolResult:
    """What a tool returned, as a result whose text is not too long."""
    result = value if isinstance(value, ToolResult) else _shown(value)
    if result.reward is not None and not math.isfinite(result.reward):
        raise ValueError(f"the tool's reward is {result.reward}")
    text = as_text(result.text)
    return replace(result, text=cut(text, most), cut=max(0, len(text) - most))
