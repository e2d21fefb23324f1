"""Has a stop string appeared? Only the end of what was sampled is decoded; the verdict is that of decoding it all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

MARGIN = 8  # characters that a decoder may write otherwise at the start of a text, or change when a token is added
BROKEN = "\ufffd"  # what half a character decodes to


def ends(ids: Sequence[int], stops: Sequence[str], decode: Callable[[Sequence[int]], str]) -> bool:
    """True when the text of ``ids`` holds a stop string, given that it held none before the newest id.

    A new occurrence reaches into what the newest id wrote, or into a character that it completed. So a tail is enough
    that has the longest stop string and a margin before that id, and that does not begin inside a character.
    """
    need = max(map(len, stops)) + MARGIN
    newest = len(decode(ids[-1:]))
    size = need + 1
    while size < len(ids):
        tail = decode(ids[-size:])
        if len(tail) - newest >= need and tail[0] != BROKEN:
            return any(stop in tail for stop in stops) and _anywhere(decode(ids), stops)
        size *= 2
    return _anywhere(decode(ids), stops)


def _anywhere(text: str, stops: Sequence[str]) -> bool:
    return any(stop in text for stop in stops)
