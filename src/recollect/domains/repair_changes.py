"""What an attempt at a repair changed, as far as it counts: sources, and nothing that decides how tests run."""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import re
import shlex
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from importlib.machinery import PathFinder
from pathlib import PurePosixPath

from recollect.sandbox.sandbox_session import SandboxSession as Sandbox

MOST_BYTES = 8 << 20
SKIPPED = frozenset(("__pycache__", ".git", ".venv", "node_modules", ".mypy_cache", ".pytest_cache"))
_TESTS = re.compile(r"(^|/)(test[^/]*|[^/]*_tests?\.py|conftest\.py|tests?/.*)$", re.IGNORECASE)
_PYTEST = {f"{start}pytest.{end}" for start in ("", ".") for end in ("ini", "toml")}
_RUNNERS = _PYTEST | {"tox.ini", "tox.toml", "setup.cfg", "pyproject.toml", "noxfile.py", "makefile", "gnumakefile"}
_RUNNERS |= {"justfile", ".coveragerc", "sitecustomize.py", "usercustomize.py"}
_DATA = tuple(f".{end}" for end in re.findall(
    r"\w+", "json jsonl ndjson txt csv tsv yaml yml toml xml ini dat data golden expected snap out"
))  # fmt: skip
_PLUGINS = (".egg-info", ".dist-info", ".egg-link", ".pth", ".egg", ".pyc", ".so")


def fixed(path: str, test: str) -> bool:
    """Whether a file of the repository decides what is tested or how, so that it counts only as it came."""
    named = {PurePosixPath(word).as_posix() for word in _words(test)}
    return bool(_TESTS.search(path)) or _steers(path) or path in named


def named_data(files: Mapping[str, str], test: str) -> set[str]:
    """Data files that the tests' sources name, whole or with gaps (``f"golden/{name}.json"``, ``"*.csv"``)."""
    texts = {t for path, text in files.items() if path.endswith(".py") and fixed(path, test) for t in _texts(text)}
    names = [PurePosixPath(t).as_posix().removeprefix("/") for t in texts if t.lower().endswith(_DATA)]
    patterns = [n.lstrip("./") for n in names]
    data = [path for path in files if path.lower().endswith(_DATA)]
    return {path for path in data if any(p and fnmatchcase(f"/{path}", f"*/{p}") for p in patterns)}


def _texts(source: str) -> list[str]:
    """The texts in a Python source, with ``*`` for what is put into one."""
    try:
        nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError):
        return []
    plain = [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return [word for text in (*plain, *map(_filled, nodes)) for word in {text, *text.split()}]


def _filled(node: ast.AST) -> str:
    parts = node.values if isinstance(node, ast.JoinedStr) else []
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in parts)


def kept(path: str, known: Mapping[str, str], test: str) -> bool:
    """Whether a changed file counts as a part of the repair."""
    return not fixed(path, test) and (path in known or not (_hidden(path) or _stands_in(path, known)))


def _words(test: str) -> list[str]:
    try:
        return shlex.split(test)
    except ValueError:
        return test.split()


def _steers(path: str) -> bool:
    parts = path.lower().split("/")
    return parts[-1] in _RUNNERS or any(part.endswith(_PLUGINS) for part in parts)


def _hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))


def _stands_in(path: str, known: Mapping[str, str]) -> bool:
    """Whether a new module would be found in place of one of Python's or of an installed one."""
    parts = path.split("/")
    for depth, part in enumerate(parts):
        folder = "/".join(parts[:depth])
        if folder and f"{folder}/__init__.py" in known:
            return False  # inside a package of the repository it has another name
        name = part.partition(".")[0]
        if name in sys.stdlib_module_names or (name.isidentifier() and _installed(name)):
            return True
    return False


def _installed(name: str) -> bool:
    places = [place for place in sys.path if place and "site-packages" in place]
    return PathFinder.find_spec(name, places) is not None


async def changed(box: Sandbox, files: Mapping[str, str], piece: int) -> tuple[dict[str, str], set[str]] | None:
    """The texts that an attempt has written, and the files that it has removed; None when that cannot be told.

    Only regular files that are UTF-8 count. ``piece`` is how many bytes come out of the sandbox at once.
    """
    known = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in files.items()}
    listed = await box.file("changed_files", known=known, skipped=sorted(SKIPPED))
    if listed.outcome != "ok":
        return None
    told = json.loads(listed.out)
    if sum(told["changed"].values()) > MOST_BYTES:
        return None
    texts: dict[str, str] = {}
    for path, size in told["changed"].items():
        data = bytearray()
        while len(data) < size:
            ran = await box.file("read_bytes", path=path, start=len(data), count=piece)
            if ran.outcome != "ok" or not ran.out:
                return None
            data += base64.b64decode(ran.out)
        try:
            texts[path] = data.decode()
        except UnicodeDecodeError:
            continue
    return texts, set(told["missing"])


async def noted(box: Sandbox, path: str) -> str:
    """A text that a run has written in the sandbox; empty where there is none."""
    data = bytearray()
    while len(data) < MOST_BYTES:
        ran = await box.file("read_bytes", path=path, start=len(data), count=box.limits.output_kb * 512)
        if ran.outcome != "ok" or not ran.out:
            break
        data += base64.b64decode(ran.out)
    return data.decode(errors="replace")


async def touched(box: Sandbox, files: Mapping[str, str], guarded: set[str]) -> set[str]:
    """Which of some files a run has rewritten or removed; ``files`` are all that it began with."""
    known = {path: hashlib.sha256(text.encode()).hexdigest() for path, text in files.items()}
    listed = await box.file("changed_files", known=known, skipped=sorted(SKIPPED))
    told = json.loads(listed.out) if listed.outcome == "ok" else {"changed": (), "missing": ()}
    return guarded & {*told["changed"], *told["missing"]}


def repaired(files: Mapping[str, str], written: Mapping[str, str], removed: set[str], test: str) -> dict[str, str]:
    """The repository with what counts of an attempt."""
    data = named_data(files, test)
    left = {path: text for path, text in files.items() if path not in removed or path in data or fixed(path, test)}
    return {**left, **{p: text for p, text in written.items() if p not in data and kept(p, files, test)}}
