"""Errors whose text is a program, and messages as long as a file: one short line, and the right exit code."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from recollect.files.yaml import parse_yaml
from recollect.rewards.scoring import call_batch, score_groups
from recollect.runtime.error_text import MOST, MOST_SHOWN, error_text, listed, named_error, shortened
from recollect.types import LONGEST_MESSAGE, BadInput, Group, Task, Trajectory
from tests.commands import run

EVIL = """
import sys


class Name(str):
    def __format__(self, spec):
        sys.exit(5)


class Meta(type):
    @property
    def __name__(cls):
        sys.exit(5)


class Evil(Exception):
    def __str__(self):
        sys.exit(5)
    __repr__ = __str__


class Named(Exception, metaclass=Meta):
    pass


class Text(Exception):
    def __str__(self):
        return Name("text")


class Broken(Exception):
    def __str__(self):
        return 5


class Interrupting(Exception):
    def __str__(self):
        raise KeyboardInterrupt


class Half(Exception):
    def __str__(self):
        return "a\\ud800"


class Long(Exception):
    def __str__(self):
        return "x" * 5_000_000


class Outside(BaseException):
    def __str__(self):
        sys.exit(5)


class Number:
    def __float__(self):
        sys.exit(5)


class Exit(SystemExit):
    def __str__(self):
        sys.exit(5)


KINDS = {kind.__qualname__: kind for kind in (Evil, Named, Text, Broken, Interrupting, Half, Long, Outside, Exit)}


"""
KINDS = ("Evil", "Named", "Text", "Broken", "Interrupting", "Half", "Long", "Outside", "Exit")
SMALL = [
    "data.train_batch_size=2", "actor_rollout_ref.rollout.n=2", "trainer.total_training_steps=1", "sft.steps=0",
    "data.needle.chunks=1", "data.val_max_samples=2", "trainer.test_freq=-1", "trainer.val_before_train=false",
]  # fmt: skip


def made(kind: str) -> BaseException:
    names: dict[str, object] = {}
    exec(EVIL, names)
    return names["KINDS"][kind]("said")  # type: ignore[index]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_has_a_text(kind: str) -> None:
    error = made(kind)
    assert type(error_text(error)) is str
    assert len(named_error(error)) <= MOST + 100
    assert named_error(error).startswith(f"{kind}: ")
    named_error(error).encode()


WHERE = {
    "reward": "def reward(answer):\n    raise KINDS['{}']('x')\n",
    "batch": "def reward(answer, trajectories):\n    raise KINDS['{}']('x')\nfrom recollect import reward as mark\n"
    "reward = mark(level='batch')(reward)\n",
    "async": "async def reward(answer):\n    raise KINDS['{}']('x')\n",
    "number": "def reward(answer):\n    return Number()\n",
}


PLACES = [("reward", kind) for kind in KINDS if kind != "Interrupting"]


@pytest.mark.parametrize(
    ("where", "kind"),
    [*PLACES, ("batch", "Evil"), ("async", "Evil"), ("async", "Outside"), ("number", "Evil")],
)
def test_a_reward_whose_error_cannot_be_read_is_a_failure(where: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(EVIL + WHERE[where].replace("{}", kind))
    key = "custom_reward_function.path=mine.py"
    done = run("train", "needle", key, "custom_reward_function.name=reward", *SMALL,
               f"trainer.default_local_dir={tmp_path / 'run'}", "--quiet", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert len(done.stderr) < 3 * MOST_SHOWN
    assert "failed" in done.stderr


def test_a_plugin_that_cannot_be_loaded_and_says_nothing(tmp_path: Path) -> None:
    for kind in KINDS:
        (tmp_path / f"{kind}.py").write_text(EVIL + f"raise KINDS['{kind}']('x')\n")
        done = run("train", "needle", f"agent.reward_name={kind}.py:reward", "--dry-run", cwd=tmp_path)
        assert done.returncode == 2, (kind, done.returncode, done.stderr)
        assert f"{kind}.py" in done.stderr


def test_an_estimator_that_ends_the_program_is_told(tmp_path: Path) -> None:
    body = "def mine(rewards, values, mask, trajectories, groups, **rest):\n    "
    for code, text in (("sys.exit(0)", "sys.exit(0)"), ("raise KINDS['Evil']()", "Evil: (its message")):
        (tmp_path / "mine.py").write_text(EVIL + body + code + "\n")
        out = tmp_path / f"run{len(code)}"
        done = run("train", "needle", "algorithm.adv_estimator=mine.py:mine", *SMALL,
                   f"trainer.default_local_dir={out}", "--quiet", cwd=tmp_path)  # fmt: skip
        assert done.returncode == 1, (done.returncode, done.stderr)
        assert text in done.stderr


# ---- a reward of many trajectories ----


def test_a_plain_reward_does_not_hold_up_the_loop() -> None:
    def slow(answer: str) -> float:
        time.sleep(0.3)
        return 1.0

    async def go() -> tuple[int, list[float]]:
        beats = 0

        async def beat() -> None:
            nonlocal beats
            while True:
                await asyncio.sleep(0.01)
                beats += 1

        clock = asyncio.ensure_future(beat())
        scores = await call_batch(slow, [Task("a", "q")] * 2, [Trajectory("a", 0), Trajectory("a", 1)])
        clock.cancel()
        return beats, [score.total for score in scores]

    beats, scores = asyncio.run(go())
    assert scores == [1.0, 1.0]
    assert beats >= 5


def test_a_plain_reward_that_hangs_meets_its_deadline() -> None:
    def hangs(answer: str) -> float:
        time.sleep(30)
        return 1.0

    group = Group(Task("a", "q"), [Trajectory("a", 0)])
    start = time.monotonic()
    asyncio.run(score_groups(hangs, [group], 0.2))
    assert time.monotonic() - start < 10
    assert group.trajectories[0].failure is not None


# ---- long messages ----


def test_messages_are_bounded() -> None:
    assert len(str(BadInput("x" * 5_000_000))) < LONGEST_MESSAGE + 100
    assert str(BadInput("short")) == "short"
    assert shortened("x" * 5_000_000).endswith("(5,000,000 characters in all)")
    assert listed(f"k{i}" for i in range(200_000)).endswith("k19 and 199,980 more")
    assert len(listed(["x" * 1000] * 1000)) < 3000


@pytest.mark.parametrize(
    "args",
    [
        ["train", "wide.yaml", "--dry-run"],
        ["train", "long.yaml", "--dry-run"],
        ["train", "names.yaml", "--dry-run"],
        ["train", "data.train_files=wide.jsonl", "--dry-run"],
        ["train", "data.train_files=wide.csv", "--dry-run"],
        ["convert", "wide.jsonl", "--out", "o.jsonl"],
        ["sft-data", "wide.jsonl", "--out", "o"],
        ["sft", "data.train_files=wide.jsonl"],
        ["data", "gsm8k", "wide.jsonl", "o.json"],
        ["pipeline", "wide.yaml"],
    ],
    ids=lambda args: " ".join(args[:2]),
)
def test_a_command_never_says_more_than_a_page(args: list[str], tmp_path: Path) -> None:
    row = {f"key{i}": 1 for i in range(20_000)}
    (tmp_path / "wide.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "wide.csv").write_text(",".join(["a"] * 20_000) + "\n")
    (tmp_path / "wide.yaml").write_text("".join(f"key{i}: 1\n" for i in range(5_000)))
    (tmp_path / "long.yaml").write_text("trainer:\n  seed: " + "v" * 900_000 + "\n")
    (tmp_path / "names.yaml").write_text(f"agent:\n  tools: [{', '.join(f'k{i}' for i in range(5_000))}]\n")
    done = run(*args, cwd=tmp_path)
    assert done.returncode == 2, done.stderr[:500]
    assert len(done.stderr) < MOST_SHOWN + 200
    assert done.stderr.count("\n") == 1


# ---- numbers in YAML ----

HUGE = {
    "sexagesimal": ":".join(["59"] * 3000),
    "negative": "-" + ":".join(["59"] * 3000),
    "hexadecimal": "0x" + "f" * 20_000,
    "binary": "0b" + "1" * 20_000,
    "octal": "0" + "7" * 20_000,
    "decimal": "9" * 20_000,
    "fraction": ":".join(["59"] * 3000) + ".5",
    "date": "2001-99-99",
    "offset": "2001-12-14t21:59:43.10-99:99",
}


@pytest.mark.parametrize("name", HUGE)
@pytest.mark.parametrize("form", ["trainer:\n  seed: {}\n", "trainer: [[{}]]\n", "? {}\n: 1\n"])
def test_numbers_that_yaml_makes_too_large(form: str, name: str) -> None:
    with pytest.raises(BadInput, match=r"^some\.yaml"):
        parse_yaml(form.format(HUGE[name]), "some.yaml")


@pytest.mark.parametrize("args", [["train", "x.yaml", "--dry-run"], ["pipeline", "x.yaml"], ["stages", "x.yaml"]])
def test_commands_name_the_file_of_such_a_number(args: list[str], tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(f"trainer:\n  seed: {HUGE['sexagesimal']}\n")
    done = run(*args, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "x.yaml" in done.stderr
    assert done.stderr.count("\n") == 1


def test_ordinary_numbers_stay() -> None:
    assert parse_yaml("a: 1:30\nb: 0xff\nc: [1_000, 2001-12-14]\n", "x")["a"] == 90
