"""The reward for programs, with a plain interpreter in place of the sandbox."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

from recollect.rewards import find_reward
from recollect.rewards import programs as code
from recollect.rewards.code_tests import read_tests
from recollect.rewards.programs import program
from recollect.rewards.scoring import call
from recollect.types import Score
from tests.rewards.attempts import attempt, task

RUNS: list[str] = []


async def interpreter(text: str, stdin: str = "", timeout: float = 10.0) -> tuple[int, str, str]:
    RUNS.append(text)

    def run() -> tuple[int, str, str]:
        try:
            done = subprocess.run(
                [sys.executable, "-I", "-c", text], input=stdin, capture_output=True, text=True, timeout=timeout
            )
        except subprocess.TimeoutExpired as late:
            return 124, (late.stdout or b"").decode(), ""
        return done.returncode, done.stdout, done.stderr

    return await asyncio.to_thread(run)


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    RUNS.clear()
    monkeypatch.setattr(code, "run_python", interpreter)


def score(answer: str, name: str = "code_reward", **fields: Any) -> Score:
    return asyncio.run(call(find_reward(name), task(**fields), attempt(answer), plain=True))


def fenced(text: str) -> str:
    return f"Here it is:\n```python\n{text}\n```\nDone."


ASSERTS = {
    "tests": ["assert add(1, 2) == 3", "assert add(0, 0) == 0", "assert -1 == add(1, -2)", "assert add(2, 2) > 3"]
}
ADD = "def add(a, b):\n    return a + b"


def test_assertions() -> None:
    assert score(fenced(ADD), **ASSERTS) == Score(1.0, {"passed": 1.0, "tests": 4.0})
    assert len(RUNS) == 1
    assert score(fenced("def add(a, b):\n    return a - b"), **ASSERTS).total == 0.25
    assert score(fenced("def add(a, b):\n    return 3"), **ASSERTS).total == 0.25
    assert score(fenced("def add(a, b):\n    return 5"), "code_reward(partial=false)", **ASSERTS).total == 0
    assert score(fenced(ADD), "code_reward(partial=false)", **ASSERTS).total == 1


def test_text_in_and_out() -> None:
    rows: list[dict[str, Any]] = [
        {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7"]},
        {"input_output": '{"inputs": ["1 2", "3 4"], "outputs": ["3", "7"]}'},
        {"tests": [{"input": "1 2", "output": "3"}, {"input": "3 4", "output": "7 \n\n"}]},
    ]
    for row in rows:
        assert score(fenced("a, b = map(int, input().split())\nprint(a + b)"), **row).total == 1
        assert score(fenced("print(3)"), **row).total == 0.5
        assert score(fenced("print(3); raise SystemExit(1)"), **row).total == 0
        assert score(fenced("print('3\\n7')"), **row).total == 0


def test_other_data_sets() -> None:
    humaneval = "def check(candidate):\n    x = 2\n    assert candidate(1, x) == 3\n"
    humaneval += "    for i in range(3):\n        assert candidate(i, i) == 2 * i\n"
    row = {"test": humaneval, "entry_point": "add"}
    assert score(fenced(ADD), **row) == Score(1.0, {"passed": 1.0, "tests": 2.0})
    assert score(fenced("def add(a, b):\n    return 3"), **row).total == 0.5
    mbpp = {"test_list": ["assert math.floor(half(3)) == 1"], "test_setup_code": "import math", "test_imports": []}
    assert score(fenced("def half(x):\n    return x / 2"), **mbpp).total == 1
    apps = {"input_output": {"fn_name": "pair", "inputs": [[1, "a"], [2, "b"]], "outputs": [[[1, "a"]], [2, "b"]]}}
    assert score(fenced("def pair(a, b):\n    return a, b"), **apps).total == 1


def test_values_of_every_kind() -> None:
    program = "from collections import Counter, namedtuple\nP = namedtuple('P', 'a b')\nvalues = "
    program += "[Counter('aab'), P(1, 2), {1, 2}, (1,), (), [], {}, None, True, 1.5, -0.0, 'a\\n\"b', b'x', 2j]"
    wanted = "[{'a': 2, 'b': 1}, (1, 2), {2, 1}, (1,), (), [], {}, None, True, 1.5, 0.0, 'a\\n\"b', b'x', 2j]"
    values = eval(wanted)
    tests = [f"assert values[{i}] == {v!r}" for i, v in enumerate(values)] + [
        f"assert [values[1], values[2]] == {values[1:3]!r}"
    ]
    assert score(fenced(program), tests=tests).total == 1
    assert all(kind == "value" for part in read_tests({"tests": tests}).parts for kind, _, _ in part.steps)  # type: ignore[union-attr]


MAIN_PARTS = {
    "input": "n = int(input())\n    print(add(n, n))",
    "unittest": "import unittest\n    unittest.main()",
    "an exit": "import sys\n    sys.exit(0)",
    "endless": "while True: pass",
}


@pytest.mark.parametrize("name", MAIN_PARTS)
def test_a_main_part_does_not_run_where_functions_are_called(name: str) -> None:
    program = fenced(f"{ADD}\nif __name__ == '__main__':\n    {MAIN_PARTS[name]}")
    rows: list[dict[str, Any]] = [
        {"test_list": ["assert add(1, 2) == 3"]},
        {"test_list": ["assert abs(add(1, 2) - 3) < 1e-6"]},
        {"input_output": {"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]}},
        {"test": "def check(candidate):\n    assert candidate(1, 2) == 3", "entry_point": "add"},
    ]
    assert [score(program, "code_reward(timeout=5)", **row).total for row in rows] == [1, 1, 1, 1]


def test_a_main_part_runs_for_text_in_and_out() -> None:
    program = fenced(f"{ADD}\nif __name__ == '__main__':\n    print(add(int(input()), 1))")
    assert score(program, inputs=["1", "2"], outputs=["2", "3"]).total == 1


@pytest.mark.parametrize("test", ["assert copied(1) == 1", "assert copied(1) + 0 == 1"])
def test_a_program_is_a_module_that_others_find(test: str) -> None:
    program = (
        "from __future__ import annotations\nimport pickle\nfrom dataclasses import dataclass, field\n@dataclass\n"
    )
    program += "class P:\n    x: int = field(default=0)\ndef copied(x): return pickle.loads(pickle.dumps(P(x))).x"
    assert score(fenced(program), tests=[test]).total == 1


EQUAL = "    def __eq__(self, other): return True\n    def __repr__(self): return '3'\n"
CHEATS = {
    "exits": "import sys\nsys.exit(0)",
    "exits hard": "import os\nos._exit(0)",
    "equals everything": f"class A:\n{EQUAL}def add(a, b): return A()",
    "int that equals": f"class A(int):\n{EQUAL}def add(a, b): return A(99)",
    "exits in the call": "import os\ndef add(a, b): os._exit(0)",
    "prints verdicts": "print('\\n'.join(f'@recollect {i} 1' for i in range(9)))\ndef add(a, b): raise ValueError",
    "prints all": "import sys\nfor i in range(9):\n    for v in range(-3, 5): print('@recollect', i, v)\nsys.exit()",
    "patches print": "import builtins\nbuiltins.AssertionError = int\ndef add(a, b): return None",
    "hangs": "while True: pass",
    "hangs later": "def add(a, b):\n    while True: pass",
    "nothing": "",
    "comment": "# add",
    "broken": "def add(a, b) return",
    "no function": "x = 1",
    "input": "input()",
}


@pytest.mark.parametrize("cheat", CHEATS)
def test_tests_are_not_passed_without_the_right_values(cheat: str) -> None:
    values = {"tests": ["assert add(1, 2) == 3", "assert add(0, 4) == 4"]}
    assert score(fenced(CHEATS[cheat]), "code_reward(timeout=1)", **values).total == 0


@pytest.mark.parametrize(
    "cheat",
    ["exits", "exits hard", "exits in the call", "prints verdicts", "prints all", "patches print", "no function"],
)
def test_checks_inside_are_proven(cheat: str) -> None:
    assert score(fenced(CHEATS[cheat]), tests=["assert abs(add(1, 2) - 3) < 1e-6"]).total == 0
    assert score(fenced(ADD), tests=["assert abs(add(1, 2) - 3) < 1e-6"]).total == 1


def test_the_expected_value_is_not_in_the_program() -> None:
    score(fenced(ADD), tests=["assert add(1, 2) == 987654"])
    assert "987654" not in RUNS[0]


def test_a_test_that_hangs_does_not_undo_those_before_it() -> None:
    slow = "def add(a, b):\n    while a > 5: pass\n    return a + b"
    tests = ["assert add(1, 2) == 3", "assert add(6, 1) == 7"]
    assert score(fenced(slow), "code_reward(timeout=2)", tests=tests).total == 0.5


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("```python\na = 1\n```\n```python\nb = 2\n```", "b = 2\n"),
        ("```\na = 1\n```", "a = 1\n"),
        ("```bash\nls\n```", None),
        ("x = 1\nprint(x)", "x = 1\nprint(x)"),
        ("The answer is 5", None),
        ("5", None),
        ("", None),
        ("```python\n\n```", None),
        ("```python\nopen", None),
    ],
)
def test_the_program_of_an_answer(answer: str, expected: str | None) -> None:
    assert program(answer, attempt(answer=answer)) == expected


def test_the_program_of_an_earlier_turn() -> None:
    assert program("It works.", attempt("```python\na = 1\n```", "It works.")) == "a = 1\n"


@pytest.mark.parametrize(
    "row", [{}, {"tests": []}, {"tests": ["x = 1"]}, {"tests": ["assert ("]}, {"inputs": ["1"], "outputs": []}]
)
def test_a_task_without_tests_has_no_verdict(row: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="code_reward"):
        score(fenced(ADD), **row)
