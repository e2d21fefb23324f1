"""Programs whose function is a method of a class ``Solution``."""

from __future__ import annotations

import ast

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def with_function(code: str, name: str) -> str:
    """A program with a function of that name, where it has a method of it instead. Each call has a new object."""
    try:
        body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return code
    methods = [_methods(node) for node in body if isinstance(node, ast.ClassDef) and node.name == "Solution"]
    if not any(name in found for found in methods) or name in _defined(body):
        return code
    return f"{code}\n\ndef {name}(*args, **named):\n    return Solution().{name}(*args, **named)\n"


def _methods(node: ast.ClassDef) -> set[str]:
    return {inner.name for inner in node.body if isinstance(inner, FUNCTIONS)}


def _defined(body: list[ast.stmt]) -> set[str]:
    functions = {node.name for node in body if isinstance(node, FUNCTIONS)}
    targets = [target for node in body if isinstance(node, ast.Assign) for target in node.targets]
    return functions | {target.id for target in targets if isinstance(target, ast.Name)}
