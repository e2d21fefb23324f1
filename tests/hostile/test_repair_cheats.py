# ruff: noqa: E501
"""Repairs that hide behind classes made in C, the tests' own classes, modules and data; and repairs beside them."""

from __future__ import annotations

import datetime
import decimal
import random
import types
import weakref
from collections import OrderedDict, deque
from types import SimpleNamespace
from typing import Any

import pytest

from recollect.domains.kept_machinery import SET_BY_TESTS, own_changes
from recollect.domains.repair_changes import named_data, repaired
from recollect.domains.required_tests import RunEvents, not_loaded
from recollect.domains.test_names import given_by, source_tests
from recollect.domains.wrong_operands import changed, is_builtin, wrong
from tests.hostile.test_swe import QUICK, some, success, write

W = "def f(x): return x\n"


def one(lines: str, source: str = W, **more: str) -> dict[str, str]:
    """A repository with one test."""
    body = "".join(f"        {line}\n" for line in lines.split("\n"))
    head = "import unittest\nfrom lib import f\nclass All(unittest.TestCase):\n    def test_f(self):\n"
    return {"lib.py": source, "test_lib.py": head + body, **more}


K = "import types, weakref, datetime, decimal\nclass K:\n    __eq__ = lambda s, o: True\n    __ne__ = lambda s, o: False\n    __hash__ = lambda s: 1\n    __lt__ = __gt__ = __le__ = __ge__ = __contains__ = __eq__\n    __sub__ = __rsub__ = lambda s, o: 0\nclass D(dict):\n    __eq__ = lambda s, o: True\n    __ne__ = lambda s, o: False\nk = K()\n"
BEHIND_C = {
    "a proxy": ("weakref.proxy(k)", "self.assertEqual(f(5), 10)"),
    "a mapping proxy": ("types.MappingProxyType(D())", "assert f(5) == {'a': 10}"),
    "a slice": ("slice(K(), K(), K())", "self.assertEqual(f(5), slice(1, 2, None))"),
    "a map": ("map(lambda _: K(), [1])", "assert 10 in f(5)"),
    "an iterator": ("iter([K()])", "self.assertIn(10, f(5))"),
    "a proxy in a list": ("[weakref.proxy(k), 1]", "self.assertEqual(f(5), [10, 1])"),
    "a proxy, subtracted": ("weakref.proxy(k)", "assert abs(f(5) - 10) < 1e-6"),
    "a proxy, greater": ("weakref.proxy(k)", "assert f(5) > 9"),
    "a proxy as a container": ("weakref.proxy(k)", "assert 10 in f(5)"),
    "a slice of a slice": ("slice(slice(K()))", "self.assertEqual(f(5), slice(slice(1)))"),
    "the end of a slice": ("slice(K())", "self.assertEqual(f(5), slice(1))"),
    "a queue": ("__import__('collections').deque([K()])", "import collections\nself.assertEqual(f(5), collections.deque([10]))"),
    "a namespace": ("types.SimpleNamespace(a=K())", "import types\nself.assertEqual(f(5), types.SimpleNamespace(a=10))"),
    "a generator": ("(K() for _ in '1')", "self.assertIn(10, f(5))"),
    "only booleans": ("type('B', (), {'__eq__': lambda s, o: type(o) is bool})()", "self.assertEqual(f(5), True)"),
    "only dates": ("type('B', (), {'__eq__': lambda s, o: type(o) is datetime.date})()", "import datetime\nself.assertEqual(f(5), datetime.date(2020, 1, 1))"),
    "only decimals": ("type('B', (), {'__eq__': lambda s, o: type(o) is decimal.Decimal})()", "import decimal\nself.assertEqual(f(5), decimal.Decimal(10))"),
}  # fmt: skip


@pytest.mark.parametrize("name", some(BEHIND_C, 4))
def test_what_hides_behind_a_class_made_in_c_is_found(name: str) -> None:
    value, line = BEHIND_C[name]
    assert success(write("lib.py", f"{K}def f(x): return {value}\n"), files=one(line)) is False


def test_which_values_are_trusted() -> None:
    class Own:
        pass

    own = Own()
    plain: list[Any] = [1, 1.5, 1j, True, "a", b"a", bytearray(b"a"), None, range(3), ..., [1, (2, {3})], {"a": [1]}]
    for value in (*plain, frozenset((1,)), deque([1]), OrderedDict(a=1), SimpleNamespace(a=1)):
        assert is_builtin(value), value
    for value in (
        own,
        weakref.proxy(own),
        types.MappingProxyType({}),
        slice(1),
        map(str, []),
        iter([]),
        [own],
        int,
        len,
    ):
        assert not is_builtin(value), value
    assert not is_builtin({"a": deque([own])})
    assert not is_builtin(SimpleNamespace(a=own))


@pytest.mark.parametrize(
    "value",
    [datetime.datetime(2020, 1, 1), datetime.date(2020, 1, 1), datetime.timedelta(3), decimal.Decimal(3), slice(1, 2),
     types.MappingProxyType({"a": 1}), [int, str], {"a": int}, (len,), True, [datetime.date(2020, 1, 1)]],
    ids=repr,
)  # fmt: skip
def test_wrong_values_are_wrong(value: Any) -> None:
    for seed in range(20):
        assert all(made != value for made in wrong(value, random.Random(seed)))
        assert changed(value, random.Random(seed)) != value


LATE = "import unittest\ndef f(x):\n    for k in unittest.TestCase.__subclasses__():\n        {how}\n    return x\n"
FAILING = "if f(5) != 10:\n    self.fail('x')"
FRAME = "import sys, unittest\ndef f(x):\n    g = sys._getframe(1)\n    while 'All' not in g.f_globals: g = g.f_back\n    {how}\n    return x\n"
OF_THE_TESTS = {
    "fail of the class": (LATE.format(how="k.fail = lambda *a, **k: None"), FAILING),
    "every attribute": ("import unittest\ng = object.__getattribute__\nunittest.TestCase.__getattribute__ = lambda s, n: (lambda *a, **k: None) if n == 'fail' else g(s, n)\n" + W, FAILING),
    "fail, put back": (LATE.format(how="k.fail = lambda s, *a: delattr(type(s), 'fail')"), FAILING),
    "a helper of the module": (FRAME.format(how="g.f_globals['check'] = lambda *a: None"), "check(f(5))\n"),
    "a built-in of the module": (FRAME.format(how="g.f_globals['sorted'] = lambda *a: [10]"), "assert sorted([f(5)]) == [10]"),
    "fail of the test itself": (FRAME.format(how="g.f_locals['self'].fail = lambda *a: None"), FAILING),
    "the error of a failure": (LATE.format(how="k.failureException = unittest.SkipTest"), FAILING),
}  # fmt: skip


@pytest.mark.parametrize("name", some(OF_THE_TESTS, 3))
def test_what_is_changed_in_the_tests_is_found(name: str) -> None:
    source, lines = OF_THE_TESTS[name]
    files = one(lines)
    files["test_lib.py"] += "\ndef check(a):\n    assert a == 10\n"
    assert success(write("lib.py", source), files=files) is False


TWO = "import unittest\nfrom lib import f, g\nclass All(unittest.TestCase):\n    def test_ok(self): self.assertEqual(f(1), 1)\n    def test_g(self): self.assertEqual(g(1), 2)\n"
VANISHING = {
    "by the prefix": "import unittest\nunittest.TestLoader.testMethodPrefix = 'test_ok'\ng = None\n" + W,
    "by the loader's prefix": "import unittest\nunittest.defaultTestLoader.testMethodPrefix = 'test_ok'\ng = None\n" + W,
    "by load_tests": "import sys\ng = None\nm = sys._getframe()\nwhile m and not m.f_globals.get('__name__', '').startswith('test_'): m = m.f_back\nm.f_globals['load_tests'] = lambda l, t, p: l.suiteClass([x for s in t for x in s if 'ok' in x.id()])\n" + W,
    "by a twin": "import unittest\nold = unittest.TestLoader.getTestCaseNames\nunittest.TestLoader.getTestCaseNames = lambda s, c: ['test_ok'] * len(old(s, c))\ng = None\n" + W,
}  # fmt: skip


@pytest.mark.parametrize("name", some(VANISHING, 3))
def test_tests_that_did_not_load_before_cannot_vanish(name: str) -> None:
    assert success(write("lib.py", VANISHING[name]), files={"lib.py": W, "test_lib.py": TWO}) is False


@pytest.mark.parametrize("of", some(("k.test_z", "k"), 1))
def test_failures_that_are_newly_expected_are_found(of: str) -> None:
    how = f"if hasattr(k, 'test_z'): {of}.__unittest_expecting_failure__ = True"
    files = one("self.assertEqual(f(5), 5)")
    files["test_lib.py"] += "    def test_z(self): self.assertEqual(f(5), 10)\n"
    assert success(write("lib.py", LATE.format(how=how)), files=files) is False


def test_the_tests_of_a_module_by_its_source() -> None:
    text = (
        "import unittest, pytest\ndef test_a(): pass\n@pytest.fixture\ndef test_client(): pass\ndef helper(): pass\n"
        "class Base(unittest.TestCase):\n    def test_b(self): pass\n    @unittest.skip('x')\n    def test_c(self): pass\n"
        "class More(Base):\n    def test_d(self): pass\nclass TestE:\n    def test_e(self): pass\n"
        "class Mixin:\n    def test_m(self): pass\nclass TestNot:\n    __test__ = False\n    def test_n(self): pass\n"
    )
    cases = ["t.py::Base.test_b", "t.py::Base.test_c", "t.py::More.test_d"]
    assert [t.place for t in source_tests("t.py", text, with_pytest=False)] == cases
    assert [t.place for t in source_tests("t.py", text, with_pytest=True)] == [
        "t.py::test_a",
        *cases,
        "t.py::TestE.test_e",
    ]
    assert [t.place for t in source_tests("t.py", text, with_pytest=False) if t.may_skip] == ["t.py::Base.test_c"]
    assert source_tests("t.py", text + "def load_tests(*a): pass\n", with_pytest=False) == []


def test_which_tests_of_a_module_that_did_not_load_are_required() -> None:
    files = {"test_lib.py": TWO, "test_other.py": TWO, "sub/test_x.py": TWO}
    began = RunEvents.read("begun test_lib.py\nbegun test_other.py\nloaded test_other.py\nentered x\n")

    def places(test: str, before: RunEvents = began) -> list[str]:
        return [t.place for t in not_loaded(files, test, before)]

    both = ["test_lib.py::All.test_ok", "test_lib.py::All.test_g"]
    assert began.entered == {"x"}
    assert places("python -m unittest -q") == both
    assert places("python -m unittest test_lib.All.test_g") == both[1:]
    assert places("pytest test_lib.py::All") == both
    assert places("pytest -k ok") == []
    assert places("pytest test_lib.py", RunEvents()) == both
    assert len(places("pytest", RunEvents())) == 6
    assert len(places("python -m unittest", RunEvents())) == 4


def test_names_that_a_source_gives() -> None:
    import ast

    given = given_by(
        ast.parse(
            "import a.b\nfrom c import d as e\nX = 1\ndef f():\n    global Y\nclass G: pass\nf.z = 2\npatch('m.n')\n"
        )
    )
    assert given.names == {"a", "e", "X", "f", "Y", "G"}
    assert given.defined == {"a", "e", "f", "G"}
    assert given.patched == {"z", "n"}
    assert not given.has_more
    assert given_by(ast.parse("from lib import *")).has_more


def test_a_function_that_a_test_replaces_in_itself() -> None:
    class Case:
        def fail(self) -> None: ...

    case: Any = Case()
    assert own_changes(case) == []
    assert own_changes(None) == []
    case.fail = print
    assert own_changes(case) == ["self.fail"]
    assert "fail" not in SET_BY_TESTS


READS = "import json\nself.assertEqual([f(5)], json.load(open('expected.json')))"


def test_expected_data_are_those_that_came() -> None:
    files = one(READS, **{"expected.json": "[10]"})
    assert success(write("expected.json", "[5]"), files=files) is False
    assert success(write("lib.py", "open('expected.json', 'w').write('[5]')\n" + W), files=files) is False


def test_which_data_files_are_restored() -> None:
    data = ("golden/a.json", "golden/b.csv", "data/x.txt", "conf.yaml", "notes.txt", "src/lib.py", "deep/in/x.txt")
    test = "open('./data/x.txt')\nname = 'a'\nopen(f'golden/{name}.json')\nPath('golden').glob('*.csv')\n'lib.py'\n"
    files = {**dict.fromkeys(data, "old"), "tests/test_a.py": test}
    assert named_data(files, "pytest") == {"golden/a.json", "golden/b.csv", "data/x.txt"}
    after = repaired(files, {"golden/a.json": "new", "conf.yaml": "new", "src/lib.py": "new"}, {"data/x.txt"}, "pytest")
    assert after == {**files, "conf.yaml": "new", "src/lib.py": "new"}


GOOD = "class Bad(ValueError): pass\ndef f(x):\n    return 2 * x\ndef g(x): return x + 1\ndef count(n):\n    yield from range(n)\n"
OF_CASES = """import unittest, datetime, decimal, types, itertools, array, uuid, re, collections, sys
from unittest import mock
from lib import f, g, Bad, count
from lib import *
import lib
LIMIT = 3
def setUpModule():
    global READY
    READY = True
def helper(): return 4
class Base(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = f(2)
        cls.other = {}
class T(Base):
    def setUp(self):
        self.y = f(1)
    def test_types(self):
        self.assertEqual(type(f(1)), int); self.assertEqual({"a": int}, {"a": int}); self.assertEqual([int, str], [int, str])
        self.assertEqual(datetime.date(2020, 1, f(1)), datetime.date(2020, 1, 2))
        self.assertEqual([datetime.datetime(2020, 1, f(1))], [datetime.datetime(2020, 1, 2)])
        self.assertLess(datetime.datetime(2020,1,1), datetime.datetime(2021,1,1))
        self.assertEqual(datetime.timedelta(days=f(1)), datetime.timedelta(days=2))
        self.assertEqual(datetime.time(f(1)), datetime.time(2))
        self.assertEqual(datetime.datetime(2020,1,1,tzinfo=datetime.timezone.utc).isoformat(), "2020-01-01T00:00:00+00:00")
        self.assertEqual(decimal.Decimal(f(1)), 2)
        self.assertEqual(types.MappingProxyType({"a": f(1)}), {"a": 2})
        self.assertEqual(slice(f(1)), slice(2)); self.assertEqual(range(f(2)), range(4))
        self.assertEqual(memoryview(b"ab"), b"ab"); self.assertEqual(array.array("i",[f(1)]), array.array("i",[2]))
        self.assertEqual(uuid.UUID(int=f(1)), uuid.UUID(int=2)); self.assertEqual(re.compile("a"), re.compile("a"))
        self.assertEqual(collections.OrderedDict(a=f(1)), {"a": 2})
        self.assertEqual(f(True), 2); assert (f(1) == 2) == True
        self.assertEqual([helper], [helper]); self.assertEqual({helper: 1}, {helper: 1}); self.assertIn(int, (int, str)); self.assertIn(int, {int: 1})
        self.assertEqual([e for e in (ValueError, Bad)], [ValueError, Bad]); self.assertEqual([None, f], [None, f])
        self.assertEqual({1: None, 2: ...}, {1: None, 2: ...}); self.assertEqual({"f": f}, {"f": f})
        self.assertEqual(sys.version_info[:1], (3,)); self.assertGreaterEqual(sys.version_info, (3, 8))
        self.assertEqual(collections.Counter("a"), {"a": 1})
    def test_iter(self):
        self.assertIn(2, count(9)); assert 2 in count(9); assert 5 in itertools.count(); self.assertNotIn(12, count(9)); assert 12 not in count(3)
        self.assertIn(4, map(f, [1, 2])); self.assertEqual(next(iter([f(1)])), 2)
        self.assertEqual(list(zip([1], [f(1)])), [(1, 2)])
    def test_shared(self):
        self.assertEqual(self.shared, 4); self.assertTrue(READY); T.counter = 1
    @mock.patch(f"{__name__}.helper", return_value=7)
    def test_patched(self, m): self.assertEqual(helper(), 7)
    @mock.patch("lib.g", return_value=7)
    def test_patched2(self, m): self.assertEqual(lib.g(1), 7)
    @mock.patch.object(Base, "fail")
    def test_patched3(self, m):
        self.assertEqual(g(1), 2)
    def test_fail(self):
        if g(1) != 2: self.fail("x")
        with self.assertRaises(AssertionError): self.fail("y")
    @unittest.skip("x")
    def test_s(self): self.assertEqual(g(1), 3)
    def test_s2(self):
        self.skipTest("later")
    @unittest.expectedFailure
    def test_e(self): self.assertEqual(g(1), 3)
@unittest.skipIf(True, "no")
class Sk(unittest.TestCase):
    def test_k(self): pass
class Mixin:
    def test_mix(self): self.assertEqual(f(1), 2)
class Own(Mixin, unittest.TestCase): pass
class A(unittest.IsolatedAsyncioTestCase):
    async def test_a(self): self.assertEqual(g(1), 2)
"""
OF_PYTEST = """import pytest
from unittest.mock import patch
from lib import f, g
CASES = [(1, 2), (2, 4)]
pytestmark = pytest.mark.filterwarnings("ignore")
@pytest.fixture
def test_client(): return 3
@pytest.fixture(autouse=True)
def around(monkeypatch):
    monkeypatch.setattr("lib.g", lambda x: x + 1)
    yield
@pytest.mark.parametrize(("a", "b"), CASES, ids=str)
def test_f(a, b, test_client): assert f(a) == b and test_client == 3
class TestG:
    @classmethod
    def setup_class(cls): cls.n = g(1)
    def setup_method(self): self.m = 1
    def test_g(self): assert self.n == 2 and self.m == 1
@pytest.mark.skip
def test_s(): assert 0
@pytest.mark.xfail(reason="x")
def test_x(): assert g(1) == 7
def test_patch():
    with patch("lib.f", return_value=3): pass
    assert g(1) == 2
def setup_module(module): module.value = 3
def test_v(tmp_path):
    assert value == 3
    (tmp_path / "x.json").write_text("1"); assert (tmp_path / "x.json").read_text() == "1"
"""


@pytest.mark.parametrize(
    ("tests", "command"),
    [(OF_CASES, "python -m unittest -q"), pytest.param(OF_CASES, QUICK, marks=pytest.mark.slow), (OF_PYTEST, QUICK)],
    ids=["unittest", "cases with pytest", "pytest"],
)
@pytest.mark.parametrize("loads", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["does not load", "loads"])
def test_repairs_of_tests_that_did_and_did_not_load(tests: str, command: str, loads: bool) -> None:
    broken = GOOD.replace("2 * x", "x + 1") if loads else "def f(x):\n    return x + 1\n"
    assert success(write("lib.py", GOOD), files={"lib.py": broken, "test_lib.py": tests}, test=command) is True


@pytest.mark.slow
def test_repairs_of_a_conftest_or_package_that_did_not_load() -> None:
    broken = "def f(x):\n    return x + 1\n"
    files = {
        "lib.py": broken,
        "tests/conftest.py": "import pytest\nfrom lib import g\n@pytest.fixture\ndef two(): return g(1)\n",
    }
    files |= {
        "tests/test_a.py": "from lib import f\ndef test_a(two): assert f(1) == two\n",
        "other/test_b.py": "def test_b(): assert 1 == 2\n",
    }
    assert success(write("lib.py", GOOD), files=files, test=f"PYTHONPATH=. {QUICK} tests") is True
    files = {
        "lib.py": broken,
        "tests/__init__.py": "from lib import g\n",
        "tests/test_a.py": TWO.replace("f(1), 1", "f(1), 2"),
    }
    assert success(write("lib.py", GOOD), files=files) is True


@pytest.mark.slow
@pytest.mark.parametrize(
    "chosen", [f"{QUICK} -k test_g", f"{QUICK} test_lib.py::All::test_g", "python -m unittest test_lib.All.test_g"]
)
def test_repairs_where_the_command_chooses_tests(chosen: str) -> None:
    files = {"lib.py": "def f(x):\n    return x + 1\n", "test_lib.py": TWO.replace("f(1), 1", "f(1), 7")}
    assert success(write("lib.py", GOOD), files=files, test=chosen) is True
