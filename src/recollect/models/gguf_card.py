"""The card of a model that was converted from a GGUF file: what it is, whence it came, and what quantising lost."""

from __future__ import annotations

import re

from recollect.models.gguf_header import GGUFHeader

PLAIN = ("F32", "F16", "BF16", "F64")


def card(header: GGUFHeader, digest: str, kinds: str, dtype: str, origin: str = "") -> str:
    """The text of README.md."""
    license_ = _word(header, "general.license")
    quantised = [kind for kind in kinds.split(", ") if kind not in PLAIN]
    lost = (
        f"The weights were quantised ({', '.join(quantised)}) before they came into that file. Here they are "
        f"dequantised to {dtype}: what quantising lost is not back, so results differ from the original's."
        if quantised
        else f"The weights are stored as {dtype}."
    )
    rows = [
        ("file", header.path.name),
        ("SHA-256 of the file", digest),
        *([("source", origin)] if origin else []),
        ("license", license_ or "not stated in the file"),
        ("architecture", header.architecture),
        ("parameters", f"{header.parameters:,}"),
        ("types in the file", kinds),
        ("window", f"{header.about('context_length', 'not stated'):,}" if _has_window(header) else "not stated"),
    ]
    table = "\n".join(f"| {name} | {_cell(value)} |" for name, value in rows)
    front = f"---\nlicense: {license_.lower()}\n---\n\n" if re.fullmatch(r"[\w.-]+", license_) else ""
    name = _word(header, "general.name") or header.path.stem
    return f"{front}# {name}\n\nConverted by recollect from a GGUF file. {lost}\n\n| | |\n|---|---|\n{table}\n"


def _word(header: GGUFHeader, key: str) -> str:
    value = header.metadata.get(key)
    return _cell(value) if isinstance(value, str) else ""


def _cell(text: str) -> str:
    """A text in one line of a table."""
    return " ".join(text.split()).replace("|", "\\|")[:300]


def _has_window(header: GGUFHeader) -> bool:
    return isinstance(header.about("context_length"), int)
