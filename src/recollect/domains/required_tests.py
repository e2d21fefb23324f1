"""Which tests must have run: those that did in the repository as it came, and those of modules that did not load."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from recollect.domains.test_names import SourceTest, source_tests

_SELECTS = re.compile(
    r"(^|\s)(-k|--deselect|--ignore|--lf|--ff|--maxfail|--exitfirst|-x|-f|--failfast|-m(?=\s+['\"]))|::"
)


@dataclass(frozen=True)
class RunEvents:
    """What the watch has written down: modules begun and loaded, tests entered."""

    begun: frozenset[str] = frozenset()
    loaded: frozenset[str] = frozenset()
    entered: frozenset[str] = frozenset()

    @classmethod
    def read(cls, text: str) -> RunEvents:
        """Events, one on each line."""
        pairs = [line.partition(" ") for line in text.splitlines()]
        return cls(
            *(frozenset(name for what, _, name in pairs if what == kind) for kind in ("begun", "loaded", "entered"))
        )


def not_loaded(tests: Mapping[str, str], test: str, before: RunEvents) -> list[SourceTest]:
    """The tests, by their source, of modules that the command chose and that did not load."""
    missed = before.begun - before.loaded
    if not before.begun or any(not _is_module(path, test) for path in missed):  # a conftest or package failed
        missed |= {path for path in tests if _is_module(path, test) and _is_chosen(path, tests, test)} - before.loaded
    found = [t for path in sorted(missed & set(tests)) for t in source_tests(path, tests[path], "pytest" in test)]
    named = _named(found, set(re.split(r"[\s.:/]+", test)))
    return named or ([] if _SELECTS.search(test) else found)


def _named(found: list[SourceTest], words: set[str]) -> list[SourceTest]:
    """Those whose function, or else whose class, a command names."""
    names = [(one, one.place.rpartition("::")[2].split(".")) for one in found]
    by_name = [one for one, parts in names if parts[-1] in words]
    return by_name or [one for one, parts in names if words & set(parts[:-1])]


def _is_module(path: str, test: str) -> bool:
    """Whether a runner looks for tests in a file."""
    name = PurePosixPath(path).name
    return name.endswith(".py") and (
        name.startswith("test_" if "pytest" in test else "test") or name.endswith("_test.py")
    )


def _is_chosen(path: str, tests: Mapping[str, str], test: str) -> bool:
    """Whether a command that names files or folders names this one; unittest looks into packages alone."""
    words = {PurePosixPath(word.partition("::")[0]).as_posix() for word in test.split()}
    around = [str(folder) for folder in PurePosixPath(path).parents][:-1]
    chosen = {word for word in words if any(p == word or p.startswith(f"{word}/") for p in tests)}
    packages = all(f"{folder}/__init__.py" in tests or folder in words for folder in around)
    return (not chosen or bool(chosen & {path, *around})) and ("pytest" in test or packages)
