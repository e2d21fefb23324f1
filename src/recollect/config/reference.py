"""The configuration reference, made from the settings: ``python -m recollect.config.reference > docs/config.md``.

A key's meaning is the comment after its field, so there is one place to write it; names that may be chosen come from
the rule at the field. Nothing here needs torch.
"""

from __future__ import annotations

import ast
import inspect
import io
import json
import pkgutil
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any, get_type_hints

from recollect.config import schema
from recollect.config.schema.bounds import Choices

HEADER = """# Configuration

Every key, with its type, its default and its meaning. Defaults are those of the tree; a recipe sets its own values over
them, and `key=value` on the command line sets yours over both. An unknown key is refused with the nearest known one.

This page is generated from `src/recollect/config/schema/`: `python -m recollect.config.reference > docs/config.md`.
"""


TOP = "the tree itself"


@dataclass(frozen=True)
class Key:
    """One dotted key."""

    name: str
    type: str
    default: Any
    meaning: str
    choices: Choices | None = None

    def whole_meaning(self) -> str:
        """The meaning, and the names that may be chosen."""
        if self.choices is None:
            return self.meaning
        names = ", ".join(f"`{name}`" for name in self.choices.names())
        own = ", or `module:function`" if self.choices.own else ""
        many = "Any of" if self.type.startswith("list") else "One of"
        return f"{self.meaning}. {many if len(self.choices.names()) > 1 else 'Only'} {names}{own}"


@dataclass(frozen=True)
class Section:
    """The keys that one data class holds, under the place where it sits in the tree."""

    name: str
    about: str
    keys: list[Key]


@cache
def comments() -> dict[tuple[str, str], str]:
    """(class, field) → the comment that ends the field's line, or the one on the line above it."""
    found: dict[tuple[str, str], str] = {}
    below = [f"{schema.__name__}.{module.name}" for module in pkgutil.iter_modules(schema.__path__)]
    for name in (schema.__name__, *below):
        source = inspect.getsource(import_module(name))
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        read = [t for t in tokens if t.type == tokenize.COMMENT]
        at_line = {t.start[0]: t.string.lstrip("# ").rstrip() for t in read}
        alone = {t.start[0]: at_line[t.start[0]] for t in read if t.line.lstrip().startswith("#")}
        for kind in (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)):
            for item in kind.body:
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    ends = at_line.get(item.end_lineno or item.lineno) or alone.get(item.lineno - 1, "")
                    found[kind.name, item.target.id] = ends
    return found


def sections(tree: Any = None, prefix: str = "") -> Iterator[Section]:
    """Every section of the tree, from the top, with the defaults that hold at its place."""
    tree = schema.Config() if tree is None else tree
    kind, meanings = type(tree), comments()
    hints = get_type_hints(kind)
    keys, below = [], []
    for field in fields(tree):
        value, name = getattr(tree, field.name), f"{prefix}{field.name}"
        if is_dataclass(value):
            below.append((value, f"{name}."))
        else:
            about, chosen = meanings[kind.__name__, field.name], field.metadata.get("choices")
            keys.append(Key(name, _type_name(hints[field.name]), value, about, chosen))
    if keys:
        yield Section(prefix.rstrip("."), inspect.cleandoc(kind.__doc__ or ""), keys)
    for value, name in below:
        yield from sections(value, name)


def config_markdown() -> str:
    """The whole reference as Markdown."""
    out = [HEADER]
    for section in sections():
        out += [
            f"## {section.name or TOP}",
            "",
            section.about,
            "",
            "| key | type | default | meaning |",
            "|---|---|---|---|",
        ]
        out += [_row(key) for key in section.keys]
        out += [""]
    return "\n".join(out)


def _row(key: Key) -> str:
    return f"| `{key.name}` | {_cell(key.type)} | `{_default(key.default)}` | {_cell(key.whole_meaning())} |"


def _type_name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not hasattr(hint, "__args__") else str(hint)


def _default(value: Any) -> str:
    """A default as it is written on the command line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return value or "''"
    return json.dumps(value) if isinstance(value, list) else repr(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    print(config_markdown(), end="")
