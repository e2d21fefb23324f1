"""Images, videos and sound, which no model here reads: found wherever they come in, so that none is dropped unsaid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.types import BadInput

PARTS = {  # the types of message parts, and what they hold
    **dict.fromkeys(("image", "image_url", "input_image"), "an image"),
    **dict.fromkeys(("video", "video_url", "input_video"), "a video"),
    **dict.fromkeys(("audio", "audio_url", "input_audio"), "sound"),
}
COLUMNS = {"images": "an image", "image": "an image", "videos": "a video", "audios": "sound", "audio": "sound"}
WHY = "models here read text alone"


def media_in(content: Any) -> str | None:
    """What a message's content, or messages, hold besides text: in words, or None."""
    if isinstance(content, Mapping):
        kind = content.get("type")
        if isinstance(kind, str) and kind in PARTS:
            return PARTS[kind]
        if "type" not in content and len(content) == 1 and (only := next(iter(content))) in PARTS:
            return PARTS[str(only)]  # {"image": …}, as some data has it
        return media_in(content.get("content"))
    if isinstance(content, Sequence) and not isinstance(content, str | bytes):
        return next((found for part in content if (found := media_in(part)) is not None), None)
    return None


def refuse_media(row: Mapping[str, Any], names: Sequence[str], place: str) -> None:
    """Refuse a row with images and the like: in a column for them, or in what some of its fields say."""
    for name, kind in COLUMNS.items():
        if name in row and _is_some(row[name]):
            raise BadInput(f"{place}: {kind} under `{name}`; {WHY}: leave such rows out")
    for name in names:
        if (found := media_in(row.get(name))) is not None:
            raise BadInput(f"{place}: {found} in `{name}`; {WHY}: leave such rows out")


def _is_some(value: Any) -> bool:
    return value is not None and not (hasattr(value, "__len__") and len(value) == 0)
