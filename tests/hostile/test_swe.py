# ruff: noqa: E501
"""Attempts at ``success`` in the domain swe without a repair; and repairs, which must get it."""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Iterable
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from recollect.config import Sandbox as SandboxConfig
from recollect.domains.repair_changes import fixed, kept
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


def some(names: Iterable[str], count: int) -> list[Any]:
    """Names for parameters: the first few in the quick suite, the others in the slow one."""
    return [pytest.param(n, marks=() if i < count else pytest.mark.slow) for i, n in enumerate(names)]


BAD = "def f(x):\n    return x + 1\n\n\ndef pair(x):\n    return (x, x)\n\n\ndef strict(x):\n    return x\n\n\nclass Bad(ValueError):\n    pass\n"
GOOD = "def f(x):\n    return 2 * x\n\n\ndef pair(x):\n    return (x, 2 * x)\n\n\nclass Bad(ValueError):\n    pass\n\n\ndef strict(x):\n    if x < 0:\n        raise Bad('negative')\n    return x\n"
HEAD = "import math\nimport operator\nimport unittest\nimport lib\nfrom lib import f, pair, strict, Bad\n\ndef check(a, b):\n    assert a == b, (a, b)\n\nclass All(unittest.TestCase):\n    def same(self, a, b):\n        if a != b:\n            self.fail('different')\n"


def repo(*lines: str, head: str = HEAD, source: str = BAD) -> dict[str, str]:
    """A repository with one test for each line."""
    body = "".join(
        f"    def test_{i}(self):\n" + "".join(f"        {part}\n" for part in line.split("\n"))
        for i, line in enumerate(lines)
    )
    return {"lib.py": source, "test_lib.py": head + body}


PLAIN_STYLES = (
    "self.assertEqual(f(5), 10)", "self.assertTrue(f(5) == 10)", "assert f(5) == 10", "assert f(5) == 10 and f(6) == 12", "check(f(5), 10)", "self.same(f(5), 10)",
    "self.assertIn(f(5), [9, 10])", "assert f(5) in (9, 10)", "self.assertAlmostEqual(f(5), 10)", "self.assertAlmostEqual(f(5), 10, delta=0.5)", "assert abs(f(5) - 10) < 1e-6", "assert not f(5) != 10",
    "assert 9 < f(5) < 11", "self.assertGreater(f(5), 9)\nself.assertLess(f(5), 11)", "ok = f(5) == 10\nself.assertTrue(ok)", "self.assertFalse(f(5) != 10)", "assert [f(i) for i in (1, 5)] == [2, 10]", "assert all(f(i) == 2 * i for i in range(5))",
    "self.assertListEqual([f(5)], [10])", "self.assertDictEqual({'a': f(5)}, {'a': 10})", "self.assertCountEqual([f(5), f(6)], [12, 10])", "if f(5) != 10:\n    raise AssertionError",
)  # fmt: skip
LIES = """
def yes(*a): return True
def mine(self, *a): return self
def make(base):
    names = {f'__{n}__': yes for n in 'eq lt gt le ge bool contains'.split()}
    names |= {f'__{n}__': mine for n in 'sub rsub add radd abs round'.split()} | {'__hash__': lambda s: 1, '__ne__': lambda *a: False}
    return type('Num', (base,), names)
"""
FALSE_VALUES = {
    "an object that equals everything": LIES + "def f(x): return make(object)()\n",
    "a float that equals everything": LIES + "def f(x): return make(float)(9.5)\n",
    "an int that equals everything": LIES + "def f(x): return make(int)(10 ** 9)\n",
    "a str that equals everything": LIES + "def f(x): return make(str)('a')\n",
    "all but a bare object": LIES + "K = make(float)\nK.__eq__ = lambda s, o: type(o) is not object\nK.__ne__ = lambda s, o: type(o) is object\ndef f(x): return K(9.5)\n",
    "only numbers": LIES + "K = make(float)\nK.__eq__ = lambda s, o: isinstance(o, (int, float))\ndef f(x): return K(9.5)\n",
    "only the first time": "class K(float):\n    n = 0\n    def __eq__(self, o):\n        self.n += 1\n        return self.n == 1\n    def __ne__(self, o): return not self == o\n    __hash__ = lambda s: 1\n    __sub__ = lambda s, o: 0.0\n    __lt__ = __gt__ = __le__ = __ge__ = __eq__\ndef f(x): return K(77)\n",
    "what it is compared with": "class K(float):\n    v = None\n    def __eq__(self, o):\n        self.v = o\n        return True\n    def __ne__(self, o): return False\n    __hash__ = lambda s: 1\n    __sub__ = lambda s, o: 0.0\n    __lt__ = __gt__ = __le__ = __ge__ = __eq__\ndef f(x): return K(77)\n",
}  # fmt: skip
REST = "def pair(x): return (x, x)\ndef strict(x): return x\nclass Bad(ValueError): pass\n"
SEQUENCE_LIES = "class L({base}):\n    __eq__ = lambda s, o: True\n    __ne__ = lambda s, o: False\n    __hash__ = lambda s: 1\n    __contains__ = lambda s, o: True\ndef f(x): return L()\n"


def source_of(cheat: str) -> tuple[str, str]:
    return write("lib.py", cheat + REST)


@pytest.mark.parametrize("cheat", some(FALSE_VALUES, 3))
def test_values_that_equal_everything_are_found_in_every_style(cheat: str) -> None:
    """One repository for each style would be slow: every style is a test, and none of them may pass alone."""
    passed = [line for line in STYLES_TRIED if success(source_of(FALSE_VALUES[cheat]), files=repo(line))]
    assert passed == []


STYLES_TRIED = (
    *PLAIN_STYLES[:5],
    "self.assertIn(f(5), [9, 10])",
    "self.assertAlmostEqual(f(5), 10)",
    "assert abs(f(5) - 10) < 1e-6",
    "self.same(f(5), 10)",
)


@pytest.mark.parametrize("line", some(PLAIN_STYLES, 6))
def test_a_float_that_equals_everything_is_found(line: str) -> None:
    files = repo(line)
    for cheat in ("a float that equals everything", "all but a bare object"):
        assert success(source_of(FALSE_VALUES[cheat]), files=files) is False


@pytest.mark.parametrize("base", ["list", "dict", "set", "tuple", "str", "object"])
def test_containers_that_equal_everything_are_found(base: str) -> None:
    lines = {"list": "[1, 10]", "dict": "{'a': 10}", "set": "{10}", "tuple": "(1, 10)", "str": "'ten'", "object": "10"}
    for line in (f"self.assertEqual(f(5), {lines[base]})", f"assert f(5) == {lines[base]}", "self.assertIn(10, f(5))"):
        assert success(source_of(SEQUENCE_LIES.format(base=base)), files=repo(line)) is False, line


PATCHES = {
    "assertRaises": "with self.assertRaises(Bad):\n    strict(-1)",
    "assertRaisesRegex": "with self.assertRaisesRegex(Bad, 'neg'):\n    strict(-1)",
    "assertSetEqual": "self.assertSetEqual({f(5)}, {10})",
    "assertTupleEqual": "self.assertTupleEqual(pair(3), (3, 6))",
    "assertSequenceEqual": "self.assertSequenceEqual(pair(3), (3, 6))",
    "assertMultiLineEqual": "self.assertMultiLineEqual(str(f(5)), '10')",
    "assertNotAlmostEqual": "self.assertNotAlmostEqual(f(5), 6)",
    "assertNotIsInstance": "self.assertNotIsInstance(f(5), int)",
    "assertEqual": "self.assertEqual(f(5), 10)",
    "assertTrue": "self.assertTrue(f(5) == 10)",
    "_baseAssertEqual": "self.assertEqual(f(5), 10)",
    "fail": "self.same(f(5), 10)",
    "failureException": "self.same(f(5), 10)",
}
HOWS = {
    "for all": "unittest.TestCase.{name} = fake",
    "by its code": "unittest.TestCase.{name}.__code__ = (lambda *a, **k: MANAGER).__code__\nunittest.TestCase.{name}.__globals__['MANAGER'] = Manager()",
    "in the test's class": "def late():\n    for k in unittest.TestCase.__subclasses__(): k.{name} = fake",
    "in the test itself": "def late():\n    g = sys._getframe()\n    while g:\n        if isinstance(g.f_locals.get('self'), unittest.TestCase): g.f_locals['self'].{name} = fake\n        g = g.f_back",
    "but for a canary": "old = unittest.TestCase.{name}\nunittest.TestCase.{name} = lambda s, *a, **k: old(s, *a, **k) if a in ((1, 2), (False,), ([1], [2])) or s.__class__.__name__ != 'All' else fake(s)",
}
FAKED = "import sys, unittest\nclass Manager:\n    __enter__ = lambda s: s\n    __exit__ = lambda s, *a: True\nfake = lambda *a, **k: Manager()\nlate = lambda: None\n{how}\n"
CALLING = "def f(x):\n    late()\n    return x + 1\ndef pair(x):\n    late()\n    return (x, x)\ndef strict(x):\n    late()\n    return x\nclass Bad(ValueError): pass\n"


@pytest.mark.parametrize("name", some(PATCHES, 4))
def test_patched_assertions_are_found(name: str) -> None:
    lines = (PATCHES[name], PATCHES[name])
    for how in ("for all", "but for a canary") if name != "failureException" else ("for all",):
        cheat = FAKED.format(how=HOWS[how].format(name=name)) + CALLING
        cheat = cheat.replace("= fake", "= type('E', (BaseException,), {})") if name == "failureException" else cheat
        assert success(write("lib.py", cheat), files=repo(*lines)) is False, how


@pytest.mark.parametrize("how", some(HOWS, 2))
def test_assertions_patched_in_other_ways_are_found(how: str) -> None:
    for name in ("assertEqual", "assertSetEqual", "assertRaises"):
        lines = (PATCHES[name], f"{PATCHES[name]}\n{PATCHES[name]}")
        assert (
            success(write("lib.py", FAKED.format(how=HOWS[how].format(name=name)) + CALLING), files=repo(*lines))
            is False
        ), name


PYTEST_HEAD = "import pytest\nfrom lib import f, pair, strict, Bad\n\nclass TestAll:\n"
OF_PYTEST = {
    "raises": ("import pytest\n" + FAKED.format(how="pytest.raises = fake") + CALLING, "with pytest.raises(Bad):\n    strict(-1)"),
    "raises by its code": ("import pytest, _pytest.python_api as p, contextlib\n" + FAKED.format(how="m = sys.modules[pytest.raises.__module__]\nm.RaisesContext = m.RaisesExc = lambda *a, **k: Manager()") + CALLING, "with pytest.raises(Bad):\n    strict(-1)"),
    "approx": ("import pytest\nclass A:\n    def __init__(s, *a, **k): pass\n    __eq__ = lambda s, o: True\npytest.approx = A\n" + FAKED.format(how="") + CALLING, "assert f(5) == pytest.approx(10)"),
    "approx's equality": ("import pytest\ntype(pytest.approx(1)).__eq__ = lambda s, o: True\n" + FAKED.format(how="") + CALLING, "assert f(5) == pytest.approx(10)"),
    "a float": (FALSE_VALUES["a float that equals everything"] + REST, "assert f(5) == pytest.approx(10)"),
    "a float with arithmetic": ("class F(float):\n    __sub__ = __rsub__ = lambda s, o: 0.0\ndef f(x): return F(77)\n" + REST, "assert f(5) == pytest.approx(10)"),
    "an error of any class": ("class M(type):\n    __subclasscheck__ = __instancecheck__ = lambda *a: True\nclass Bad(ValueError, metaclass=M): pass\ndef f(x): return x + 1\ndef strict(x): raise KeyError\ndef pair(x): return (x, x)\n", "with pytest.raises(Bad):\n    strict(-1)"),
    "fail": ("import pytest\npytest.fail = lambda *a, **k: None\n" + FAKED.format(how="") + CALLING, "if f(5) != 10:\n    pytest.fail('no')"),
}  # fmt: skip


@pytest.mark.parametrize("name", some(OF_PYTEST, 3))
def test_patches_of_pytest_are_found(name: str) -> None:
    source, line = OF_PYTEST[name]
    files = repo(line, head=PYTEST_HEAD)
    assert success(write("lib.py", source), test=QUICK, files=files) is False
    assert success(write("lib.py", GOOD), test=QUICK, files=files) is True


FLOAT = FALSE_VALUES["a float that equals everything"] + REST
OTHERS = {
    **{line: (FLOAT, line) for line in ("assert list({10: 1}.items()) == [(f(5), 1)]", "self.assertEqual((1, 1, f(5)), (1, 1, 10))", "assert [10].index(f(5)) == 0", "assert [10].count(f(5)) == 1", "assert operator.eq(f(5), 10)", "assert max(f(5), 10) == 10 and min(f(5), 10) == 10")},
    "an error of any class": ("class M(type):\n    __subclasscheck__ = __instancecheck__ = lambda *a: True\nclass Bad(ValueError, metaclass=M): pass\ndef f(x): return x\ndef strict(x): raise KeyError\ndef pair(x): return x\n", "with self.assertRaises(Bad):\n    strict(-1)"),
    "the call form": ("class M(type):\n    __subclasscheck__ = lambda *a: True\nclass Bad(ValueError, metaclass=M): pass\ndef f(x): return x\ndef strict(x): raise KeyError\ndef pair(x): return x\n", "self.assertRaises(Bad, strict, -1)"),
    "an instance of anything": ("class M(type):\n    __instancecheck__ = lambda *a: True\nclass Bad(ValueError, metaclass=M): pass\ndef f(x): return x\ndef strict(x): return 1\ndef pair(x): return x\n", "self.assertIsInstance(strict(1), Bad)"),
    "built-ins": ("import builtins\nbuiltins.all = lambda x: True\n" + BAD, "assert all(f(i) == 2 * i for i in range(3))"),
    "isinstance": ("import builtins\nbuiltins.isinstance = lambda *a: True\n" + BAD, "self.assertIsInstance(f(1), str)"),
    "a call that is recorded": ("class Y:\n    __eq__ = lambda s, o: True\ndef f(x): x(Y())\n" + REST, "from unittest.mock import Mock\nm = Mock()\nf(m)\nm.assert_called_with(10)"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_ways_to_pass_are_found(name: str) -> None:
    source, line = OTHERS[name]
    assert success(write("lib.py", source), files=repo(line)) is False


RAISES = (
    "with self.assertRaises(Bad):\n    strict(-1)",
    "with self.assertRaisesRegex(Bad, 'neg'):\n    strict(-1)",
    "self.assertRaises(Bad, strict, -1)",
    "with self.assertRaises(Exception):\n    strict(-1)",
    "with self.assertRaises((KeyError, Bad)) as seen:\n    strict(-1)\nself.assertEqual(str(seen.exception), 'negative')",
)


def test_repairs_pass_in_every_style() -> None:
    more = (
        "self.assertTupleEqual(pair(3), (3, 6))",
        "self.assertIsNone(None)",
        "self.assertIsInstance(f(1), int)",
        "from unittest.mock import ANY, Mock\nself.assertEqual(pair(3), (ANY, 6))\nassert pair(3) == (3, ANY)\nm = Mock()\nm(f(5))\nm.assert_called_once_with(10)\nm.assert_called_with(ANY)",
        "for i in range(3):\n    with self.subTest(i=i):\n        self.assertEqual(f(i), 2 * i)",
        "if f(1) == 2:\n    return\nself.fail()",
        "with self.assertLogs() as seen:\n    import logging; logging.warning('x')\nself.assertIn('x', seen.output[0])",
        "self.assertRegex(str(f(5)), '1.')",
        "self.assertNotEqual(f(5), 11)",
    )
    assert success(write("lib.py", GOOD), files=repo(*PLAIN_STYLES, *RAISES, *more)) is True


USUAL = """import unittest, asyncio, io
from unittest import mock
from lib import f, pair, strict, Bad
import lib
class Base(unittest.TestCase):
    limit = 3 if 2 > 1 else 4
    def setUp(self):
        assert f is not None
        self.x = 5
        self.assertTrue(self.x == 5)
    def assertDouble(self, x, y):
        self.assertEqual(y, 2 * x, msg=f"{x}")
class T(Base):
    @classmethod
    def setUpClass(cls): cls.y = 1
    def test_a(self): self.assertDouble(5, f(5))
    @mock.patch("lib.f", return_value=3)
    def test_b(self, m):
        self.assertEqual(lib.f(1), 3)
        m.assert_called_once_with(1)
        m.assert_has_calls([mock.call(1)])
    @mock.patch("builtins.print")
    def test_c(self, p):
        print("x"); p.assert_called_with("x")
        self.assertEqual(f(1), 2)
    @unittest.skip("no")
    def test_d(self): self.fail()
    @unittest.expectedFailure
    def test_e(self): self.assertEqual(1, 2)
    def test_f(self):
        with mock.patch("sys.stdout", new=io.StringIO()) as out:
            print(f(5), end="")
        self.assertEqual(out.getvalue(), "10")
        self.assertMultiLineEqual("a\\n" * 3000 + str(f(1)), "a\\n" * 3000 + "2")
        self.assertEqual(list(range(20000)), list(range(f(10000))))
        i = 0
        while i < 50000: i += 1
        with self.assertRaises(AssertionError):
            self.assertEqual(f(5), 11)
        with self.assertRaises(AssertionError):
            assert f(5) == 11
        with self.assertWarns(DeprecationWarning):
            import warnings; warnings.warn("x", DeprecationWarning)
        m = mock.MagicMock(); m.f.return_value = f(2)
        assert m.f() == 4 and m == m
        self.assertEqual(m.x, m.x)
        self.assertIsInstance(m, mock.Mock)
class A(unittest.IsolatedAsyncioTestCase):
    async def test_a(self):
        await asyncio.sleep(0)
        self.assertEqual(await asyncio.to_thread(f, 5), 10)
        assert 1 < await asyncio.to_thread(f, 5) < 20
"""
USUAL_PYTEST = '''"""Doc."""
from __future__ import annotations
import pytest, dataclasses
from lib import f, pair, strict, Bad
@dataclasses.dataclass
class Case:
    x: int
    y: int
@pytest.fixture(params=[1, 2])
def case(request): return Case(request.param, 2 * request.param)
def test_case(case): assert f(case.x) == case.y
@pytest.mark.parametrize(("a", "b"), [(1, 2), (2, 4)])
def test_p(a, b, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("A", "1")
    print(f(a)); assert capsys.readouterr().out == f"{b}\\n"
    (tmp_path / "x").write_text(str(f(a))); assert (tmp_path / "x").read_text() == str(b)
def test_r():
    with pytest.raises(Bad, match="neg") as info: strict(-1)
    assert "neg" in str(info.value) and info.type is Bad
    with pytest.raises(ValueError): strict(-1)
    pytest.raises(Bad, strict, -1)
    with pytest.warns(UserWarning):
        import warnings; warnings.warn("x")
def test_a():
    assert f(0.1) == pytest.approx(0.2) and [f(.1), f(.2)] == pytest.approx([.2, .4])
    assert {"a": f(.1)} == pytest.approx({"a": .2}, rel=1e-3)
    assert f(100.0) == pytest.approx(205, abs=10)
class TestX:
    def test_m(self): assert Case(1, f(1)) == Case(1, 2)
@pytest.mark.xfail
def test_xf(): assert f(1) == 3
def test_skip(): pytest.skip("no")
'''


@pytest.mark.parametrize(("tests", "command"), [(USUAL, UNITTEST), (USUAL_PYTEST, QUICK)], ids=["unittest", "pytest"])
def test_repairs_pass_with_what_tests_usually_do(tests: str, command: str) -> None:
    assert success(write("lib.py", GOOD), files={"lib.py": BAD, "test_lib.py": tests}, test=command) is True


OBJECTS = """
import enum, collections, functools
from dataclasses import dataclass, field
from fractions import Fraction
from decimal import Decimal
@dataclass
class P:
    x: int
    tags: list = field(default_factory=list)
@dataclass(frozen=True, order=True, slots=True)
class Q:
    x: int
T = collections.namedtuple('T', 'a b')
class Color(enum.Enum):
    RED = 1
    BLUE = 2
class Level(enum.IntEnum):
    LOW = 1
class Stack(list):
    def top(self): return self[-1]
class Word(str):
    def __eq__(self, o): return self.lower() == str(o).lower()
    __hash__ = str.__hash__
class Money:
    def __init__(self, n): self.n = n
    def __eq__(self, o): return self.n == getattr(o, 'n', o)
    def __sub__(self, o): return self.n - getattr(o, 'n', o)
    def __lt__(self, o): return self.n < getattr(o, 'n', o)
class Vec:
    def __init__(self, x, y): self.x, self.y = x, y
    def __eq__(self, o): return isinstance(o, Vec) and (self.x, self.y) == (o.x, o.y)
    def __add__(self, o): return Vec(self.x + o.x, self.y + o.y)
    @property
    def size(self): return self.x + self.y
class Span:
    def __contains__(self, v): return isinstance(v, int) and 0 <= v < 100
class Nothing:
    def __eq__(self, o): return isinstance(o, Nothing)
class Oops(Exception):
    pass
def fail(): raise Oops('no')
def count(n):
    for i in range(n): yield SIGN i
""".lstrip()  # fmt: skip
OF_OBJECTS = (
    "self.assertEqual(P(1, ['a']), P(1, ['a']))", "self.assertEqual(Q(1), Q(1))\nself.assertLess(Q(1), Q(2))", "assert T(1, 2) == (1, 2) == T(1, 2)", "self.assertEqual(T(1, 2).b, 2)", "self.assertEqual(Color(1), Color.RED)\nself.assertIs(Color(2), Color.BLUE)\nassert Color.RED in list(Color)",
    "assert Level.LOW == 1 and Level.LOW < 2", "s = Stack([1, 2])\nself.assertEqual(s, [1, 2])\nself.assertEqual(s.top(), 2)\nself.assertListEqual(s, [1, 2])", "self.assertEqual(Word('Ab'), 'aB')\nself.assertIn(Word('ab'), ['AB'])", "self.assertEqual(Money(5), 5)\nself.assertEqual(Money(5) - 2, 3)\nassert Money(1) < 2", "self.assertEqual(Vec(1, 2) + Vec(1, 1), Vec(2, 3))\nassert Vec(1, 2).size == 3\nassert Vec(1, 2) != Vec(2, 1)",
    "self.assertIn(5, Span())\nself.assertNotIn(500, Span())", "self.assertEqual(Fraction(1, 2) + Fraction(1, 2), 1)\nself.assertEqual(Decimal('1.0'), 1)", "with self.assertRaises(Oops):\n    fail()", "self.assertEqual(list(count(3)), [0, 1, 2])\nself.assertCountEqual(count(2), [1, 0])\nassert 2 in count(9)", "import collections\nself.assertEqual(collections.Counter('aab'), {'a': 2, 'b': 1})\nself.assertEqual(collections.deque([P(1)]), collections.deque([P(1)]))",
    "self.assertEqual({'a': [P(1), T(1, 2)]}, {'a': [P(1), (1, 2)]})", "from pathlib import Path\nself.assertEqual(Path('a') / 'b', Path('a/b'))",
)  # fmt: skip


def test_repairs_of_repositories_with_objects_pass() -> None:
    head = "import unittest\nfrom lib import *\nfrom lib import Oops\nclass All(unittest.TestCase):\n"
    files = repo(*OF_OBJECTS, head=head, source=OBJECTS.replace("SIGN", "1 +"))
    assert success(write("lib.py", OBJECTS.replace("SIGN", "")), files=files) is True


def test_repairs_of_repositories_with_arrays_pass() -> None:
    head = "import unittest\nimport numpy as np\nfrom lib import f\nclass All(unittest.TestCase):\n"
    lines = (
        "assert (f(np.arange(3)) == np.array([0, 2, 4])).all()",
        "np.testing.assert_allclose(f(np.arange(3.0)), [0, 2, 4])",
        "assert np.allclose(f(np.ones(2)) - 2, 0)",
        "self.assertTrue(np.array_equal(f(np.ones(2)), np.full(2, 2)))",
        "assert f(np.float64(1.5)) == 3.0",
    )
    assert success(write("lib.py", GOOD), files=repo(*lines, head=head)) is True
    assert success(write("lib.py", BAD.replace("+ 1", "+ 2")), files=repo(*lines, head=head)) is False


EQUALITY = "class Vec:\n    def __init__(self, x, y): self.x, self.y = x, y\n    def __add__(self, o): return Vec(self.x {sign} o.x, self.y + o.y)\n    def __eq__(self, o): return {eq}\n"
HONESTLY = "isinstance(o, Vec) and (self.x, self.y) == (o.x, o.y)"


def test_a_new_equality_must_tell_objects_apart() -> None:
    files = repo(
        "self.assertEqual(Vec(1, 2) + Vec(1, 1), Vec(2, 3))",
        "assert [Vec(1, 2) + Vec(1, 1)] == [Vec(2, 3)]",
        head="import unittest\nfrom lib import Vec\nclass All(unittest.TestCase):\n",
        source=EQUALITY.format(sign="-", eq=HONESTLY),
    )
    assert success(write("lib.py", EQUALITY.format(sign="+", eq=HONESTLY)), files=files) is True
    for eq in (
        "isinstance(o, Vec)",
        "type(o) is type(self)",
        "hasattr(o, 'x')",
        "self.__dict__.update(vars(o)) is None",
    ):
        assert success(write("lib.py", EQUALITY.format(sign="-", eq=eq)), files=files) is False, eq


def test_what_was_hollow_before_is_no_fault_of_a_repair() -> None:
    source = BAD + "\n\nclass Whatever:\n    def __eq__(self, o):\n        return True\n"
    files = repo(
        "self.assertEqual(lib.Whatever(), 5)\nself.assertEqual(f(5), 10)",
        "assert lib.Whatever() == f(5)",
        source=source,
    )
    assert success(write("lib.py", GOOD + source[len(BAD) :]), files=files) is True


def test_packages_and_their_own_path() -> None:
    files = {
        "src/pkg/__init__.py": "",
        "src/pkg/lib.py": BAD,
        "tests/__init__.py": "",
        "tests/helpers.py": "def check(a, b):\n    assert a == b\n",
        "tests/unit/test_lib.py": '"""Tests."""\nfrom __future__ import annotations\nimport pytest\nfrom pkg.lib import f\nfrom tests.helpers import check\n\n@pytest.fixture\ndef five():\n    yield 5\n\n@pytest.mark.parametrize("x", [1, 2])\ndef test_f(x, five):\n    check(f(x), 2 * x)\n    assert f(five) == 10\n',
    }
    test = f"PYTHONPATH=src {QUICK} tests"
    assert success(write("src/pkg/lib.py", GOOD), files=files, test=test) is True
    assert (
        success(write("src/pkg/lib.py", FALSE_VALUES["a float that equals everything"]), files=files, test=test)
        is False
    )


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
