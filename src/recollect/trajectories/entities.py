"""HTML entities in texts of other systems: ``&quot;`` is a quotation mark, unless the text is HTML itself."""

from __future__ import annotations

import html
import re
from html.entities import html5
from typing import Any

_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")
_TAGS = """a article body br button code div doctype em footer form h1 h2 h3 h4 h5 h6 head header html img li link main
meta nav ol option p pre script section select small span strong style svg table tbody td textarea th thead title tr
ul"""
_MARKUP = re.compile(rf"<[/!]?(?:{'|'.join(_TAGS.split())})(?:\s[^<>]*)?/?>", re.IGNORECASE)


def resolved(value: Any) -> Any:
    """A value whose texts have their entities resolved, once; the very same object where there are none."""
    if isinstance(value, str):
        return resolved_text(value) if "&" in value else value
    if isinstance(value, dict):
        made = {k: v if isinstance(v, int | float) else resolved(v) for k, v in value.items()}
        return value if all(made[k] is v for k, v in value.items()) else made
    if isinstance(value, list):
        items = [v if isinstance(v, int | float) else resolved(v) for v in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else items
    return value


def resolved_text(text: str) -> str:
    """A text with its entities resolved. In a text that has HTML tags they belong to the HTML."""
    return text if _MARKUP.search(text) else _ENTITY.sub(_character, text)


def _character(found: re.Match[str]) -> str:
    entity = found[0]
    known = entity[1] == "#" or entity[1:] in html5
    return (html.unescape(entity) or entity) if known else entity
