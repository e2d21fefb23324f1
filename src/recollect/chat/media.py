"""Find videos and sound, which models here cannot read, so that they are refused and never dropped silently.

Images are read by `recollect.images`; where they cannot be shown they are found here too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recollect.images.image_files import KINDS
from recollect.types import BadInput

PARTS = {  # the types of message parts, and what they hold
    **dict.fromkeys(("image", "image_url", "input_image"), "an image"),
    **dict.fromkeys(("video", "video_url", "input_video"), "a video"),
    **dict.fromkeys(("audio", "audio_url", "input_audio"), "sound"),
}
IMAGE_COLUMNS = ("images", "image")
COLUMNS = {"images": "an image", "image": "an image", "videos": "a video", "audios": "sound", "audio": "sound"}
SUFFIXES = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".mp4", ".mkv", ".webm", ".mp3", ".wav", ".flac", ".ogg")
WHY = "it cannot be shown to a model here"


def media_in(content: Any) -> str | None:
    """What a message's content, or messages, hold besides text: in words, or None."""
    if isinstance(content, Mapping):
        kind = content.get("type")
        if isinstance(kind, str) and kind in PARTS:
            return PARTS[kind]
        if "type" not in content and len(content) == 1 and (only := next(iter(content))) in PARTS:
            return PARTS[str(only)]  # {"image": …}, as some data has it
        return media_in(content.get("content", content.get("value")))
    if isinstance(content, Sequence) and not isinstance(content, str | bytes):
        return next((found for part in content if (found := media_in(part)) is not None), None)
    return None


def refuse_media(row: Mapping[str, Any], names: Sequence[str], place: str) -> None:
    """Refuse a row with videos or sound: in a column for them, or in what some of its fields say.

    Its images have been read by now: what a column of images still holds is none.
    """
    if (name := next((n for n in IMAGE_COLUMNS if _is_medium(row.get(n))), None)) is not None:
        held, kinds = str(row[name])[:60], ", ".join(KINDS)
        raise BadInput(f"{place}: `{name}` holds {held}, where images are files ({kinds}), data URLs or bytes")
    if (found := media_of(row, names)) is not None:
        raise BadInput(f"{place}: {found}; {WHY}: leave such rows out")


def media_of(row: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """What a row holds besides text and where, in words; None if there is nothing."""
    for name, kind in COLUMNS.items():
        if _is_medium(row.get(name)):
            return f"{kind} under `{name}`"
    return next((f"{found} in `{name}`" for name in names if (found := media_in(row.get(name))) is not None), None)


def _is_medium(value: Any) -> bool:
    """Whether the value of such a column is an image or the like, or a path of one."""
    if isinstance(value, str):
        return value.startswith(("data:image/", "data:video/", "data:audio/")) or value.lower().endswith(SUFFIXES)
    return value is not None and not (hasattr(value, "__len__") and len(value) == 0)
