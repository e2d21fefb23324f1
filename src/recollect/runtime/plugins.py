"""Functions that settings name: a registered name, ``module:function`` or ``file.py:function``."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from recollect.runtime.error_text import error_text, named_error
from recollect.types import BadInput

OF_FILES = "recollect_user_"  # begins the name of a module that was loaded from a file; nobody else can import it
GIVEN = "python"  # before the colon: a function that this process was given, such as one of a notebook's cell
_given: dict[str, Callable[..., Any]] = {}


def give(name: str, function: Callable[..., Any]) -> str:
    """The name under which ``find`` finds a function of this process; a later one of the same name takes its place."""
    _given[name] = function
    return f"{GIVEN}:{name}"


def find(name: str, registry: Mapping[str, Callable[..., Any]], key: str) -> Callable[..., Any]:
    """The function behind a name; ``key`` is the configuration key to name in an error."""
    if name in registry:
        return registry[name]
    if ":" not in name:
        near = difflib.get_close_matches(name, registry, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise BadInput(
            f"{key}={name} is unknown; {hint}known: {', '.join(registry)}, or module:function, or file.py:function"
        )
    place, _, attribute = name.rpartition(":")
    if place == GIVEN:
        if attribute not in _given:
            raise BadInput(
                f"{key}={name} was defined in another Python process; resume the run from a program that defines it"
            )
        return _given[attribute]
    module = _from_file(Path(place).expanduser(), key) if place.endswith(".py") else _from_module(place, key)
    function = getattr(module, attribute, None)
    if function is None and getattr(registry.get(attribute), "__module__", "") == module.__name__:
        function = registry[attribute]  # it registered under another name than its own
    if not callable(function):
        raise BadInput(f"{key}={name}: {place} has no function {attribute}")
    return function


def _from_module(name: str, key: str) -> Any:
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        with redirect_stdout(sys.stderr):  # what a command prints is its result
            return importlib.import_module(name)
    except BaseException as error:  # a module may also call sys.exit
        raise BadInput(f"{key}: module {name} cannot be imported: {_why(error)}") from None


_LOADED: dict[tuple[Path, int, int], Any] = {}  # (file, its time, its size) → the module that it is


def _from_file(path: Path, key: str) -> Any:
    if not path.is_file():
        raise BadInput(f"{key}: no file {path}")
    path, about = path.absolute(), path.stat()
    known = path, about.st_mtime_ns, about.st_size
    if known not in _LOADED:
        _LOADED[known] = _executed(path, key)
    return _LOADED[known]


def _executed(path: Path, key: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"{OF_FILES}{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        with redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except BaseException as error:  # a file may also call sys.exit
        del sys.modules[spec.name]
        raise BadInput(f"{key}: {path} failed to load: {_why(error)}") from None
    return module


def _why(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"it calls sys.exit({_exit_code(error)}) when it is loaded"
    return named_error(error)


def _exit_code(error: SystemExit) -> str:
    return "" if error.code is None else error_text(error)
