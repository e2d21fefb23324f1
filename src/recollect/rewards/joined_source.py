"""Modules of recollect as one program for the sandbox, where recollect itself is not."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path


def joined(modules: Sequence[str]) -> str:
    """The text of modules that need the standard library and each other alone, those that others need first."""
    body = [node for name in modules for node in ast.parse(_text(name)).body if not _between(node)]
    defined = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    twice = {name for name in defined if defined.count(name) > 1}
    assert not twice, f"modules that are joined define {', '.join(sorted(twice))} twice"
    return "from __future__ import annotations\n" + ast.unparse(ast.Module(body, []))


def _text(module: str) -> str:
    found = find_spec(module)
    assert found is not None
    return Path(str(found.origin)).read_text()


def _between(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("recollect", "__future__")
