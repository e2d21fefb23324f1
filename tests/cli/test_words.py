"""Settings may stand anywhere among the words of `ask` and `eval`."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest

from recollect.cli.command_words import ask_arguments, is_setting, plain_first
from recollect.types import BadInput

QUESTION = "What does mira hold?"


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("trainer.seed=1", True),
        ("+agent.init_args.X=2", True),
        ("++agent.system_prompt=Be brief.", True),
        ("model=scratch", True),
        ("If x = 3, what is x?", False),
        ("x=3, so what is x?", False),
        (QUESTION, False),
        ("tiny", False),
    ],
)
def test_what_is_a_setting(word: str, expected: bool) -> None:
    assert is_setting(word) is expected


def test_any_order_is_the_same_question() -> None:
    for words in permutations(["tiny", QUESTION, "trainer.seed=1"]):
        assert ask_arguments(words, False) == ("tiny", QUESTION, ["trainer.seed=1"])


def test_roles_need_no_checkpoint(tmp_path: Path) -> None:
    for words in permutations([QUESTION, "trainer.seed=1", "trainer.device=cpu"]):
        checkpoint, question, settings = ask_arguments(words, True)
        assert (checkpoint, question) == (None, QUESTION)
        assert settings == [word for word in words if word != QUESTION]
    assert ask_arguments(["tiny", "a=1", QUESTION], True) == ("tiny", QUESTION, ["a=1"])


def test_a_recipe_after_the_question() -> None:
    assert ask_arguments(["tiny", QUESTION, "needle", "a.b=1"], False) == ("tiny", QUESTION, ["needle", "a.b=1"])
    assert plain_first(["a.b=1", "tiny", "needle"]) == ["tiny", "needle", "a.b=1"]


@pytest.mark.parametrize(("words", "said"), [(["tiny", "a.b=1"], "ask what"), ([], "ask what"), (["tiny"], "ask what")])
def test_no_question(words: list[str], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        ask_arguments(words, False)


def test_a_question_without_quotes() -> None:
    with pytest.raises(BadInput, match='put the question in quotes: "What does mira hold'):
        ask_arguments(["tiny", *QUESTION.split()], False)


def test_ask_takes_a_setting_before_the_question(tmp_path: Path) -> None:
    from tests.commands import run

    (tmp_path / "d.txt").write_text("mira holds 472.")
    done = run("ask", "tiny", "trainer.seed=1", "--document", str(tmp_path / "d.txt"), QUESTION, "-q")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
