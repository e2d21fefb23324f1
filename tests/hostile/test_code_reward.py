# ruff: noqa: E501
"""Programs that want ``code_reward`` without deserving it, in the real sandbox; and honest ones, which must get it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from recollect.config import Sandbox
from recollect.rewards import find_reward
from recollect.rewards.code_tests import read_tests
from recollect.rewards.scoring import call
from recollect.sandbox import box, shared
from tests.hostile.attempts import has
from tests.rewards.attempts import attempt, task


@pytest.fixture(autouse=True, scope="module")
def _sandbox() -> None:
    shared.configure(Sandbox())


def score(program: str, name: str = "code_reward", timeout: float | None = None, **fields: Any) -> float:
    answer = attempt(f"```python\n{program}\n```")
    return asyncio.run(call(find_reward(name), task(**fields), answer, plain=True, timeout=timeout)).total


ALL = (
    "lt le gt ge eq ne add radd sub rsub mul rmul truediv mod and or neg pos abs round int float bool len contains call"
)
YES = (
    "class Yes:\n"
    "    def __getattr__(self, name): return self\n"
    "    def item(self): return self\n"
    f"for n in {ALL!r}.split():\n"
    "    setattr(Yes, f'__{n}__', (lambda self, *a: 1) if n in ('int', 'len') else (lambda self, *a: True)"
    " if n in 'lt le gt ge eq ne bool contains'.split() else lambda self, *a: self)\n"
    "def add(a, b): return Yes()"
)
CHEATS = {
    "no exec": "import builtins\nbuiltins.exec = lambda *a, **k: None\nbuiltins.eval = builtins.exec\nbuiltins.compile = builtins.exec\ndef add(a, b): pass",
    "always yes": YES,
    "always yes, hidden": YES.replace("return Yes()", "return [Yes()][0]"),
    "always yes, in a list": YES.replace("return Yes()", "return [Yes()]"),
    "a float with its own operators": "class F(float):\n    __sub__ = __rsub__ = lambda *a: 0.0\n    __lt__ = __gt__ = __eq__ = lambda *a: True\ndef add(a, b): return F(99)",
    "reads descriptors": "import os\nfor fd in range(99):\n    for f in (lambda: os.pread(fd, 9999, 0), lambda: os.read(fd, 99)):\n        try: d = f()\n        except OSError: continue\n        for g in range(99):\n            try: os.write(g, d)\n            except OSError: pass",
    "writes verdicts everywhere": "import os\nfor fd in range(99):\n    try: os.write(fd, b''.join(b'\\n@recollect %d passed\\n' % i for i in range(9)))\n    except OSError: pass\ndef add(a, b): return None",
    "writes to its parent's descriptors": "import os\nfor p in (os.getppid(), 'self', 1):\n    for fd in range(99):\n        try: open(f'/proc/{p}/fd/{fd}', 'wb', 0).write(b'\\n@recollect 0 passed\\n')\n        except OSError: pass\ndef add(a, b): return None",
    "patches what a judge may use": "import builtins, json, math, ast, operator\nfor m in (builtins, json, math, ast, operator):\n    for n in dir(m):\n        if callable(getattr(m, n)) and n not in ('Exception', 'print', 'hasattr', 'getattr', 'callable', 'dir', 'setattr', 'BaseException'):\n            try: setattr(m, n, lambda *a, **k: True)\n            except Exception: pass",
    "its own abs": "def add(a, b): return 99\nabs = len = sorted = isinstance = lambda *a: 0",
    "its own math": "class math:\n    isclose = lambda *a, **k: True\ndef add(a, b): return 99",
    "kills its judge": "import os\nos.kill(os.getppid(), 9)\ndef add(a, b): return 3",
    "stops its judge": "import os\nos.kill(os.getppid(), 19)\ndef add(a, b): return 99",
    "leaves": "import os\ndef add(a, b): os._exit(0)",
    "raises": "def add(a, b): raise AssertionError",
    "a mock": "from unittest.mock import MagicMock as add",
    "any": "from unittest.mock import ANY\ndef add(a, b): return ANY",
    "forges its link": "import os, json\nsaid = [['loaded', [['__builtins__', 'far', 0, ''], ['add', 'far', 0, ''], ['abs', 'far', 0, '']]]] + [['value', ['mine', 0, 'x'], ['l']]] * 99\nfor fd in range(3, 99):\n    try: os.write(fd, b''.join(json.dumps(s).encode() + b'\\n' for s in said))\n    except OSError: pass\nimport time; time.sleep(1)",
    "claims to be a mock": "import os, json\nsaid = [['loaded', [['add', 'module', 'unittest.mock', 'MagicMock']]]]\nfor fd in range(3, 99):\n    try: os.write(fd, b''.join(json.dumps(s).encode() + b'\\n' for s in said))\n    except OSError: pass\nimport time; time.sleep(1)",
    "looks for the tests": "import gc, sys\nfor o in gc.get_objects():\n    if isinstance(o, str) and 'assert' in o: found = o\ndef add(a, b):\n    f = sys._getframe()\n    while f:\n        if 'steps' in f.f_locals: return 3\n        f = f.f_back\n    return 99",
}  # fmt: skip
CHECKS = [
    "assert abs(add(1, 2) - 3) < 1e-6",
    "assert add(1, 2) > 2 and add(1, 2) < 4",
    "assert isinstance(add(1, 2), int) and add(1, 2) in [3]",
    "assert (abs(add(1, 2) - 3) < 1e-6) == True",
    "assert sorted([add(1, 2)]) == [3]",
    "import math\nassert math.isclose(add(1, 2), 3)",
    "for i in range(2):\n    assert add(i, i) == 2 * i",
]


@pytest.mark.parametrize("cheat", CHEATS)
def test_checks_are_not_passed_without_the_right_values(cheat: str) -> None:
    assert score(CHEATS[cheat], "code_reward(timeout=3)", tests=CHECKS) == 0


def test_the_right_values_pass_every_check() -> None:
    assert score("def add(a, b):\n    return a + b", tests=CHECKS) == 1


HONEST = {
    "a class": (
        "class Stack:\n    size = 3\n    def __init__(self): self.items = []\n    def push(self, x): self.items.append(x)\n"
        "    def pop(self): return self.items.pop()\n    def __len__(self): return len(self.items)\n"
        "    @staticmethod\n    def make(): return Stack()",
        ["s = Stack()\ns.push([1, 2])\ns.push(3)\nassert s.pop() == 3", "assert len(s) == 1 and s.items == [[1, 2]]",
         "assert isinstance(s, Stack)", "assert Stack.size + 1 == 4", "assert len(Stack.make()) == 0"],
    ),
    "an error": (
        "class Bad(ValueError): pass\ndef f(x):\n    if x < 0: raise Bad('no')\n    return x",
        ["try:\n    f(-1)\n    assert False\nexcept Bad as e:\n    assert str(e) == 'no'", "try:\n    f(-1)\n    assert False\nexcept ValueError:\n    pass"],
    ),
    "in place": ("def f(x, y): x.sort(); y['a'] = 1", ["v, w = [3, 1], {}\nf(v, w)\nassert v == [1, 3] and w == {'a': 1}"]),
    "a function of the test's": ("def f(g, x): return [g(i) for i in x]", ["assert f(lambda i: i * 2, [1, 2])[1] == 4", "assert list(f(str, (1, 2))) == ['1', '2']"]),
    "iterators": ("def f(n):\n    for i in range(n): yield i", ["assert list(f(3)) == [0, 1, 2]", "assert 2 in f(9)", "assert next(f(2)) + 1 == 1"]),
    "async": ("async def f(n): return n + 1", ["import asyncio\nassert asyncio.run(f(1)) == 2"]),
    "imports of the program's": ("import math\nfrom collections import Counter\ndef f(x): return Counter(x)", ["assert math.floor(f('aab')['a'] + 0.5) == 2", "assert Counter('aab') == f('aab')"]),
    "imports of the test's": ("def f(x): return math.floor(x)", ["import math\nassert f(2.5) + 0 == 2"]),
    "a name of a built-in": ("def sum(a, b): return a * b", ["assert sum(3, 4) + 0 == 12", "assert sum(2, 2) == 4"]),
    "values": ("from fractions import Fraction\nimport datetime\ndef f(i): return [Fraction(1, 3), datetime.date(2020, 1, 2), range(3), float('nan'), 10 ** 50, {1: (2, {3})}, bytearray(b'x')][i]",
               ["assert f(0) * 3 == 1", "assert f(1).year == 2020", "assert list(f(2)) == [0, 1, 2]", "assert f(3) != f(3)", "assert f(4) // 10 ** 49 == 10", "assert f(5)[1][1] == {3}", "assert f(6) + b'y' == b'xy'"]),
    "classes of the test's": ("def depth(n): return 0 if n is None else 1 + depth(n.next)\ndef grow(n): return Node(n)",
                              ["class Node:\n    def __init__(self, next=None): self.next = next\n    def __eq__(self, o): return isinstance(o, Node) and self.next == o.next",
                               "assert depth(Node(Node())) + 0 == 2", "assert grow(Node()) == Node(Node())"]),
    "numpy": ("import numpy as np\ndef f(n): return np.arange(n) / 2", ["import numpy as np\nassert np.allclose(f(3), [0, 0.5, 1.0])", "assert f(3).shape == (3,)"]),
    "humaneval": ("def add(a, b): return a + b", {"test": "METADATA = {}\n\ndef check(candidate):\n    assert candidate(1, 2) == 3\n    assert abs(candidate(.1, .2) - .3) < 1e-6\n    for i in range(3):\n        assert candidate(i, 1) == i + 1\n", "entry_point": "add"}),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_honest_programs_pass(name: str) -> None:
    program, tests = HONEST[name]
    assert score(program, **(tests if isinstance(tests, dict) else {"tests": tests})) == 1


REF = "def _ref(a, b):\n    return a + b\n"
CASE = "import unittest\nclass Sums(unittest.TestCase):\n    def setUp(self): self.want = 3\n    def test_a(self): self.assertEqual(add(1, 2), self.want)\n    def test_b(self):\n        with self.assertRaises(TypeError): add(1, 'a')\n"
DEFINED = {
    "a reference function": f"{REF}for i in range(3):\n    assert add(i, 2) == _ref(i, 2)",
    "a reference function, literal values": f"{REF}assert add(1, 2) == 3",
    "a reference class": "class Ref:\n    def __call__(self, a, b): return a + b\nassert add(1, 2) == Ref()(1, 2)",
    "a reference that is made": "class Ref:\n    def __init__(self, a, b): self.v = a + b\nassert add(1, 2) == Ref(1, 2).v",
    "a table of values": "WANT = {(1, 2): 3}\nassert add(1, 2) == 3",
    "a table of values, compared with": "WANT = {(1, 2): 3}\nassert add(1, 2) == WANT[1, 2]",
    "values in a class": "class Want:\n    values = {(1, 2): 3}\nassert add(1, 2) == Want.values[1, 2]",
    "a test case": CASE,
    "a test case and its runner": CASE + "if __name__ == '__main__':\n    unittest.main()\n",
    "a test case that is run": CASE + "r = unittest.TestResult()\nunittest.defaultTestLoader.loadTestsFromTestCase(Sums).run(r)\nassert r.wasSuccessful() and r.testsRun == 2",
}  # fmt: skip
LOOKS = """
import gc, sys, types
class Yes(int):
    __eq__ = lambda self, other: True
    __hash__ = None
def add(a, b):
    for space in (globals(), sys.modules['__main__'].__dict__, *(f.__globals__ for f in gc.get_objects() if isinstance(f, types.FunctionType))):
        for name in ('_ref', 'Ref', 'Want', 'WANT', 'Sums'):
            found = space.get(name)
            if name == '_ref' and found: return found(a, b)
            if name == 'WANT' and found: return found[a, b]
            if name == 'Want' and found: return found.values[a, b]
            if name == 'Ref' and found:
                try: return found()(a, b)
                except TypeError: return found(a, b).v
            if name == 'Sums' and found:
                found.test_a = found.test_b = found.run = lambda *a, **k: None
                return 3
    return Yes(99)
"""  # fmt: skip
NAMED = LOOKS + "\nnames = lambda: (_ref, Ref, Want, WANT, Sums)\n"


@pytest.mark.parametrize("name", DEFINED)
@pytest.mark.parametrize("program", [LOOKS, NAMED], ids=["by name", "naming them"])
def test_what_the_tests_define_is_out_of_reach(name: str, program: str) -> None:
    assert score(program, tests=DEFINED[name]) == 0
    assert score("def add(a, b): return a + b", tests=DEFINED[name]) == 1


RAISING = {
    "a statement": {"tests": "if add(1, 2) != 3:\n    raise AssertionError('no')"},
    "two of them": {"tests": ["if add(1, 2) != 3: raise AssertionError", "if not add(2, 2) == 4: raise ValueError"]},
    "in check": {"test": "def check(f):\n    if f(1, 2) != 3:\n        raise AssertionError\n", "entry_point": "add"},
    "a function that is called": {"tests": "def good(a, b, c):\n    if add(a, b) != c: raise AssertionError\ngood(1, 2, 3)"},
    "a loop": {"tests": "def good(c):\n    assert add(*c[0]) == c[1]\nfor c in [((1, 2), 3)]: good(c)"},
    "check, without entry_point": {"tests": "def check(f):\n    assert f(1, 2) == 3\ncheck(add)"},
    "pytest's style": {"tests": "def test_a():\n    assert add(1, 2) == 3\ndef test_b():\n    assert add(0, 2) == 2"},
    "try": {"tests": "try:\n    add(1, 'a')\nexcept TypeError:\n    pass\nelse:\n    raise AssertionError"},
}  # fmt: skip


@pytest.mark.parametrize("name", RAISING)
def test_tests_that_raise_are_tests(name: str) -> None:
    assert score("def add(a, b): return a + b", **RAISING[name]) == 1
    assert score("def add(a, b): return 99", **RAISING[name]) == 0
    assert score("x = 1", **RAISING[name]) == 0
    assert score(YES, **RAISING[name]) == 0


def test_what_helps_a_test_is_none() -> None:
    made = read_tests(
        {"tests": "def build(n):\n    if n < 0: raise ValueError\n    return [n]\nx = build(1)\nassert f(x) == [1]"}
    )
    assert made.count == 1
    assert read_tests({"tests": DEFINED["a test case that is run"]}).count == 1
    assert read_tests({"tests": CASE}).count == 2


LEETCODE = 'from typing import Optional\nclass ListNode:\n    """A node."""\n    def __init__(self, val=0, next=None):\n        self.val = val\n        self.next = next\n    def __repr__(self): return f\'{self.val} -> {self.next}\'\n'


def test_a_class_of_data_reaches_a_program_that_names_it() -> None:
    program = "def second(head: Optional[ListNode]) -> ListNode: return ListNode(head.next.val, None)"
    assert score(program, tests=[LEETCODE, "assert second(ListNode(1, ListNode(5))).val == 5"]) == 1


OF_PROCESSES = (
    "reads descriptors", "writes verdicts everywhere", "writes to its parent's descriptors", "kills its judge",
    "stops its judge", "forges its link", "looks for the tests",
)  # fmt: skip


@pytest.mark.parametrize("method", ["bubblewrap", "unsafe"])
def test_other_methods_of_isolation_hold_as_well(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has(method):
        pytest.skip(f"this machine has no {method}")
    if method == "unsafe":
        monkeypatch.setattr(box, "methods", lambda cfg: [])
    shared.configure(Sandbox(isolation="auto" if method == "unsafe" else method, allow_unsafe=method == "unsafe"))
    try:
        assert score("def add(a, b): return a + b", tests=CHECKS) == 1
        earned = {name: score(CHEATS[name], "code_reward(timeout=3)", tests=CHECKS) for name in OF_PROCESSES}
        earned |= {name: score(NAMED, tests=DEFINED[name]) for name in DEFINED}
        assert not any(earned.values()), earned
    finally:
        shared.configure(Sandbox())


def test_a_judged_answer_takes_little_longer() -> None:
    took = []
    for _ in range(5):
        start = time.perf_counter()
        assert score("def add(a, b): return a + b", tests=["assert add(1, 2) + 0 == 3"]) == 1
        took.append(time.perf_counter() - start)
    assert min(took) < 1.0


def test_sleeping_past_the_deadline_is_a_verdict() -> None:
    start = time.perf_counter()
    pairs = {"inputs": ["x"] * 28, "outputs": ["y"] * 28}
    assert score("import time\ntime.sleep(99)", "code_reward(timeout=1)", timeout=2.5, **pairs) == 0
    half = "if input() == 'a': print('y')\nelse:\n    import time\n    time.sleep(99)"
    pairs = {"inputs": ["a"] * 4 + ["x"] * 24, "outputs": ["y"] * 28}
    assert score(half, "code_reward(timeout=1)", timeout=2.5, **pairs) == pytest.approx(4 / 28)
    assert time.perf_counter() - start < 28  # not the time limit of each input
