"""The statements of a task's tests, in order: what is a test, and what a test needs.

A test is an assertion, a statement that raises or calls a function of the tests that does, a test function in pytest's
style that nobody calls, and a test of a unittest.TestCase.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

Step = tuple[str, str, Any]  # (kind, source, expected): kind is setup, value or check
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
BLOCKS = (
    ast.If,
    ast.For,
    ast.While,
    ast.With,
    ast.Try,
    ast.Match,
)
RUN = (
    "import unittest as _unittest\n"
    "_result = _unittest.TestResult()\n"
    "_unittest.TestSuite([{case}({name!r})]).run(_result)\n"
    "assert _result.testsRun == 1 and _result.wasSuccessful() and not _result.skipped"
)


def steps_of(source: str, entry_point: str) -> list[Step]:
    """Statements in order, each a test or what a test needs; a function ``check(candidate)`` is taken apart."""
    try:
        body = [node for node in ast.parse(source).body if not _runs_all(node)]
    except SyntaxError as error:
        raise ValueError(f"code_reward: the task's tests are not Python: {error}") from None
    deciding = _deciding(body)
    steps: list[Step] = []
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == "check" and entry_point and len(node.args.args) == 1:
            steps.append(("setup", f"{node.args.args[0].arg} = {entry_point}", None))
            steps += [_step(inner, deciding) for inner in node.body]
        elif not (entry_point and ast.unparse(node) == f"check({entry_point})"):
            steps.append(_step(node, deciding))
    return steps + list(_uncalled(body, deciding))


def literal(node: ast.expr) -> tuple[bool, Any]:
    """(whether an expression is a literal, its value)."""
    try:
        return True, ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError):
        return False, None


def _step(node: ast.stmt, deciding: set[str]) -> Step:
    if isinstance(node, ast.Assert):
        test = node.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
            for asked, wanted in ((test.left, test.comparators[0]), (test.comparators[0], test.left)):
                known, value = literal(wanted)
                if known and not literal(asked)[0]:
                    return "value", ast.unparse(asked), value
        return "check", ast.unparse(node), None
    blocks = isinstance(node, BLOCKS) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
    tests = not isinstance(node, DEFINITIONS) and (_raises(node, ast.Assert) or (blocks and _decides(node, deciding)))
    return "check" if tests else "setup", ast.unparse(node), None


def _deciding(body: Sequence[ast.stmt]) -> set[str]:
    """Functions of the tests that assert or raise AssertionError, or call one that does."""
    found: set[str] = set()
    functions = [node for node in body if isinstance(node, FUNCTIONS)]
    while more := {f.name for f in functions if f.name not in found and _decides(f, found)}:
        found |= more
    return found


def _decides(node: ast.AST, deciding: set[str]) -> bool:
    called = {n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    return bool(called & deciding) or _raises(node, ast.Assert) or _raises(node, ast.Raise)


def _raises(node: ast.AST, kind: type[ast.stmt]) -> bool:
    return any(isinstance(n, kind) for n in ast.walk(node))


def _uncalled(body: Sequence[ast.stmt], deciding: set[str]) -> Iterator[Step]:
    """Tests that a runner would find: functions whose name begins with test, and those of test cases."""
    used = {node.id for statement in body for node in ast.walk(statement) if isinstance(node, ast.Name)}
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name not in used and _is_case(node):
            names = [n.name for n in node.body if isinstance(n, FUNCTIONS) and n.name.startswith("test")]
            yield from (("check", RUN.format(case=node.name, name=name), None) for name in names)
        elif isinstance(node, FUNCTIONS) and node.name in deciding - used and _is_found(node):
            later = isinstance(node, ast.AsyncFunctionDef)
            yield "check", f"import asyncio\nasyncio.run({node.name}())" if later else f"{node.name}()", None


def _is_found(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    asks = node.args.args or node.args.posonlyargs or node.decorator_list
    return node.name.startswith("test") and not asks


def _is_case(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).rpartition(".")[2].endswith("TestCase") for base in node.bases)


def _runs_all(node: ast.stmt) -> bool:
    """Whether a statement hands everything to a runner, by itself or where the file is run."""
    calls = ("unittest.main(", "pytest.main(", "sys.exit(pytest.main(")
    if isinstance(node, ast.If) and ast.unparse(node.test).replace('"', "'") == "__name__ == '__main__'":
        return all(map(_runs_all, node.body)) and not node.orelse
    return isinstance(node, ast.Expr) and ast.unparse(node).startswith(calls)
