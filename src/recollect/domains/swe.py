"""Repairs in a copy of a repository: shell and file tools in the sandbox; success is that its tests pass."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.config import Config
from recollect.domains.built_in_world import with_empty_folder
from recollect.domains.domain import SYNTAX, Domain, Provision, finalize, reason
from recollect.domains.expert_texts import GIVE_UP
from recollect.domains.repair_changes import MOST_BYTES, SKIPPED, changed, fixed, named_data, noted, repaired, touched
from recollect.domains.required_tests import RunEvents, not_loaded
from recollect.domains.test_counts import SuiteCounts, tally
from recollect.domains.test_names import SourceTest
from recollect.domains.test_watch import EVENTS, FOUND, LOOK, SPOIL, WATCH, TestWatch
from recollect.rewards.domain_scoring import DomainScoring
from recollect.rewards.parts import JudgedTrajectory, text_of, words_in
from recollect.sandbox.sandbox_session import ProgramResult
from recollect.sandbox.sandbox_session import SandboxSession as Sandbox
from recollect.tasks.names import Split, names, values
from recollect.tools.tool_definition import Tool
from recollect.types import Action, BadInput, Task

if TYPE_CHECKING:
    from recollect.agents.session import Session

PROMPT = f"""Repair a program. You work in a copy of its repository. {SYNTAX}
Run the tests, read the code, edit it, and run the tests again. When they pass, finalize. Only changes of the sources \
count: the tests and the settings of their runner are put back as they were."""

TEST = "python -m unittest -q"
Files = Mapping[str, str]
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
    return await session.tools.open_tools.session()  # type: ignore[attr-defined]


async def prepare(task: Task, session: Session) -> None:
    """Copy the repository into the sandbox."""
    await _fill(await sandbox_of(session), files_of(task))


async def _fill(box: Sandbox, files: Mapping[str, str]) -> None:
    """Write files, every one."""
    for path, text in files.items():
        ran = await box.write(path, text)
        if ran.outcome != "ok":
            raise DoesNotFit(f"{path} cannot be written into the sandbox: {ran.err or ran.outcome}")


class DoesNotFit(RuntimeError):
    """A file of a repository does not fit."""


async def verify(task: Task, session: Session, answer: str) -> bool | None:
    """Whether the tests as they came pass in a fresh sandbox with what the attempt changed in the sources.

    Then they are run under watch (``assertion_watch.py``): an assertion that accepts wrong values too fails, unless it
    accepted them in the repository as it came. Then they are run spoilt: where one passes that does not in the
    repository as it came, something else than the tests decides. Nothing can be said about a program that is written
    in an empty folder.
    """
    if _starts_empty(task):
        return None
    files, test = files_of(task), str(task.fields.get("test") or TEST)
    box = await sandbox_of(session)
    found = await changed(box, files, piece=box.limits.output_kb * 512)
    if found is None:
        return False
    after = repaired(files, *found, test)
    try:
        real = await _run(session, after, test)
        if not _passed(real):
            return False
        watch = TestWatch.over({path: text for path, text in files.items() if fixed(path, test)})
        if watch is None:
            return not _is_runner(test) or bool((seen := tally(real.out + real.err)) and seen.passed)
        return await _watched(session, files, after, test, real, watch)
    except DoesNotFit:  # the attempt left no room, or a file where a folder was
        return False


async def _watched(
    session: Session, files: Files, after: Files, test: str, real: ProgramResult, watch: TestWatch
) -> bool:
    """Whether tests that pass also do so under watch, each that must run, and fail when they are spoilt."""
    guarded = named_data(files, test) | {path for path in files if fixed(path, test)}
    before = await _run(session, seen_files := {**files, **watch.files(LOOK)}, test, watch.folder)
    box = await sandbox_of(session)
    began = RunEvents.read(await noted(box, f"{watch.folder}/{EVENTS}"))
    rewritten = await touched(box, seen_files, guarded)
    watch = watch.without(await noted(box, f"{watch.folder}/{FOUND}"))
    watched = await _run(session, seen_files := {**after, **watch.files(WATCH)}, test, watch.folder)
    if not (_passed(watched) and tally(watched.out + watched.err) == tally(real.out + real.err)):
        return False
    box = await sandbox_of(session)
    if await touched(box, seen_files, guarded) - rewritten:
        return False
    hidden = not_loaded(files, test, began)
    must = began.entered | {one.place for one in hidden if not one.may_skip}
    if must - RunEvents.read(await noted(box, f"{watch.folder}/{EVENTS}")).entered:
        return False
    wrong = await _run(session, {**after, **watch.files(SPOIL)}, test, watch.folder)
    return _deserved(test, real, wrong, before, hidden)


def _passed(ran: ProgramResult) -> bool:
    return ran.outcome == "ok" and ran.code == 0


async def _run(session: Session, files: Mapping[str, str], test: str, first: str = "") -> ProgramResult:
    """Run the tests of a repository in a fresh sandbox, where neither home nor user site holds anything.

    ``first`` is a folder whose modules Python finds before others.
    """
    (await sandbox_of(session)).close()
    box = await sandbox_of(session)
    await _fill(box, files)
    path = f'export PYTHONPATH="$PWD/{first}${{PYTHONPATH:+:$PYTHONPATH}}"\n' if first else ""
    return await box.command(f"export HOME=/nonexistent PYTHONNOUSERSITE=1\n{path}{test}")


def _deserved(
    test: str, real: ProgramResult, wrong: ProgramResult, before: ProgramResult, hidden: Sequence[SourceTest]
) -> bool:
    """Whether passing means something: spoilt tests fail, and no test has gone or is skipped that was not before.

    ``hidden`` are the tests of modules that did not load before.
    """
    if wrong.outcome == "ok":
        return False
    seen, spoilt_now, spoilt_before = (tally(ran.out + ran.err) for ran in (real, wrong, before))
    spoilt_before = spoilt_before or (SuiteCounts(0, 0, 0) if hidden else None)  # a conftest that does not load
    if seen is None or spoilt_now is None or spoilt_before is None:
        return not _is_runner(test)
    skipped = spoilt_before.skipped + sum(one.may_skip for one in hidden)
    return (
        seen.passed > 0
        and seen.total >= max(spoilt_before.total, len(hidden))
        and seen.total == spoilt_now.total
        and seen.skipped <= skipped
        and seen.expected <= spoilt_before.expected + sum(one.may_fail for one in hidden)
        and spoilt_now.passed <= spoilt_before.passed
        and spoilt_now.skipped <= skipped
    )


def _is_runner(test: str) -> bool:
    return "pytest" in test or "unittest" in test


def _starts_empty(task: Task) -> bool:
    """Whether there is neither a repository nor a test."""
    return task.fields.get("files") == {} and not task.fields.get("test")


def asked(task: Task) -> str:
    """The request, and how the tests are run, if there are any."""
    if _starts_empty(task):
        return task.question
    return f"{task.question}\nTests: {task.fields.get('test') or TEST}"


# ---- the scripted expert ----


_FAILED = re.compile(r"FAILED|Traceback|Error\b|\b[1-9]\d* (?:failed|errors?)\b|exit status|not found|Stopped: ")


def swe_expert(task: Task, actions: list[Action]) -> str:
    """Run the tests, read each file concerned, edit it, run the tests again."""
    test = str(task.fields.get("test") or TEST)
    edits = task.fields.get("solution") or []
    if task.fields.get("files") == {}:  # a program is to be written, and a script cannot write one
        return ["list_files:", f"finalize: {GIVE_UP}"][min(len(actions), 1)]
    plan = [f"bash: {test}"]
    plan += [f"read_file: {path}" for path in dict.fromkeys(e["path"] for e in edits)]
    plan += [f"edit_file: {json.dumps({k: e[k] for k in ('path', 'old', 'new')})}" for e in edits]
    plan += [f"bash: {test}"] if edits else ["list_files:"]
    if len(actions) < len(plan):
        return plan[len(actions)]
    last = actions[-1]
    passed = bool(edits) and last.tool == "bash" and last.outcome == "ok" and not _FAILED.search(last.output)
    return "finalize: the tests pass" if passed else "finalize: not repaired"


# ---- made-up tasks ----


SIGNS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}


def make_task(rng: random.Random, split: Split) -> Task:
    """One wrong sign in a function of two, and the tests that show it."""
    name, other = rng.sample(names(split), 2)
    number = int(rng.choice(values(split)))
    right, wrong = rng.sample(sorted(SIGNS), 2)
    line = f"    return x {right} {number}"
    broken = f"    return x {wrong} {number}"
    points = rng.sample(range(2, 50), 3)
    checks = "".join(f"        self.assertEqual({name}({x}), {SIGNS[right](x, number)})\n" for x in points)
    files = {
        f"{name}_{other}.py": f"def {name}(x):\n{broken}\n\n\ndef {other}(x):\n    return x\n",
        "test_all.py": "import unittest\n\n"
        f"from {name}_{other} import {name}, {other}\n\n\n"
        "class All(unittest.TestCase):\n"
        f"    def test_{name}(self):\n{checks}\n"
        f"    def test_{other}(self):\n        self.assertEqual({other}({points[0]}), {points[0]})\n",
    }
    edit = {"path": f"{name}_{other}.py", "old": broken, "new": line}
    fields = {"files": files, "test": TEST, "solution": [edit]}
    return Task("", f"The function {name} in {name}_{other}.py is wrong. Repair it.", None, (), fields=fields)


OWN = Provision("an empty folder", with_empty_folder)
WORKING = frozenset({"bash", "python", "read_file", "write_file", "edit_file", "list_files", "grep", "write"})


def copied(task: Task, path: Path, cfg: Config) -> Task:
    """The task in a copy of a folder."""
    if not path.is_dir():
        raise BadInput(f"--context {path}: swe works in a copy of a folder")
    return replace(task, fields={**task.fields, "repo": str(path)})


def signs(reading: JudgedTrajectory, spoken: Sequence[str]) -> list[float]:
    """Code that was changed, and tests that were run."""
    changed = reading.used("edit_file", "write_file", "write")
    runs = [words_in(text_of(a["input"])) for a in reading.actions if a["tool"] in ("bash", "python")]
    tested = any({"test", "tests", "pytest", "unittest"} & set(words) for words in runs)
    return [float(changed > 0 or any({"sed", "patch", "git"} & set(words) for words in runs)), float(tested)]


SWE = Domain(
    *("swe", PROMPT, tools, verify, swe_expert, make_task),
    prepare=prepare,
    ask=asked,
    missing=missing,
    provision=OWN,
    runs_programs=True,
    context=copied,
    scoring=DomainScoring(WORKING, signs, gold_decides=False),
)
