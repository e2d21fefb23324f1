"""Repairs in a copy of a repository: shell and file tools in the sandbox; success is that its tests pass."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.config import Config
from recollect.domains.base import SYNTAX, Domain, finalize, reason
from recollect.domains.experts import swe_expert
from recollect.domains.experts.swe import TEST
from recollect.sandbox.session import Session as Sandbox
from recollect.tools.base import Tool
from recollect.types import BadInput, Task

if TYPE_CHECKING:
    from recollect.session import Session

PROMPT = f"""Repair a program. You work in a copy of its repository. {SYNTAX}
Run the tests, read the code, edit it, and run the tests again. When they pass, finalize. The tests themselves are put \
back as they were before they count."""

MOST_BYTES = 8 << 20
SKIPPED = frozenset({".git", "__pycache__", ".venv", "node_modules", ".mypy_cache", ".pytest_cache"})
_TESTS = re.compile(r"(^|/)(test_[^/]*|[^/]*_test\.py|tests?/.*|conftest\.py)$")
_STEERING = {"conftest.py", "sitecustomize.py", "usercustomize.py", "pytest.ini", "tox.ini", "setup.cfg"}
_PASSED = re.compile(r"\b[1-9]\d* passed\b|\bRan [1-9]\d* tests?\b")


NEEDED = "a swe task needs `files` (path → text), or `repo`, an existing folder"


def tools(cfg: Config) -> list[str | Tool]:
    """What the agent may call."""
    return ["bash", "read_file", "write_file", "edit_file", "list_files", "grep", reason, finalize]


def files_of(task: Task) -> dict[str, str]:
    """The repository's text files, by path: those in the task, or those of the folder that it names."""
    files, folder = task.fields.get("files"), _folder(task)
    if isinstance(files, dict):
        return {str(path): str(text) for path, text in files.items()}
    if folder is None:
        raise BadInput(f"{task.place or task.id}: {NEEDED}")
    return read_folder(folder)


def _folder(task: Task) -> Path | None:
    """The folder that a task names, if it is one."""
    repo = task.fields.get("repo") or (task.context if isinstance(task.context, str) else None)
    folder = Path(str(repo)).expanduser() if repo else None
    return folder if folder is not None and folder.is_dir() else None


def missing(task: Task, cfg: Config) -> str:
    """What a data row lacks."""
    return "" if isinstance(task.fields.get("files"), dict) or _folder(task) is not None else NEEDED


def read_folder(folder: Path) -> dict[str, str]:
    """The text files below a folder; others are left out, for a model can neither read nor edit them."""
    found: dict[str, str] = {}
    size = 0
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and not SKIPPED & set(p.relative_to(folder).parts)):
        try:
            text = path.read_bytes().decode()
        except (UnicodeDecodeError, OSError):
            continue
        size += len(text)
        if size > MOST_BYTES:
            raise BadInput(f"{folder} holds more than {MOST_BYTES >> 20} MB of text")
        found[str(path.relative_to(folder))] = text
    return found


async def sandbox_of(session: Session) -> Sandbox:
    """The sandbox of this attempt's tools."""
    if session.tools is None:
        raise RuntimeError("a swe task needs its tools")
    return await session.tools.opened.session()  # type: ignore[attr-defined]


async def prepare(task: Task, session: Session) -> None:
    """Copy the repository into the sandbox."""
    box = await sandbox_of(session)
    for path, text in files_of(task).items():
        await box.write(path, text)


async def verify(task: Task, session: Session, answer: str) -> bool:
    """Run the tests as they came, without files that would steer the test runner or stand in for a library."""
    box, files = await sandbox_of(session), files_of(task)
    for path, text in files.items():
        if _TESTS.search(path):
            await box.write(path, text)
    listed = await box.command("find . -type f -not -path '*/__pycache__/*' -printf '%P\\n'")
    for path in listed.out.splitlines():
        name = path.rpartition("/")[2]
        if path not in files and (name in _STEERING or name.partition(".")[0] in sys.stdlib_module_names):
            await box.command(f"rm -f -- {_quoted(path)}")
    test = str(task.fields.get("test") or TEST)
    ran = await box.command(test)
    runner = "pytest" in test or "unittest" in test
    return ran.outcome == "ok" and ran.code == 0 and (not runner or bool(_PASSED.search(ran.out + ran.err)))


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def asked(task: Task) -> str:
    """The request, and how the tests are run."""
    return f"{task.question}\nTests: {task.fields.get('test') or TEST}"


SWE = Domain("swe", PROMPT, tools, verify, swe_expert, prepare, asked, missing=missing)
