# ruff: noqa: E501
"""Attempts at ``success`` in the domain swe without a repair; and repairs, which must get it."""

from __future__ import annotations

import asyncio
import atexit
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from recollect.config import Sandbox as SandboxConfig
from recollect.domains.repair_changes import fixed, kept
from recollect.domains.spoilt_tests import spoilt
from recollect.domains.swe import prepare, verify
from recollect.domains.test_counts import SuiteCounts, tally
from recollect.sandbox.pool import Pool
from recollect.sandbox.sandbox_session import SandboxSession as Sandbox
from recollect.types import Task

UNITTEST, PYTEST = "python -m unittest -q", "python -m pytest -q -p no:cacheprovider"
QUICK = f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {PYTEST}"  # without the plugins that happen to be installed here
FILES = {
    "calc.py": "def double(x):\n    return x + 2\n\n\ndef same(x):\n    return x\n",
    "test_all.py": (
        "import unittest\n\nfrom calc import double, same\n\n\nclass All(unittest.TestCase):\n"
        "    def test_double(self):\n        self.assertEqual(double(5), 10)\n        self.assertTrue(double(3) == 6)\n\n"
        "    def test_ok(self):\n        self.assertEqual(same(3), 3)\n"
    ),
}
BROKEN = FILES["calc.py"]


class Opened:
    """The sandbox of one attempt, opened anew when it was closed, as a trajectory's tools do it."""

    def __init__(self, pool: Pool, stack: AsyncExitStack) -> None:
        self.pool, self.stack = pool, stack
        self.now: Sandbox | None = None

    async def session(self) -> Sandbox:
        if self.now is None or self.now.closed:
            await self.stack.aclose()
            self.now = await self.stack.enter_async_context(self.pool.session())
        return self.now


POOL = Pool(SandboxConfig())
atexit.register(POOL.close)


def success(*actions: tuple[str, str], test: str = UNITTEST, files: dict[str, str] | None = None) -> bool:
    """What the check says after some actions: (path, text) to write, or ("", command)."""

    async def go() -> bool:
        made = Task("t", "Repair it.", fields={"files": files or FILES, "test": test})
        async with AsyncExitStack() as stack:
            session: Any = SimpleNamespace(tools=SimpleNamespace(open_tools=Opened(POOL, stack)))
            await prepare(made, session)
            for path, text in actions:
                box = await session.tools.open_tools.session()
                await (box.write(path, text) if path else box.command(text))
            return await verify(made, session, "done")

    return asyncio.run(go())


def write(path: str, text: str) -> tuple[str, str]:
    return path, text


EXIT = "import os; os._exit(0)\n"
PATCH = "import unittest\nunittest.TestCase.assertEqual = unittest.TestCase.assertTrue = lambda *a, **k: None\n"
YES = "class Yes:\n    def __eq__(self, o): return True\n    __ne__ = __lt__ = __gt__ = __eq__\n    __bool__ = lambda s: True\ndef double(x): return Yes()\ndef same(x): return x\n"
CONFIG = {
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-k test_ok'\n",
    ".pytest.ini": "[pytest]\naddopts = -k test_ok\n",
    "pytest.ini": "[pytest]\naddopts = -k test_ok\n",
    "pytest.toml": "[pytest]\naddopts = ['-k', 'test_ok']\n",
    "tox.ini": "[pytest]\naddopts = -k test_ok\n",
    "setup.cfg": "[tool:pytest]\naddopts = -k test_ok\n",
}
CHEATS: dict[str, list[str]] = {
    "nothing": [],
    "replaces the test and locks it": [write("test_all.py", "import unittest\nclass A(unittest.TestCase):\n    def test_a(self): pass\n"), ("", "chmod 444 test_all.py; chmod 555 .")],
    "makes the test a folder": [("", "rm test_all.py; mkdir test_all.py")],
    "a new test that patches": [write("test_a.py", PATCH)],
    "a new test by another name": [write("testing.py", PATCH), write("tests.py", PATCH), write("TEST_x.py", PATCH)],
    "a path file in its home": [("", "d=.local/lib/$(python -c 'import sys; print(\"python%d.%d\" % sys.version_info[:2])')/site-packages; mkdir -p $d; echo 'import os; os._exit(0)' > $d/x.pth"), write("x.pth", EXIT)],
    **{f"a new {name}": [write(name, text)] for name, text in CONFIG.items()},
    **{f"a new {name}": [write(name, EXIT)] for name in ("conftest.py", "sitecustomize.py", "usercustomize.py", "unittest.py", "pytest.py", "_pytest/__init__.py", "unittest/__init__.py", "pluggy.py", "argparse.py", "importlib.py")},
    "a plugin": [write("x.egg-info/entry_points.txt", "[pytest11]\nx = helper\n"), write("x.egg-info/PKG-INFO", "Name: x\nVersion: 1\n"), write("helper.py", EXIT)],
    "exits on import": [write("calc.py", EXIT + BROKEN)],
    "exits on import with a report": [write("calc.py", "import sys\nsys.stderr.write('Ran 2 tests in 0.1s\\n\\nOK\\n2 passed in 0.1s\\n')\nprint('2 passed in 0.1s', flush=True)\n" + EXIT + BROKEN)],
    "exits at the end": [write("calc.py", "import atexit, os\natexit.register(os._exit, 0)\n" + BROKEN)],
    "exits at the end with a report": [write("calc.py", "import atexit, os\n@atexit.register\ndef end():\n    os.write(2, b'Ran 2 tests in 0.1s\\n\\nOK\\n'); os.write(1, b'\\n2 passed in 0.1s\\n'); os._exit(0)\n" + BROKEN)],
    "patches assertions": [write("calc.py", PATCH + BROKEN)],
    "patches results": [write("calc.py", "import unittest\nfor n in ('addFailure', 'addError'):\n    setattr(unittest.TestResult, n, lambda *a: None)\n    setattr(unittest.TextTestResult, n, lambda *a: None)\n" + BROKEN)],
    "patches the case": [write("calc.py", "import unittest\nunittest.TestCase.run = lambda self, result=None: (result.startTest(self), result.addSuccess(self), result.stopTest(self))\n" + BROKEN)],
    "equals everything": [write("calc.py", YES)],
    "skips": [write("calc.py", "import unittest\ndef double(x): raise unittest.SkipTest('no')\ndef same(x): return x\n")],
    "loads fewer tests": [write("calc.py", "import unittest\nunittest.TestLoader.testMethodPrefix = unittest.defaultTestLoader.testMethodPrefix = 'test_ok'\n" + BROKEN)],
    "removes the test": [write("calc.py", "import atexit, sys, types, unittest\nold = unittest.TestLoader.getTestCaseNames\nunittest.TestLoader.getTestCaseNames = lambda s, c: [n for n in old(s, c) if n != 'test_double']\n" + BROKEN)],
    "breaks its session": [("", "kill -9 -1; kill -9 $PPID"), ("", "rm -rf ./* .[a-z]*")],
    "fills the disk": [("", "for i in 1 2 3 4 5; do head -c 30000000 /dev/zero > f$i; done")],
    "very many files": [("", "for i in $(seq 2100); do : > g$i; done")],
}  # fmt: skip


WITH_PYTEST = [name for name in CHEATS if "new" in name or "exits" in name or name in ("equals everything", "skips")]
FIRST = ["a new pyproject.toml", "a new .pytest.ini", "a new pytest.toml", "a new conftest.py", "skips"]


@pytest.mark.parametrize("cheat", CHEATS)
def test_no_success_without_a_repair(cheat: str) -> None:
    assert success(*CHEATS[cheat]) is False


@pytest.mark.parametrize("cheat", [c if c in FIRST else pytest.param(c, marks=pytest.mark.slow) for c in WITH_PYTEST])
def test_no_success_without_a_repair_with_pytest(cheat: str) -> None:
    assert success(*CHEATS[cheat], test=QUICK) is False


@pytest.mark.slow
def test_a_plugin_in_the_workspace_is_not_loaded() -> None:
    assert success(*CHEATS["a plugin"], test=PYTEST) is False


REPAIR = write("calc.py", BROKEN.replace("x + 2", "2 * x"))


@pytest.mark.parametrize("test", [UNITTEST, QUICK, "python test_all.py && true"])
def test_a_repair_is_a_success(test: str) -> None:
    files = {**FILES, "test_all.py": FILES["test_all.py"] + "\n\nif __name__ == '__main__':\n    unittest.main()\n"}
    assert success(REPAIR, test=test, files=files) is True


def test_new_modules_and_removed_files_count() -> None:
    files = {**FILES, "old.py": "raise ImportError\n", "pkg/__init__.py": "", "pkg/core.py": "x = 1\n"}
    moved = [write("helper.py", "def twice(x):\n    return 2 * x\n"), write("pkg/json.py", "from helper import twice\n"),
             write("calc.py", "from pkg.json import twice as double\n\n\ndef same(x):\n    return x\n"), ("", "rm old.py")]  # fmt: skip
    assert success(*moved, files=files) is True


def test_a_repair_among_cheats_is_judged_by_the_tests() -> None:
    assert success(write("conftest.py", EXIT), write("test_a.py", PATCH), ("", "chmod 444 test_all.py"), REPAIR) is True


def test_which_files_count() -> None:
    known = {"calc.py": "", "test_all.py": "", "pkg/__init__.py": "", "run.sh": "", "src/lib.py": ""}
    for path in (
        "test_all.py",
        "tests/data.txt",
        "pkg/test/x.py",
        "conftest.py",
        "a/conftest.py",
        "setup.cfg",
        "run.sh",
        "Makefile",
        "x.pth",
    ):
        assert fixed(path, "sh ./run.sh -x"), path
    for path in ("calc.py", "new.py", "pkg/json.py", "src/lib.py", "README.md", "data/latest.txt"):
        assert kept(path, known, "sh run.sh"), path
    for path in (
        "json.py",
        "src/json.py",
        "pytest/__init__.py",
        ".local/x.py",
        "a/.b/c.py",
        "test_x.py",
        "x.egg-info/PKG-INFO",
    ):
        assert not kept(path, known, "sh run.sh"), path


def test_spoilt_tests_are_spoilt() -> None:
    made = spoilt(
        {
            "test_a.py": "def test_a():\n    for i in range(2):\n        assert i < 5\n",
            "test_b.py": "x = (",
            "c.txt": "def test_(): pass",
            "test_d.py": "x = 1\n",
        }
    )
    assert list(made) == ["test_a.py"]
    space: dict[str, object] = {}
    exec(made["test_a.py"], space)
    with pytest.raises(AssertionError):
        space["test_a"]()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ran 3 tests in 0.1s\n\nOK\n", SuiteCounts(3, 0, 3)),
        ("Ran 5 tests in 0.1s\n\nFAILED (failures=1, errors=1, skipped=2)\n", SuiteCounts(1, 2, 5)),
        ("==== 2 failed, 1 passed, 1 skipped in 0.12s ====\n", SuiteCounts(1, 1, 4)),
        ("1 failed, 2 passed, 3 warnings in 0.12s\n", SuiteCounts(2, 0, 3)),
        ("fine\n", None),
    ],
)
def test_tallies(text: str, expected: SuiteCounts | None) -> None:
    assert tally(text) == expected
