"""What of a task's tests the program's own process gets: imports, and classes that hold data and nothing else.

Reference functions, expected values and test cases stay with the judge, where no program can look them up.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from copy import deepcopy

METHODS = frozenset(f"__{name}__" for name in ("init", "eq", "ne", "lt", "le", "gt", "ge", "hash"))
SHOWN = ("__repr__", "__str__")  # not sent: they decide nothing, and are full of text
BASES = frozenset(("object", "NamedTuple", "Exception", "ValueError", "TypeError", "KeyError", "RuntimeError"))
CALLS = frozenset(("isinstance", "super", "type", "hash", "len", "tuple", "list", "dict", "set", "field", "dataclass"))
VALUES = (None, True, False, 0, 1, "", ...)
NODES = (
    *(ast.ClassDef, ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.AnnAssign, ast.If, ast.IfExp),
    *(ast.Expr, ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.keyword, ast.List, ast.Tuple, ast.Dict, ast.Set),
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.Compare, ast.cmpop, ast.expr_context, ast.Constant),
    *(ast.Pass, ast.BinOp, ast.BitOr),
)


def shared(steps: Sequence[str], code: str) -> list[tuple[str, str]]:
    """(name of a class or empty, statements) of the tests' statements that the program needs; classes that it names."""
    named = _names(code)
    found: list[tuple[str, str]] = []
    for text in steps:
        for node in ast.parse(text).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                found.append(("", ast.unparse(node)))
            elif isinstance(node, ast.ClassDef) and node.name in named and holds_data(kept := _without_texts(node)):
                found.append((node.name, ast.unparse(kept)))
    return found


def is_import(text: str) -> bool:
    """Whether a statement imports, or gives another name to something."""
    return all(
        isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Assign) and isinstance(node.value, ast.Name))
        for node in ast.parse(text).body
    )


def holds_data(node: ast.ClassDef) -> bool:
    """Whether a class takes values and compares them, and computes nothing."""
    methods = [n for n in node.body if isinstance(n, ast.FunctionDef)]
    fits = all(isinstance(base, ast.Name) and base.id in BASES for base in node.bases)
    return fits and all(n.name in METHODS for n in methods) and all(_is_harmless(n, node.name) for n in ast.walk(node))


def _is_harmless(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Constant):
        return node.value in (*VALUES, name)
    if isinstance(node, ast.Call):
        own = isinstance(node.func, ast.Attribute) and node.func.attr in METHODS  # super().__init__(…)
        return own or (isinstance(node.func, ast.Name) and node.func.id in CALLS)
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.BitOr)  # of types
    return isinstance(node, NODES)


def _without_texts(node: ast.ClassDef) -> ast.ClassDef:
    """A copy without docstrings and what is only shown."""
    kept = deepcopy(node)
    kept.body = [n for n in kept.body if not (isinstance(n, ast.FunctionDef) and n.name in SHOWN)]
    inside: list[ast.ClassDef | ast.FunctionDef] = [n for n in kept.body if isinstance(n, ast.FunctionDef)]
    for inner in [kept, *inside]:
        inner.body = [n for n in inner.body if not _is_text(n)] or [ast.Pass()]
    return kept


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _names(code: str) -> set[str]:
    try:
        nodes = list(ast.walk(ast.parse(code)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    return {node.id for node in nodes if isinstance(node, ast.Name)}
