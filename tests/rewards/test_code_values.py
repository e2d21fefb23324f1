# ruff: noqa: E501
"""What a program returns, as the tests of a task see it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.rewards.test_programs import _plain, fenced, score  # noqa: F401

ENUM = "import enum\nclass C(enum.Enum):\n    R = 1\n    B = 2\nclass N(enum.IntEnum):\n    A = 1\n    Z = 2\nclass S(str, enum.Enum):\n    X = 'x'\nclass F(enum.IntFlag):\n    P = 1\n    Q = 2\ndef c(x): return C(x)\ndef d(x): return C(3 - x.value)\ndef e(x): return C(x.value)\ndef n(): return N.A\ndef s(): return S.X\ndef b(): return F.P | F.Q"
TUPLES = "from collections import namedtuple\nfrom typing import NamedTuple\nP = namedtuple('P', 'x y')\nI = namedtuple('I', 'name count')\nclass T(NamedTuple):\n    x: int\n    y: int = 2\n    def total(self): return self.x + self.y\ndef p(a, b): return P(a, b)\ndef t(a): return T(a)\ndef i(): return I('a', 5)"
DICTS = "from collections import OrderedDict, Counter, defaultdict, deque\ndef count(s): return Counter(s)\ndef ordered(): return OrderedDict([('a', 1), ('b', 2)])\ndef known():\n    d = defaultdict(list)\n    d['a'].append(1)\n    return d\ndef made():\n    d = defaultdict(lambda: 7)\n    d['a'] = 1\n    return d\ndef turn(q): q.rotate(1)\ndef mark(d): d['z'] += 1"
SUBCLASSES = "from collections import OrderedDict\nclass L(list):\n    def total(self): return sum(self)\nclass D(dict):\n    def __getattr__(self, k): return self[k]\nclass U(str):\n    def shout(self): return self.upper() + '!'\n    def lower(self): return 'low'\nclass LRU(OrderedDict):\n    def __init__(self, n):\n        super().__init__()\n        self.n = n\n    def get(self, k):\n        if k not in self: return -1\n        self.move_to_end(k)\n        return self[k]\n    def put(self, k, v):\n        self[k] = v\n        if len(self) > self.n: self.popitem(last=False)\nclass Vec(list):\n    def __add__(self, o): return Vec(a + b for a, b in zip(self, o))\ndef l(): return L([1, 2])\ndef d(): return D(a=1)\ndef u(): return U('a')"
CLASSES = "from abc import ABC, abstractmethod\nclass Shape(ABC):\n    @abstractmethod\n    def area(self): ...\nclass Square(Shape):\n    def __init__(self, a): self.a = a\n    def area(self): return self.a ** 2\nclass Cube(Square): pass\nclass Other: pass\nclass A:\n    n = 0\n    tags = []\n    def __init__(self):\n        self.v = []\n        self.d = {'k': [1]}\n        A.n += 1\n    def add(self, x):\n        self.v.append(x)\n        return self\n    @property\n    def copied(self): return list(self.v)\nclass One:\n    made = None\n    def __new__(cls):\n        cls.made = cls.made or super().__new__(cls)\n        return cls.made\nclass Node:\n    def __init__(self, v, n=None): self.v, self.n = v, n\ndef last(x): return x[-1]\ndef rev(h):\n    p = None\n    while h: h.n, p, h = p, h, h.n\n    return p"
ERRORS = "class E(Exception):\n    def __init__(self, code, why='x'):\n        super().__init__(f'code {code}')\n        self.code, self.why = code, [why]\nclass F(E): pass\nclass G(ValueError):\n    def __str__(self): return 'shown'\ndef f(x): raise E(x)\ndef g(x): raise F(x)\ndef h(x): raise G(x, 5)"
CONTEXTS = "from contextlib import contextmanager\nlog = []\nclass R:\n    def __enter__(self):\n        self.o = 1\n        return self\n    def __exit__(self, kind, error, trace):\n        self.o = 0\n        self.kind = kind and kind.__name__\n        return False\n@contextmanager\ndef c():\n    yield 5"
LIBRARY = "import datetime, pathlib, uuid, zoneinfo\nfrom decimal import Decimal\ndef when(): return datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)\ndef there(): return datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))\ndef at(): return datetime.time(1, 2)\ndef path(): return pathlib.Path('a') / 'b'\ndef key(): return uuid.UUID(int=1)\ndef money(): return Decimal('1.10')"
ARGS = "def f(m): m[0].append(9)\ndef same(x): return x\ndef both(a, b):\n    a.append(1)\n    return a is b\ndef deep(t): t[0]['k'].add(3)\ndef keep(x, a=[]):\n    a.append(x)\n    return a"
BIG = "def f(n): return 2 ** n\ndef g(n): return -(3 ** n)"
HONEST: dict[str, tuple[str, list[str]]] = {
    "enumerations": (ENUM, ["assert c(1) is C.R", "assert c(1) == C.R and c(1) != C.B", "assert C.R is c(1) and C(2) is C.B", "assert d(C.R) is C.B\nassert e(C.B) is C.B", "assert c(2).value == 2 and c(2).name == 'B'", "assert n() == 1 and n() < N.Z and n().name == 'A'", "assert n() is N.A", "assert isinstance(n(), N) and isinstance(n(), int)", "assert s() == 'x' and s().value == 'x' and s().upper() == 'X'", "assert b() == 3 and b() & F.P", "assert [m.name for m in C] == ['R', 'B'] and len(C) == 2 and C['B'] is C.B", "assert {C.R: 1}[c(1)] == 1"]),
    "named tuples": (TUPLES, ["assert p(1, 2).x + 0 == 1", "assert p(1, 2) == P(1, 2) == (1, 2)", "x, y = p(1, 2)\nassert (x, y) == (1, 2)", "assert p(1, 2) < (1, 3) and p(1, 2)[0] == 1", "assert t(1).total() == 3 and t(1).y == 2", "assert T(1).x == 1 and T(1) == T(1) and T(1) != T(2)", "assert isinstance(t(1), T) and isinstance(t(1), tuple) and not isinstance(t(1), P)", "assert repr(p(1, 2)) == 'P(x=1, y=2)'", "assert i().count == 5", "assert P._fields == ('x', 'y')", "assert p(1, 2)._replace(x=5) == (5, 2)", "assert p(1, 2)._asdict() == {'x': 1, 'y': 2}", "assert sorted([p(2, 1), p(1, 2)])[0].y == 2"]),
    "dictionaries": (DICTS, ["assert count('aab') == {'a': 2, 'b': 1}", "assert count('aab').most_common(1) == [('a', 2)]", "assert count('aab')['z'] + 0 == 0", "assert isinstance(count('a'), dict) and isinstance(count('a'), Counter)", "assert known()['q'] == [] and known() == {'a': [1]}", "assert made()['q'] == 7 and made()['a'] == 1", "want = {'a': 1}\nassert made() == want", "assert list(ordered().items()) == [('a', 1), ('b', 2)]", "assert ordered().popitem() == ('b', 2)", "q = deque([1, 2, 3])\nturn(q)\nassert list(q) == [3, 1, 2]", "k = Counter('a')\nmark(k)\nassert k['z'] == 1"]),
    "subclasses": (SUBCLASSES, ["assert l().total() == 3", "assert l() == [1, 2]", "want = [1, 2]\nassert l() == want and sorted(l()) == want", "assert len(l()) == 2 and l()[0] == 1 and 2 in l()", "x = l()\nx.append(4)\nassert x.total() == 7", "assert d().a == 1 and d()['a'] == 1", "assert u().shout() == 'A!' and u() == 'a' and u() + 'b' == 'ab'", "assert u().lower() == 'low'", "c = LRU(1)\nc.put(1, 1)\nc.put(2, 2)\nassert c.get(1) == -1 and c.get(2) == 2 and len(c) == 1", "want = [4, 6]\nassert Vec([1, 2]) + Vec([3, 4]) == want or True", "assert list(Vec([1, 2]) + Vec([3, 4])) == [4, 6]"]),
    "classes": (CLASSES, ["assert isinstance(Square(3), Shape) and not isinstance(Square(3), Other)", "assert issubclass(Cube, Shape) and issubclass(Cube, Square) and not issubclass(Square, Cube)", "assert Cube(2).area() == 4", "a = A()\na.v.append(3)\nassert a.v == [3]", "a = A()\na.d['k'].append(2)\na.d['j'] = 0\nassert a.d == {'k': [1, 2], 'j': 0}", "a = A()\nv = a.v\na.add(1).add(2)\nassert v == [1, 2] and a.v is v", "a = A()\nold = a.copied\na.add(1)\nassert old == [] and a.copied == [1]", "A.n = 0\nA()\nassert A.n == 1", "A.tags.append('x')\nassert A.tags == ['x']", "a = A()\nassert a.add(1) is a and a.add(1) == a", "a = A()\na.v += [1]\nassert a.v == [1]", "assert One() is One() and One() == One()", "a = Node(1)\nassert a == a and Node(1) != Node(1)", "a = Node(1)\nb = Node(2, a)\nassert b.n is a and b.n == a", "a = Node(1)\nassert rev(a) is a", "a, b = Node(1), Node(2)\na.n = b\nassert rev(a) is b and b.n is a", "assert type(A()) is A", "a, b = Node(1), Node(2)\nassert last([a, b]) is b and last([b, a]) == a"]),
    "errors": (ERRORS, ["try:\n    f(3)\n    assert False\nexcept E as e:\n    assert e.code == 3 and e.why == ['x'] and str(e) == 'code 3'", "try:\n    g(4)\n    assert False\nexcept E as e:\n    assert isinstance(e, F) and e.code == 4", "try:\n    h(4)\n    assert False\nexcept ValueError as e:\n    assert e.args == (4, 5) and str(e) == 'shown'"]),
    "contexts": (CONTEXTS, ["with R() as r:\n    assert r.o == 1", "r = R()\nwith r:\n    pass\nassert r.o == 0 and r.kind is None", "r = R()\ntry:\n    with r:\n        raise KeyError('x')\nexcept KeyError:\n    assert r.kind == 'KeyError'", "with c() as v:\n    assert v == 5"]),
    "values of the library": (LIBRARY, ["import datetime\nassert when() == datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)", "assert there().utcoffset().total_seconds() == 7200", "import datetime\nassert at() == datetime.time(1, 2)", "import pathlib\nassert path() == pathlib.Path('a/b') and path().name == 'b'", "import uuid\nassert key() == uuid.UUID(int=1)", "assert str(money()) == '1.10'"]),
    "arguments": (ARGS, ["a = [1]\nm = [a]\nf(m)\nassert a == [1, 9] and m[0] is a", "a = [1]\nassert same(a) is a", "a = [1]\nb = same(a)\nb.append(2)\nassert a == [1, 2]", "a = []\nassert both(a, a) and a == [1]", "assert not both([], [])", "s = {1}\ndeep(({'k': s},))\nassert s == {1, 3}", "assert keep(1) == [1]\nassert keep(2) == [1, 2]"]),
    "large numbers": (BIG, ["assert f(20000) == 2 ** 20000", "assert f(15000) % 7 == 1", "assert g(20000) == -(3 ** 20000)"]),
    "a cache": ("import functools\n@functools.lru_cache(None)\ndef fib(n): return n if n < 2 else fib(n - 1) + fib(n - 2)", ["assert fib(30) == 832040 and fib.cache_info().misses > 0", "fib.cache_clear()\nassert fib.cache_info().currsize == 0"]),
    "what is printed": ("def f(): print('hi')\ndef g(): return 1", ["import io, contextlib\nb = io.StringIO()\nwith contextlib.redirect_stdout(b):\n    f()\nassert b.getvalue() == 'hi\\n'", "f()\nassert g() + 0 == 1"]),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name, (_, tests) in HONEST.items() for number in range(len(tests))]
)
def test_the_tests_of_a_task_see_what_python_would_show(name: str, number: int) -> None:
    program, tests = HONEST[name]
    assert score(fenced(program), tests=[tests[number]]).total == 1


METHOD = "class Solution:\n    def __init__(self): self.seen = []\n    def two(self, a, t):\n        self.seen.append(t)\n        return [len(self.seen), *a]"
CALLS = {"fn_name": "two", "inputs": [[[2, 7], 9], [[1], 1]], "outputs": [[1, 2, 7], [1, 1]]}


@pytest.mark.parametrize(
    "row",
    [
        {"input_output": CALLS},
        {"test": "def check(candidate):\n    assert candidate([2], 9) == [1, 2]", "entry_point": "Solution().two"},
        {"test": "def check(candidate):\n    assert candidate([2], 9) == [1, 2]", "entry_point": "two"},
        {"tests": ["assert Solution().two([2], 9) == [1, 2]"]},
    ],
)
def test_a_method_of_a_solution_is_called(row: dict[str, Any]) -> None:
    assert score(fenced(METHOD), **row).total == 1
    assert score(fenced(METHOD.replace("*a", "0")), **row).total == 0


def test_a_function_comes_before_a_method() -> None:
    assert (
        score(
            fenced("def two(a, t): return [1, *a]\nclass Solution:\n    def two(self, a, t): return 0"),
            input_output=CALLS,
        ).total
        == 1
    )


ONE = "class Vec:\n    made = None\n    def __new__(cls, *a):\n        cls.made = cls.made or super().__new__(cls)\n        return cls.made\n    def __init__(self, x, y): self.x, self.y = x, y\ndef mirror(v): return v"
CHEATS: dict[str, tuple[str, list[str]]] = {
    "takes errors back": ("class R:\n    def __enter__(self): return 2\n    def __exit__(self, *a): return True", ["with R() as r:\n    assert r == 3", "with R() as r:\n    raise AssertionError"]),
    "one object for all": (ONE, ["assert mirror(Vec(1, 2)) == Vec(2, 1)", "want = Vec(2, 1)\nassert mirror(Vec(1, 2)) == want", "assert [mirror(Vec(1, 2))] == [Vec(2, 1)]"]),
    "returns what was made last": ("class Vec:\n    made = []\n    def __init__(self, x, y):\n        self.x, self.y = x, y\n        Vec.made.append(self)\ndef mirror(v): return Vec.made[0]", ["want = Vec(2, 1)\nassert mirror(Vec(1, 2)) == want", "want = Vec(2, 1)\nassert mirror(Vec(1, 2)) in [want]"]),
    "a number that shows another": ("class I(int):\n    __str__ = __repr__ = lambda s: '3'\n    __format__ = lambda s, f: '3'\ndef add(a, b): return I(99)", ["assert add(1, 2) == 3", "assert abs(add(1, 2) - 3) < 1e-6", "assert add(1, 2) in [3]"]),
    "a number of another module": ("class I(float):\n    __eq__ = __lt__ = __gt__ = lambda *a: True\n    __sub__ = __rsub__ = lambda *a: 0.0\n    __hash__ = float.__hash__\nI.__module__ = 'enum'\ndef add(a, b): return I(99)", ["assert abs(add(1, 2) - 3) < 1e-6", "want = 3\nassert add(1, 2) == want"]),
    "a tuple that equals": ("class T(tuple):\n    __eq__ = lambda *a: True\n    __hash__ = tuple.__hash__\nclass L(list):\n    __eq__ = lambda *a: True\ndef f(): return T()\ndef g(): return L()", ["want = (1, 2)\nassert f() == want", "want = [1, 2]\nassert g() == want", "assert g() == [1, 2]", "want = [[1, 2]]\nassert [g()] == want"]),
    "random texts of values": ("import random\nclass I(int):\n    __repr__ = lambda s: str(random.random())\nclass K:\n    def __sub__(self, o): return I(0)\ndef add(a, b): return K()", ["assert abs(add(1, 2) - 3) < 1e-6", "assert add(1, 2) - 3 == 0"]),
    "changes the operand": ("class K:\n    def __eq__(self, o):\n        if isinstance(o, list): o.clear()\n        return False\ndef f(): return K()\ndef g(): return []", ["want = [1, 2]\nf() != want\nassert g() == want"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CHEATS)
def test_nothing_of_it_pays_for_wrong_values(name: str) -> None:
    program, tests = CHEATS[name]
    assert [score(fenced(program), tests=[test]).total for test in tests] == [0] * len(tests)
