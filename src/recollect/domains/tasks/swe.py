"""One wrong sign in a function, and the tests that show it."""

from __future__ import annotations

import random

from recollect.tasks.family import Stream
from recollect.tasks.names import Split, names, values
from recollect.types import Task

SIGNS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}
TEST = "python -m unittest -q"


def make(rng: random.Random, split: Split) -> Task:
    """A task whose repository has two modules, one of them broken, and a test."""
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


TASKS = Stream("swe", make)
