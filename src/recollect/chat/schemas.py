"""Reading tool schemas: which parameters a tool has, and how text becomes its arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Schema = Mapping[str, Any]  # {"type": "function", "function": {"name", "description", "parameters"}}


def function(schema: Schema) -> Mapping[str, Any]:
    """The inner part of a schema."""
    inner: Mapping[str, Any] = schema.get("function", schema)
    return inner


def named(schemas: Sequence[Schema], *names: str) -> str:
    """The first of some names that a tool has, else the first of them."""
    known = [function(s)["name"] for s in schemas]
    return next((n for n in names if n in known), names[0])


def parameters(schemas: Sequence[Schema], name: str) -> dict[str, Mapping[str, Any]] | None:
    """The parameters that a tool must be given, or all if none must be; None if there is no such tool."""
    for schema in schemas:
        inner = function(schema)
        if inner["name"] == name:
            spec = inner.get("parameters") or {}
            known = dict(spec.get("properties") or {})
            return {k: known.get(k, {}) for k in spec.get("required") or known}
    return None


def only_parameter(schemas: Sequence[Schema], name: str, default: str) -> str:
    """The parameter that a bare text is given to, or a default where the tool is not known."""
    return next(iter(parameters(schemas, name) or {}), default)


def required(schemas: Sequence[Schema], name: str) -> bool:
    """True when a tool cannot be called without arguments."""
    return any(function(s)["name"] == name and (function(s).get("parameters") or {}).get("required") for s in schemas)


def loads(text: str) -> Any:
    """JSON of a text; everything that can be wrong with it is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def as_text(schemas: Sequence[Schema]) -> str:
    """Schemas as JSON, one per line."""
    return "\n".join(json.dumps(s, ensure_ascii=False) for s in schemas)


def as_list(schemas: Sequence[Schema]) -> str:
    """Tools as a list for people and small models: name, parameters with types, description."""
    lines = []
    for schema in schemas:
        inner = function(schema)
        spec = inner.get("parameters") or {}
        shown = [f"{n}: {p.get('type', 'any')}" for n, p in (spec.get("properties") or {}).items()]
        lines.append(f"- {inner['name']}({', '.join(shown)}): {inner.get('description', '').strip()}".rstrip(": "))
    return "\n".join(lines)
