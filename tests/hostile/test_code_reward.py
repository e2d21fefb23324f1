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


VEC = (
    "class Vec:\n    def __init__(self, x, y): self.x, self.y = x, y\n    def __add__(self, o): return Vec(self.x + o.x, self.y + o.y)\n"
    "    def __mul__(self, k): return Vec(self.x * k, self.y * k) if isinstance(k, int) else self.x * k.x + self.y * k.y\n    __rmul__ = __mul__\n"
    "    def __eq__(self, o): return isinstance(o, Vec) and (self.x, self.y) == (o.x, o.y)\n    def __hash__(self): return hash((self.x, self.y))\n"
    "    def __lt__(self, o): return (self.x, self.y) < (o.x, o.y)\n    def __abs__(self): return (self.x ** 2 + self.y ** 2) ** 0.5\n    def __bool__(self): return bool(self.x or self.y)\n"
    "def mirror(v): return Vec(v.y, v.x)\ndef corner(x, y): return Vec(x, y)"
)
OF_VECTORS = [
    "assert Vec(1, 2) + Vec(3, 4) == Vec(4, 6)",
    "assert Vec(1, 2) * 3 == Vec(3, 6)",
    "want = Vec(2, 1)\nassert mirror(Vec(1, 2)) == want",
    "assert [mirror(Vec(1, 2))] == [Vec(2, 1)]",
    "assert mirror(Vec(1, 2)) != Vec(1, 2)",
    "assert mirror(corner(3, 4)) == corner(4, 3)",
    "assert mirror(Vec(1, 2)) in {Vec(2, 1)}",
]
HONEST_OBJECTS = {
    "vectors": (VEC, [*OF_VECTORS, "assert 2 * Vec(1, 2) == Vec(2, 4)", "assert Vec(1, 2) * Vec(3, 4) == 11", "assert Vec(1, 2) < Vec(1, 3)", "assert not Vec(1, 3) < Vec(1, 2)", "assert abs(Vec(3, 4)) - 5 == 0", "assert Vec(1, 0) and not Vec(0, 0)", "assert sorted([Vec(2, 1), Vec(1, 2)])[0] == Vec(1, 2)", "assert len({Vec(1, 2), Vec(1, 2)}) == 1"]),
    "a dataclass": ("from dataclasses import dataclass\n@dataclass(order=True)\nclass P:\n    x: int\n    name: str = 'a'\ndef up(p): return P(p.x + 1, p.name)", ["assert up(P(1)) == P(2)", "assert up(P(1, 'b')) == P(2, 'b')", "assert P(1) < P(2) and max(P(1), P(2)).x == 2", "assert P(1) != P(1, 'b')"]),
    "part of it counts": ("class Card:\n    def __init__(self, rank, suit): self.rank, self.suit = rank, suit\n    def __eq__(self, o): return self.rank == o.rank\ndef best(c): return max(c, key=lambda v: v.rank)", ["a, b = Card(3, 'h'), Card(9, 's')\nassert best([a, b]) == b", "assert best([Card(3, 'h'), Card(9, 's')]) == Card(9, 'x')"]),
    "identity": ("class Node:\n    def __init__(self, v): self.v = v; self.next = None\nclass Chain:\n    def __init__(self): self.head = None\n    def add(self, n): self.head = n", ["c, n = Chain(), Node(1)\nc.add(n)\nassert c.head == n", "assert c.head != Node(1)"]),
    "equal to a number": ("class Money:\n    def __init__(self, n): self.n = n\n    def __eq__(self, o): return self.n == getattr(o, 'n', o)\ndef pay(n): return Money(n)", ["want = 5\nassert pay(5) == want", "assert pay(5) != want + 1"]),
    "modulo": ("class Mod:\n    def __init__(self, n): self.n = n % 7\n    def __eq__(self, o): return self.n == (o.n if isinstance(o, Mod) else o % 7)\ndef m(n): return Mod(n)", ["want = [3, 10]\nassert m(10) == want[0] and m(3) == want[1]", "assert m(10) == Mod(3)"]),
    "valid arguments only": ("class Day:\n    def __init__(self, m, d):\n        if not (0 < m < 13 and 0 < d < 32): raise ValueError\n        self.m, self.d = m, d\n    def __eq__(self, o): return (self.m, self.d) == (o.m, o.d)\ndef after(x): return Day(x.m, x.d + 1)", ["assert after(Day(1, 5)) == Day(1, 6)"]),
    "a walk": ("class Node:\n    def __init__(self, v, next=None): self.v, self.next = v, next\ndef build(xs):\n    head = None\n    for x in reversed(xs): head = Node(x, head)\n    return head", ["node, seen = build([1, 2]), []\nwhile node:\n    seen.append(node.v)\n    node = node.next\nassert seen == [1, 2]"]),
    "holds": ("class Span:\n    def __init__(self, a, b): self.a, self.b = a, b\n    def __contains__(self, x): return isinstance(x, int) and self.a <= x <= self.b", ["assert 3 in Span(1, 5)", "assert 9 not in Span(1, 5)"]),
    "an expected error": ("class Empty(LookupError): pass\ndef first(x):\n    if not x: raise Empty('none')\n    return x[0]", ["import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        with self.assertRaises(Empty): first([])\n    def test_b(self):\n        with self.assertRaisesRegex(LookupError, 'none'): first([])"]),
    "helpers of the program's": ("from math import isclose, gcd\nimport numpy as np\ndef f(x): return x / 3", ["assert isclose(f(1), 1 / 3)", "assert gcd(12, int(f(24))) == 4", "assert np.allclose(f(6), 2.0)"]),
    "named like a helper": ("def gcd(a, b): return b if a == 0 else gcd(b % a, a)\ndef product(x):\n    p = 1\n    for v in x: p *= v\n    return p", ["assert gcd(12, 8) + 0 == 4", "assert product([2, 3]) - 6 == 0"]),
    "named like a built-in": ("def pow(a, b): return a ** b if b >= 0 else None", ["assert abs(pow(2, 3) - 8) < 1e-9", "assert pow(2, -1) is None"]),
    "an entry point like a built-in": ("def round(x, n): return int(x * 10 ** n + 0.5) / 10 ** n", {"test": "def check(candidate):\n    assert abs(candidate(2.567, 2) - 2.57) < 1e-6\n    assert round(candidate(2.5, 0)) == 3\n", "entry_point": "round"}),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST_OBJECTS)
def test_honest_objects_and_names_pass(name: str) -> None:
    program, tests = HONEST_OBJECTS[name]
    assert score(program, **(tests if isinstance(tests, dict) else {"tests": tests})) == 1


ENDS = {
    "StopIteration": "def f(x): raise StopIteration",
    "a subclass": "class E(StopIteration): pass\ndef f(x): raise E",
    "StopAsyncIteration": "def f(x): raise StopAsyncIteration",
    "a subclass of the async one": "class E(StopAsyncIteration): pass\ndef f(x): raise E",
    "GeneratorExit": "def f(x): raise GeneratorExit",
    "its own exit": "class E(Exception): pass\nE.__name__ = E.__qualname__ = 'StopIteration'\ndef f(x): raise E",
}
LOOPS = [
    "assert all(map(f, [1, 2]))",
    "assert all(a == b for a, b in zip(map(f, [1, 2]), [1, 4]))",
    "want = iter([1, 4])\nfor got in map(f, [1, 2]):\n    assert got == next(want)",
    "assert not [v for v in map(f, [1, 2]) if v != 1 and v != 4]",
    "assert not list(filter(lambda v: f(v) != v * v, [1, 2])) and f(1) is not None",
    "assert next(map(f, [1]), 1) == 1",
    "for got in iter(lambda: f(2), 4):\n    assert False",
]


@pytest.mark.parametrize("name", ENDS)
def test_ending_the_judges_loop_is_an_error(name: str) -> None:
    assert score(ENDS[name], tests=LOOPS) == 0


def test_loops_over_right_values_pass() -> None:
    assert score("def f(x): return x * x", tests=LOOPS) == 1


SUPPLIED = {
    "a class math": ("class math:\n    isclose = staticmethod(lambda *a, **k: True)\ndef add(a, b): return 99", {"tests": ["assert math.isclose(add(1, 2), 3)"]}),
    "a class np": ("class np:\n    allclose = staticmethod(lambda *a, **k: True)\ndef add(a, b): return 99", {"tests": ["assert np.allclose(add(1, 2), 3)"]}),
    "an object math": ("class M:\n    def isclose(self, *a, **k): return True\nmath = M()\ndef add(a, b): return 99", {"tests": ["assert math.isclose(add(1, 2), 3)"]}),
    "another module as math": ("import operator as math\nmath.isclose = lambda *a: True\ndef add(a, b): return 99", {"tests": ["assert math.isclose(add(1, 2), 3)"]}),
    "its isclose": ("def isclose(*a, **k): return True\ndef add(a, b): return 99", {"tests": ["assert isclose(add(1, 2), 3)"]}),
    "another function as isclose": ("from operator import ne as isclose\ndef add(a, b): return 99", {"tests": ["assert isclose(add(1, 2), 3)"]}),
    "its Counter": ("class Counter:\n    def __init__(self, x): pass\n    def __eq__(self, o): return True\ndef add(a, b): return 99", {"tests": ["assert Counter([add(1, 2)]) == Counter([3])"]}),
    "with an entry point": ("def isclose(*a): return True\ndef add(a, b): return 99", {"test": "def check(c):\n    assert isclose(c(1, 2), 3)\n", "entry_point": "add"}),
    "imported in one function": ("class math:\n    isclose = staticmethod(lambda *a, **k: True)\ndef add(a, b): return 99", {"tests": ["def g():\n    import math\n    return math.pi\nassert math.isclose(add(1, 2), 3)"]}),
    "abs beside round": ("def round(x, n=0): return 99\nabs = lambda x: 0", {"tests": ["assert abs(round(2.567, 2) - 2.57) < 1e-6"]}),
    "abs beside pow": ("def pow(a, b): return 99\nabs = len = max = lambda *x: 0", {"tests": ["assert abs(pow(2, 3) - 8) < 1e-6", "assert max(pow(2, 3), 0) == 8 + 0"]}),
    "all beside sum": ("def sum(a): return 99\nall = any = lambda x: True", {"tests": ["assert all(sum(a) == b for a, b in [([1, 2], 3)])"]}),
    "abs beside round, entry point": ("def round(x, n=0): return 99\nabs = lambda x: 0", {"test": "def check(candidate):\n    assert abs(candidate(2.567, 2) - 2.57) < 1e-6\n", "entry_point": "round"}),
    "its isinstance": ("def round(x): return 99\nisinstance = lambda *a: True", {"tests": ["assert isinstance(round(2.5), str)"]}),
}  # fmt: skip


@pytest.mark.parametrize("name", SUPPLIED)
def test_names_of_pythons_are_not_the_programs(name: str) -> None:
    program, tests = SUPPLIED[name]
    assert score(program, **tests) == 0


FAKE = "class Vec:\n    def __init__(self, x, y): pass\n    def __add__(self, o): return self\n    __mul__ = __rmul__ = __add__\n"
FAKES = "def mirror(v): return Vec(9, 9)\ndef corner(x, y): return Vec(x, y)"
FRAME = (
    "import sys\ndef link():\n    f = sys._getframe()\n    while f:\n        for v in f.f_locals.values():\n            if type(v).__name__ == 'Link': return v\n        f = f.f_back\n"
    "def hook():\n    it = link()\n    old, first = it._pack_object, []\n    def pack(value, depth):\n        if type(value).__name__ != 'Vec': return old(value, depth)\n        first.append(old(value, depth))\n        return first[0]\n    it._pack_object = pack\nhook()\n"
)
UNEQUAL = {
    "equals everything": FAKE + "    def __eq__(self, o): return True\n    __hash__ = lambda s: 1\n" + FAKES,
    "equals its kind": FAKE + "    def __eq__(self, o): return isinstance(o, Vec)\n    __hash__ = lambda s: 1\n" + FAKES,
    "forged numbers": FRAME + FAKE + FAKES,
    "forged numbers and equality": FRAME + FAKE + "    def __eq__(self, o): return True\n    __hash__ = lambda s: 1\n" + FAKES,
    "forged numbers from a call": FRAME + FAKE + FAKES.replace("return Vec(9, 9)", "hook(); return Vec(9, 9)"),
    "the oldest": FAKE.replace("pass", "Vec.n = self.n = getattr(Vec, 'n', 0) + 1") + "    def __eq__(self, o): return self.n + 1 == getattr(o, 'n', 0) or self.n == getattr(o, 'n', 0) + 1\n    __hash__ = lambda s: 1\n" + FAKES,
    "every second time": FAKE + "    n = 0\n    def __eq__(self, o):\n        Vec.n += 1\n        return Vec.n % 2 == 0\n    __hash__ = lambda s: 1\n" + FAKES,
}  # fmt: skip


@pytest.mark.parametrize("name", UNEQUAL)
def test_equality_of_the_programs_objects_tells_them_apart(name: str) -> None:
    assert score(UNEQUAL[name], tests=[t for t in OF_VECTORS if "!=" not in t]) == 0


OPERATORS = "class Z:\n    __sub__ = __rsub__ = __add__ = __abs__ = __neg__ = lambda s, *a: {}\n    __lt__ = lambda s, o: True\n    __gt__ = lambda s, o: False\n    __eq__ = lambda s, o: o == 0\n    __bool__ = lambda s: False\n    __contains__ = lambda s, o: True\n    __round__ = __int__ = __float__ = __index__ = lambda s, *a: 0\ndef add(a, b): return Z()"
WITH_OPERATORS = [*CHECKS, "zero = 0\nassert add(1, 2) - 3 == zero", "assert not (add(1, 2) - 3)", "assert abs(add(1, 2) - 3) < 1e-6", "assert not abs(3 - add(1, 2))", "assert 3 in add(1, 2)", "assert add(1, 2) < 4", "assert -(add(1, 2) - 3) == zero"]  # fmt: skip


@pytest.mark.parametrize("gives", ["0.0", "Z()", "s"])
def test_arithmetic_that_forgets_its_operand_earns_nothing(gives: str) -> None:
    assert score(OPERATORS.format(gives), tests=WITH_OPERATORS) == 0


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
