"""Tests that must fail: the same tests, spoilt. Where they pass, something but the tests decides what passes.

Whatever a repair does to the test runner from inside (a patched assertion, an early exit, an object that equals
everything), it does to the spoilt tests as well.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

_WRONG = {
    "assertEqual": "1, 2",
    "assertNotEqual": "1, 1",
    "assertTrue": "False",
    "assertFalse": "True",
    "assertIs": "1, None",
    "assertIsNone": "1",
    "assertIsNotNone": "None",
    "assertIn": "1, []",
    "assertNotIn": "1, [1]",
    "assertIsInstance": "1, str",
    "assertAlmostEqual": "1, 2",
    "assertGreater": "1, 2",
    "assertGreaterEqual": "1, 2",
    "assertLess": "2, 1",
    "assertLessEqual": "2, 1",
    "assertListEqual": "[1], [2]",
    "assertDictEqual": "{1: 1}, {1: 2}",
    "assertCountEqual": "[1], [2]",
    "assertRegex": "'a', 'b'",
}  # assertions of unittest with arguments for which they must fail
_OPPOSITE = {ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt}
_METHODS = {"assertEqual": ast.Eq, "assertEquals": ast.Eq, "assertNotEqual": ast.NotEq, "assertGreater": ast.Gt,
            "assertLess": ast.Lt, "assertGreaterEqual": ast.GtE, "assertLessEqual": ast.LtE}  # fmt: skip


def spoilt(files: Mapping[str, str]) -> dict[str, str]:
    """The files of tests that hold Python tests, each test made to fail; empty when there is none."""
    made = {path: _spoil(text) for path, text in files.items() if path.endswith(".py")}
    return {path: text for path, text in made.items() if text}


def _spoil(text: str) -> str:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ""
    found = [n for n in ast.walk(tree) if isinstance(n, _FUNCTIONS) and n.name.startswith("test")]
    for function in found:
        end = _failing(function)
        function.body = [*_doubted(function.body), *end]
    return ast.unparse(ast.fix_missing_locations(tree)) if found else ""


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _failing(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    """The end of a spoilt test: every assertion that it uses fails, and then the test does."""
    called = [n.func for n in ast.walk(function) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    used = {f.attr: ast.unparse(f.value) for f in called if f.attr in _WRONG}
    lines = [f"{owner}.{name}({_WRONG[name]})" for name, owner in used.items()]
    tried = "".join(f"try:\n    {line}\nexcept AssertionError:\n    pass\nelse:\n    return\n" for line in lines)
    return ast.parse(f"{tried}assert 1 == 2\nraise AssertionError").body


def _doubted(statements: list[ast.stmt]) -> list[ast.stmt]:
    """Statements with doubts in place of comparisons."""
    return [new for old in statements for new in _doubt(old)]


def _doubt(node: ast.stmt) -> list[ast.stmt]:
    """Make a test return early, and so pass where it must not, at a comparison whose opposite holds too."""
    for name in ("body", "orelse", "finalbody"):
        inner = getattr(node, name, None)
        if isinstance(inner, list) and inner and not isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            setattr(node, name, _doubted(inner))
    sides = _sides(node)
    if sides is None:
        return [node]
    left, operator, right = sides
    text = f"_left, _right = ({ast.unparse(left)}), ({ast.unparse(right)})\n"
    holds, opposite = (_compared(kind) for kind in (operator, _OPPOSITE[operator]))
    text += f"if ({holds}) and ({opposite}):\n    return\n"
    text += "if _left == object() or _right == object():\n    return\n" if operator is ast.Eq else ""
    return ast.parse(text).body


def _compared(operator: type[ast.cmpop]) -> str:
    return ast.unparse(ast.Compare(ast.Name("_left"), [operator()], [ast.Name("_right")]))


def _sides(node: ast.stmt) -> tuple[ast.expr, type[ast.cmpop], ast.expr] | None:
    """The two sides of an assertion that compares."""
    if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare) and len(node.test.ops) == 1:
        operator = type(node.test.ops[0])
        return (node.test.left, operator, node.test.comparators[0]) if operator in _OPPOSITE else None
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        found = _METHODS.get(node.value.func.attr)
        if found is not None and len(node.value.args) >= 2:
            return node.value.args[0], found, node.value.args[1]
    return None
