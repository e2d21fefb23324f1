"""Tests whose comparisons and assertions are handed to a watch, which tries wrong values (``assertion_watch.py``)."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from recollect.domains.test_names import ModuleNames, given_by, is_test

OPERATORS = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Is: "is",
    ast.IsNot: "is not",
}
ARITHMETIC = {ast.Sub: "-", ast.Div: "/", ast.BitXor: "^"}  # those by which a test compares
RAISING = ("raises", "warns", "deprecated_call")
LOOKUPS = ("index", "count", "max", "min", "eq")
ANYTHING = "?"  # ends the place of what names mock.ANY


def watched(files: Mapping[str, str], watch: str) -> dict[str, str]:
    """The Python files among those of the tests, under a watch of that module name; empty when none holds a test."""
    trees = {path: _parsed(text) for path, text in files.items() if path.endswith(".py")}
    if not any(is_test(node) for tree in trees.values() for node in ast.walk(tree)):
        return {}
    return {path: _watched(path, tree, watch) for path, tree in trees.items() if tree.body}


def _parsed(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def _watched(path: str, tree: ast.Module, watch: str) -> str:
    given = given_by(tree)
    made = Handed(path, watch).visit(tree)
    first = next((i for i, node in enumerate(made.body) if not _comes_first(node)), len(made.body))
    made.body[first:first] = ast.parse(_loading(path.count("/"), watch) + "\n" + _begun(path, watch, given)).body
    made.body += ast.parse(f"{watch}.loaded({path!r}, globals(), {sorted(given.defined)!r})").body
    return ast.unparse(ast.fix_missing_locations(made))


def _begun(path: str, watch: str, given: ModuleNames) -> str:
    names, patched = sorted({*given.names, watch}), sorted(given.patched)
    return f"{watch}.module({path!r}, globals(), {names!r}, {given.has_more!r}, {patched!r})"


def _comes_first(node: ast.stmt) -> bool:
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return text or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def _loading(depth: int, watch: str) -> str:
    """Import the watch, also where a test command has set the path anew."""
    folder = ", ".join(["'..'"] * depth + [repr(f".{watch}")])
    place = (
        f"__import__('os').path.join(__import__('os').path.dirname(__import__('os').path.abspath(__file__)), {folder})"
    )
    return f"try:\n import {watch}\nexcept ImportError:\n __import__('sys').path.append({place})\n import {watch}"


class Handed(ast.NodeTransformer):
    """Hands what decides a test to the watch."""

    def __init__(self, path: str, watch: str) -> None:
        self.path, self.watch = path, watch
        self.scopes: list[ast.AST] = []  # the classes and functions around

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """A comparison, or a chain of them."""
        place = self._place(node)
        self.generic_visit(node)
        signs = [OPERATORS[type(operator)] for operator in node.ops]
        if len(signs) == 1:
            return self._call("compare", [place, ast.Constant(signs[0]), node.left, node.comparators[0]])
        if any(isinstance(n, ast.Await | ast.Yield | ast.YieldFrom | ast.NamedExpr) for n in ast.walk(node)):
            return node
        nothing = ast.arguments([], [], None, [], [], None, [])
        later: list[ast.expr] = [ast.Lambda(nothing, right) for right in node.comparators]
        words = " ".join(sign.replace(" ", "_") for sign in signs)
        return self._call("chain", [place, ast.Constant(words), node.left, *later])

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Arithmetic by which values are compared."""
        place = self._place(node)
        self.generic_visit(node)
        sign = ARITHMETIC.get(type(node.op))
        return self._call("combine", [place, ast.Constant(sign), node.left, node.right]) if sign else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """A call of an assertion."""
        place = self._place(node)
        self.generic_visit(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in LOOKUPS:
            return self._call("lookup", [place, ast.Constant(name), node.func, *node.args], node.keywords)
        fails = name == "fail" and ast.unparse(getattr(node.func, "value", node)) in ("self", "cls", "pytest")
        if not (name.startswith("assert") or name in RAISING or fails):
            return node
        return self._call("call", [place, ast.Constant(name), node.func, *node.args], node.keywords)

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        """A plain assertion."""
        self.generic_visit(node)
        node.test = self._call("truth", [node.test])
        return node

    def visit_If(self, node: ast.If) -> ast.stmt:
        """A condition."""
        self.generic_visit(node)
        node.test = self._call("doubt", [node.test])
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        """A denial."""
        self.generic_visit(node)
        node.operand = self._call("doubt", [node.operand]) if isinstance(node.op, ast.Not) else node.operand
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        """A function, which may be a test."""
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.stmt:
        """The same, awaited."""
        return self._function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt | list[ast.stmt]:
        """A class, which is remembered as it is defined."""
        self._inside(node)
        if any(not isinstance(scope, ast.ClassDef) for scope in self.scopes):
            return node
        return [node, ast.Expr(self._call("made", [ast.Name(node.name, ast.Load())]))]

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt:
        self._inside(node)
        if is_test(node) and not any(isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(node)):
            name = ".".join([*(getattr(scope, "name", "") for scope in self.scopes), node.name])
            first = node.args.args[0].arg if self.scopes and node.args.args else "None"
            begin = ast.parse(f"{self.watch}_begun = {self.watch}.begin({f'{self.path}::{name}'!r}, {first})").body
            end = ast.parse(f"{self.watch}.end({self.watch}_begun)").body
            node.body = [*begin, ast.Try(node.body, [], [], end)]
        return node

    def _inside(self, node: ast.AST) -> None:
        self.scopes.append(node)
        self.generic_visit(node)
        self.scopes.pop()

    def _place(self, node: ast.expr) -> ast.Constant:
        names = {
            n.id if isinstance(n, ast.Name) else n.attr
            for n in ast.walk(node)
            if isinstance(n, ast.Name | ast.Attribute)
        }
        return ast.Constant(f"{self.path}:{node.lineno}:{node.col_offset}{ANYTHING if 'ANY' in names else ''}")

    def _call(self, name: str, args: list[ast.expr], named: list[ast.keyword] | None = None) -> ast.Call:
        return ast.Call(ast.Attribute(ast.Name(self.watch, ast.Load()), name, ast.Load()), args, named or [])
