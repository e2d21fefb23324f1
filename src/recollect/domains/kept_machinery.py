"""What tests rely on, remembered before the repository can change it; the text of this file runs in the sandbox.

Of unittest's classes and the tests' own every attribute counts, one more too; of pytest's classes and of modules, what
can be called.
"""

from __future__ import annotations

import builtins
import sys
from types import FunctionType, ModuleType
from typing import Any

MACHINERY = ("unittest", "_pytest", "pytest", "pluggy")
BUILT_IN = (
    *("isinstance", "issubclass", "len", "abs", "round", "sorted", "all", "any", "type", "repr", "getattr", "sum"),
    *("min", "max", "set", "list", "dict", "tuple", "str", "int", "float", "bool", "zip", "map", "next", "iter"),
    *("enumerate", "range", "hash", "AssertionError", "Exception"),
)
LAZY = frozenset(
    ("__annotations__", "__annotate__", "__annotations_cache__", "__abstractmethods__", "__doc__", "__dict__",
     "__weakref__", "__warningregistry__", "_abc_impl", "_classSetupFailed", "_class_cleanups", "tearDown_exceptions",
     "_getini_unknown_type", "fspath")
)  # fmt: skip
OF_MODULES = frozenset(("__name__", "__doc__", "__package__", "__loader__", "__spec__", "__file__", "__cached__",
                        "__builtins__", "__path__", "__conditional_annotations__"))  # fmt: skip
HOOKS = frozenset(("load_tests", "setUpModule", "tearDownModule", "setup_module", "teardown_module", "__getattr__"))
KINDS = (classmethod, staticmethod, property)
KEPT_PARTS: list[tuple[Any, str, Any, Any]] = []  # owner, name, value, code
KEPT_CLASSES: list[tuple[type, dict[str, Any], bool]] = []  # and whether every attribute counts
KEPT_MODULES: list[tuple[dict[str, Any], frozenset[str], bool]] = []  # globals, names that the source gives, any more
KEPT_HELPERS: list[tuple[dict[str, Any], dict[str, Any]]] = []  # globals, what the source defines or imports
SET_BY_TESTS: set[str] = set()  # attributes that the tests' source sets or patches


def remember() -> None:
    """Keep what the machinery is before anything of the repository is loaded."""
    if any("pytest" in word for word in getattr(sys, "orig_argv", [])):
        __import__("pytest")
    modules: list[Any] = [m for n, m in list(sys.modules.items()) if n.partition(".")[0] in MACHINERY]
    for module in modules:
        KEPT_PARTS.extend((module, name, v, code_of(v)) for name, v in vars(module).items() if callable(v))
        KEPT_MODULES.append((vars(module), frozenset(vars(module)), True))
    for kind in {v for m in modules for v in vars(m).values() if isinstance(v, type) and _is_machinery(v)}:
        keep_class(kind, whole=kind.__module__.startswith("unittest"))
    KEPT_PARTS.extend((builtins, name, getattr(builtins, name), None) for name in BUILT_IN)


def _is_machinery(kind: type) -> bool:
    return str(kind.__module__).partition(".")[0] in MACHINERY


def keep_class(kind: Any, whole: bool = True) -> None:
    """A class as it is now; of one that its runner fills later only functions count."""
    if isinstance(kind, type):
        held = dict(type.__dict__["__dict__"].__get__(kind))
        counted = [(n, v) for n, v in held.items() if n not in LAZY and (whole or callable(v) or isinstance(v, KINDS))]
        KEPT_CLASSES.append((kind, held, whole))
        KEPT_PARTS.extend((kind, name, value, code_of(value)) for name, value in counted)


def keep_module(held: dict[str, Any], given: frozenset[str], has_more: bool, patched: list[str]) -> None:
    """A module of the tests at its first line: the names that its source gives, and the attributes that it sets."""
    KEPT_MODULES.append((held, given, has_more))
    SET_BY_TESTS.update(patched)


def keep_helpers(held: dict[str, Any], defined: list[str]) -> None:
    """A module of the tests at its last line: what it defines and imports."""
    KEPT_HELPERS.append((held, {name: held[name] for name in defined if name in held}))


def code_of(value: Any) -> Any:
    """The code of a function or method."""
    inner = getattr(value, "__func__", value) if isinstance(value, (classmethod, staticmethod, FunctionType)) else None
    return inner.__code__ if isinstance(inner, FunctionType) else None


def machinery_changes() -> list[str]:
    """What is no longer what it was, or new."""
    moved = [
        (o.__name__, n) for o, n, v, code in KEPT_PARTS
        if vars(o).get(n) is not v or (code is not None and code_of(v) is not code)
    ]  # fmt: skip
    moved += [
        (k.__name__, n) for k, held, whole in KEPT_CLASSES for n in vars(k)
        if n not in held and (whole or n.startswith("__")) and not _is_lazy(n)
    ]  # fmt: skip
    moved += [(h.get("__name__"), n) for h, given, more in KEPT_MODULES for n in _added(h, given, more)]
    moved += [(h.get("__name__"), n) for h, was in KEPT_HELPERS for n, v in was.items() if h.get(n) is not v]
    return [f"{owner}.{name}" for owner, name in moved if name not in SET_BY_TESTS]


def _is_lazy(name: str) -> bool:
    """Whether Python or a runner gives the name later."""
    return name in LAZY or (name[:1] in "_@" and ("py" in name or "unittest_set" in name))


def _added(held: dict[str, Any], given: frozenset[str], has_more: bool) -> list[str]:
    """Names of a module that its source does not give."""
    new = [n for n in list(held) if n not in given and n not in OF_MODULES and not _is_lazy(n)]
    return [n for n in new if n in HOOKS or n in BUILT_IN or not (has_more or type(held[n]) is ModuleType)]


def own_changes(test: Any) -> list[str]:
    """Functions of a test's class that the test itself replaces."""
    if test is None or not hasattr(type(test), "__mro__"):
        return []
    known = {n for k in type(test).__mro__[:-1] for n, v in vars(k).items() if callable(v)} - SET_BY_TESTS
    held = getattr(test, "__dict__", {})
    return [f"self.{n}" for n in held if n in known and not n.startswith(("test", "_"))]
