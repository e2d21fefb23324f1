"""What the source of a test module says: the names that it gives, the attributes that it sets, the tests it holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
PATCHING = frozenset(("patch", "object", "setattr", "delattr", "multiple", "dict"))
BEFORE_TESTS = frozenset(("setUp", "setUpClass", "asyncSetUp", "setup_method", "setup_class"))


@dataclass(frozen=True)
class ModuleNames:
    """Names of a module: all that its source gives, those that are only defined or imported, and attributes it sets."""

    names: frozenset[str]
    defined: frozenset[str]
    has_more: bool
    patched: frozenset[str]


@dataclass(frozen=True)
class SourceTest:
    """A test by its place (file, class and function), and whether its source may skip it or expects it to fail."""

    place: str
    may_skip: bool
    may_fail: bool = False


def is_test(node: ast.AST) -> bool:
    """Whether a function has the name of a test."""
    return isinstance(node, FUNCTIONS) and node.name.startswith("test")


def given_by(tree: ast.Module) -> ModuleNames:
    """What a module's source gives."""
    nodes = list(ast.walk(tree))
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    stored |= {n.name for n in nodes if isinstance(n, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and n.name}
    stored |= {name for n in nodes if isinstance(n, ast.Global) for name in n.names}
    dynamic = any(isinstance(n, ast.Name) and n.id in ("globals", "vars", "exec", "locals") for n in nodes)
    defined = _defined(nodes)
    return ModuleNames(
        frozenset(defined | stored),
        frozenset(_defined(tree.body) - stored),
        dynamic or "*" in defined,
        frozenset(_set_attributes(nodes)),
    )


def _defined(nodes: Sequence[ast.AST]) -> set[str]:
    """Names of functions, classes and imports."""
    aliases = [a for n in nodes if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names]
    named = {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    return named | {a.asname or a.name.partition(".")[0] for a in aliases}


def _set_attributes(nodes: list[ast.AST]) -> Iterator[str]:
    """Attributes that a source assigns, or names in a call that patches."""
    for node in nodes:
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            yield node.attr
        if isinstance(node, ast.Call) and _last_name(node.func) in PATCHING:
            texts = [n.value for a in node.args for n in ast.walk(a) if isinstance(n, ast.Constant)]
            yield from (t.rpartition(".")[2] for t in texts if isinstance(t, str))
            yield from (k.arg for k in node.keywords if k.arg)


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def source_tests(path: str, text: str, with_pytest: bool) -> list[SourceTest]:
    """The tests that a runner finds in a module: methods of test cases; with pytest functions and ``Test…`` too."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []
    given = {n.name for n in tree.body if isinstance(n, FUNCTIONS)} | _deleted(tree)
    if "load_tests" in given:
        return []
    classes = {n.name: n for n in tree.body if isinstance(n, ast.ClassDef) and n.name not in given}
    found = [_source_test(path, [], n) for n in tree.body if with_pytest and _runs(n)]
    for name, node in classes.items():
        if _is_case(node, classes) or (with_pytest and name.startswith("Test") and not _is_bare(node)):
            found += [_source_test(path, [node], inner) for inner in node.body if _runs(inner)]
    return found


def _deleted(tree: ast.Module) -> set[str]:
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Del)}


def _runs(node: ast.stmt) -> bool:
    """Whether a runner enters the function; it does not enter a fixture, and a generator is no test."""
    if not is_test(node) or any(isinstance(n, ast.Yield | ast.YieldFrom) for n in ast.walk(node)):
        return False
    return not any("fixture" in ast.dump(d) for d in getattr(node, "decorator_list", ()))


def _is_case(node: ast.ClassDef, classes: dict[str, ast.ClassDef], depth: int = 0) -> bool:
    """Whether a class is a test case, by the names of its bases."""
    if depth > 9 or _is_bare(node):
        return False
    bases = [_last_name(base) for base in node.bases]
    return any(b.endswith("TestCase") or (b in classes and _is_case(classes[b], classes, depth + 1)) for b in bases)


def _is_bare(node: ast.ClassDef) -> bool:
    """Whether a class says that it holds no tests."""
    names = {getattr(n, "name", "") for n in node.body}
    names |= {_last_name(t) for n in node.body if isinstance(n, ast.Assign) for t in n.targets}
    return bool({"__init__", "__new__", "__test__"} & names)


def _source_test(path: str, inside: list[ast.ClassDef], node: ast.stmt) -> SourceTest:
    name = ".".join([*(k.name for k in inside), getattr(node, "name", "")])
    around = [d for k in inside for d in k.decorator_list]
    around += [n for k in inside for n in k.body if getattr(n, "name", "") in BEFORE_TESTS]  # type: ignore[misc]
    text = "".join(ast.dump(part) for part in (*around, node)).lower()
    skips = "skip" in text or "xfail" in text or "pytestmark" in text
    return SourceTest(f"{path}::{name}", skips, "xfail" in text or "expectedfailure" in text)
