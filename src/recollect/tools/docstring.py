"""What a docstring in Google's, NumPy's or Sphinx's style says about a function and its parameters."""

from __future__ import annotations

import inspect
import re

_SECTIONS = {"args", "arguments", "parameters", "params"}
_OTHER = {"returns", "return", "raises", "yields", "examples", "example", "notes", "note", "attributes", "see also"}
_SPHINX = re.compile(r":param\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)")
_FIELD = re.compile(r":(param|type|return|returns|rtype|raises?|raise)\b")
_GOOGLE = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY = re.compile(r"\*{0,2}(\w+)\s*(?::.*)?$")


def read(text: str | None) -> tuple[str, dict[str, str]]:
    """The description of the function, and that of each parameter."""
    lines = inspect.cleandoc(text or "").splitlines()
    about: list[str] = []
    parameters: dict[str, list[str]] = {}
    section, style, indent, current = "", "", 0, ""
    for i, line in enumerate(lines):
        words, depth = line.strip(), len(line) - len(line.lstrip())
        heading = words.rstrip(":").lower()
        underlined = i + 1 < len(lines) and bool(re.fullmatch(r"-{3,}", lines[i + 1].strip()))
        if heading in _SECTIONS | _OTHER and depth == 0 and (words.endswith(":") or underlined):
            section = "parameters" if heading in _SECTIONS else "other"
            style, indent, current = ("numpy" if underlined else "google"), -1, ""
        elif _FIELD.match(words):
            found = _SPHINX.match(words)
            section, style, indent = "sphinx", "sphinx", depth
            current = found[1] if found else ""
            if found:
                parameters[current] = [found[2]]
        elif not section:
            about.append(line)
        elif section == "parameters" and re.fullmatch(r"-{3,}", words):
            continue
        elif section == "parameters" and words:
            indent = depth if indent < 0 else indent
            found = (_NUMPY if style == "numpy" else _GOOGLE).match(words) if depth <= indent else None
            if found:
                current = found[1]
                parameters[current] = [found[2]] if style == "google" else []
            elif current:
                parameters[current].append(words)
        elif section == "sphinx" and words and current:
            parameters[current].append(words)
    return "\n".join(about).strip(), {name: " ".join(filter(None, said)) for name, said in parameters.items()}
