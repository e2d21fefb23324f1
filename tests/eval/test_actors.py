"""`eval` and `ask` with a model for each role."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recollect.console import Console
from recollect.eval.actors import named
from recollect.eval.command import answer_question, run_evaluation
from recollect.types import BadInput
from tests.policies.outside import Outside, running
from tests.train.test_roles import answers

SETTINGS = ["evaluation.lengths=[1]", "evaluation.tasks=[3]", "data.needle.chunks=2", "trainer.device=cpu"]


def test_a_folder_plays_one_role_and_an_address_another(
    tmp_path: Path, small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(Outside(answers)) as outside:
        who = named(None, [f"memory={small_model}", f"qa={outside.url}"], list(SETTINGS))
        run_evaluation(who, Console(quiet=True), tmp_path / "out")
        result = json.loads((tmp_path / "out.json").read_text())
        assert result["roles"] == {"memory": str(small_model), "qa": outside.url}
        assert result["failures"] == 0
        assert len(outside.bodies) == 3
        (tmp_path / "notes.txt").write_text("mira holds 472. kolu holds 123.")
        capsys.readouterr()
        who = named(None, [f"memory={small_model}", f"qa={outside.url}"], list(SETTINGS))
        answer_question(who, tmp_path / "notes.txt", "What does mira hold?", Console(quiet=True))
        assert capsys.readouterr().out.strip()
        assert len(outside.bodies) == 4


def test_a_checkpoint_plays_what_no_role_is_given(small_model: Path) -> None:
    who = named(str(small_model), ["qa=tiny"], list(SETTINGS))
    cast = who.cast("What?")
    assert set(cast.bindings) == {"*", "qa"}
    assert cast.bindings["qa"].policy is not cast.bindings["*"].policy
    assert not any(b.trainable for b in cast.bindings.values())
    cast.close()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["memory"], "is not NAME=DIR_OR_URL"),
        (["qa=tiny"], "who plays memory"),
        (["memory=tiny", "qa=tiny", "user=tiny"], "has no such role; it has memory, qa"),
        (["memory=tiny", "qa=http://127.0.0.1:9/v1"], "Connection error to fixed model API"),
    ],
)
def test_what_cannot_be(given: list[str], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        named(None, given, list(SETTINGS)).cast("What?")
