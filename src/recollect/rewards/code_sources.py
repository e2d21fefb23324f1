"""Where the names come from that tests use without defining them: from the program, or from Python.

The tests alone decide. A program that defines what Python has, such as ``abs`` or ``math``, is not asked for it, unless
that is what is tested.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Sequence

from recollect.rewards.code_link import ALIASES, HELPERS

MODULES = {**{name: name for name in HELPERS}, **{alias: name for name, alias in ALIASES.items()}}
JUDGING = {
    **dict.fromkeys(["isclose", "isnan", "isinf", "isfinite", "fabs", "floor", "ceil", "sqrt", "fsum"], "math"),
    **dict.fromkeys(["Counter", "defaultdict", "deque", "OrderedDict"], "collections"),
    **dict.fromkeys(["allclose", "array_equal", "assert_allclose", "assert_array_equal"], "numpy"),
    "deepcopy": "copy",
    "Fraction": "fractions",
    "Decimal": "decimal",
    "reduce": "functools",
}  # what tests compare with; beside another function of the program's it is the judge's own
STORES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def sources_of(steps: Sequence[tuple[str, str]], entry_point: str) -> dict[str, str]:
    """Name → "" for the program, "=" for the program in the assignment of the entry point alone, else the module."""
    trees = [(kind, ast.parse(text)) for kind, text in steps]
    known = {name for _, tree in trees for name in _stored(tree)}
    used = [_loaded(tree) - known for _, tree in trees]
    loaded = set().union(*(_loaded(tree) for _, tree in trees))  # defined by the tests or not: they may do it later
    found = {name: place for name in sorted(loaded) if (place := _place(name, trees, used, entry_point))}
    if hasattr(builtins, entry_point):
        assigned = any(text.endswith(f" = {entry_point}") for _, text in steps)
        return {**found, entry_point: "=" if assigned else ""}
    unknown = set().union(*used) - set(dir(builtins)) - set(found)
    return found if entry_point or unknown else {**found, **dict.fromkeys(_tested_builtin(trees, used), "")}


def _place(name: str, trees: Sequence[tuple[str, ast.AST]], used: Sequence[set[str]], entry_point: str) -> str:
    """The module that a name is, or is from; empty for one of the program's and for built-ins."""
    if name == entry_point or hasattr(builtins, name):
        return ""
    if name in MODULES and all(_is_owner(name, tree) for _, tree in trees):
        return MODULES[name]
    place = JUDGING.get(name, "")
    others = [names - set(dir(builtins)) - set(MODULES) - set(JUDGING) for names in used if name in names]
    return place if entry_point or any(others) else ""


def _tested_builtin(trees: Sequence[tuple[str, ast.AST]], used: Sequence[set[str]]) -> set[str]:
    """The one built-in name that every test uses; of several, the one whose calls hold no other call."""
    tests = [(tree, names) for (kind, tree), names in zip(trees, used, strict=True) if kind != "setup"]
    shared = set(dir(builtins)).intersection(*(names for _, names in tests)) if tests else set()
    if len(shared) > 1:
        shared = shared.intersection(*(_innermost(tree) for tree, _ in tests))
    return shared if len(shared) == 1 else set()


def _innermost(tree: ast.AST) -> set[str]:
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    return {n.func.id for n in calls if isinstance(n.func, ast.Name) and not _calls_inside(n)}


def _calls_inside(call: ast.Call) -> bool:
    return any(isinstance(n, ast.Call) for n in ast.walk(call) if n is not call)


def _is_owner(name: str, tree: ast.AST) -> bool:
    """Whether a name is used for its attributes alone."""
    owners = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    return all(id(n) in owners for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name)


def _loaded(tree: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def _stored(tree: ast.AST) -> set[str]:
    """Names that statements define, import or assign."""
    nodes = list(ast.walk(tree))
    found = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    found |= {n.name for n in nodes if isinstance(n, STORES)} | {n.arg for n in nodes if isinstance(n, ast.arg)}
    imports = [alias for n in nodes if isinstance(n, ast.Import | ast.ImportFrom) for alias in n.names]
    return found | {(alias.asname or alias.name).partition(".")[0] for alias in imports}
