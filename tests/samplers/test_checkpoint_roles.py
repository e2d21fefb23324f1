"""`eval` and `ask` with a model for each role."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recollect.cli import app
from recollect.eval.items import fingerprint
from recollect.models.checkpoints import find_checkpoint
from recollect.runtime.console import Console
from recollect.samplers.bindings import RoleBinder
from recollect.samplers.checkpoint_roles import named
from recollect.types import BadInput
from recollect.workflows.eval.eval_run import answer_question, question_task, reader, run_evaluation
from tests.policies.outside import Outside, running
from tests.samplers.test_bindings import answers

SETTINGS = ["evaluation.lengths=[1]", "evaluation.tasks=[3]", "data.needle.chunks=2", "trainer.device=cpu"]


def test_a_folder_plays_one_role_and_an_address_another(tmp_path: Path, small_model: Path) -> None:
    with running(Outside(answers)) as outside:
        who = named(None, [f"memory={small_model}", f"qa={outside.url}"], list(SETTINGS))
        run_evaluation(who, Console(quiet=True), tmp_path / "out")
        result = json.loads((tmp_path / "out.json").read_text())
        assert result["roles"] == {"memory": str(small_model), "qa": outside.url}
        assert result["failures"] == 0
        assert len(outside.bodies) == 3
        (tmp_path / "notes.txt").write_text("mira holds 472. kolu holds 123.")
        who = named(None, [f"memory={small_model}", f"qa={outside.url}"], list(SETTINGS))
        assert answer_question(who, tmp_path / "notes.txt", "What does mira hold?", Console(quiet=True)).strip()
        assert len(outside.bodies) == 4


def test_results_of_other_players_are_not_taken_over(tmp_path: Path, small_model: Path) -> None:
    cfg = named(None, ["memory=tiny", "qa=tiny"], list(SETTINGS)).cfg
    other = shutil.copytree(small_model, tmp_path / "other")
    (other / "model.safetensors").touch()  # written at another time
    models = [str(small_model), str(other), "tiny", "http://h:1/v1"]
    played = [{"memory": a, "qa": b} for a in models for b in models]
    assert len({fingerprint(cfg, players) for players in played}) == len(played)
    assert fingerprint(cfg, {"qa": "tiny", "memory": "a"}) == fingerprint(cfg, {"memory": "a", "qa": "tiny"})


def test_results_with_another_corpus_are_not_taken_over(tmp_path: Path) -> None:
    corpus = tmp_path / "passages.jsonl"
    corpus.write_text('{"text": "a"}\n')
    cfg = named(None, ["memory=tiny", "qa=tiny"], [*SETTINGS, f"search.corpus={corpus}"]).cfg
    before = fingerprint(cfg, {})
    assert before == fingerprint(cfg, {})
    corpus.write_text('{"text": "ab"}\n')
    assert before != fingerprint(cfg, {})


def test_a_run_is_its_newest_checkpoint(tmp_path: Path, small_model: Path) -> None:
    """Wherever a model folder may be named: as a frozen role, behind a server, in `eval`."""
    run = tmp_path / "run"
    for step in (9, 10):
        shutil.copytree(small_model, run / "checkpoints" / f"step-{step}")
    assert find_checkpoint(str(run)) == (str(run / "checkpoints" / "step-10"), run)
    cfg = named(None, ["memory=tiny", "qa=tiny"], list(SETTINGS)).cfg
    cfg.recurrent.memory.config.chunk_size = 64
    frozen = RoleBinder(cfg, None, "What?").frozen("qa", str(run))
    assert frozen.path == str(run / "checkpoints" / "step-10")
    shutil.rmtree(run / "checkpoints")
    (run / "checkpoints").mkdir()
    with pytest.raises(BadInput, match="a run without a checkpoint yet"):
        RoleBinder(cfg, None, "What?").frozen("qa", str(run))


@pytest.mark.parametrize("more", [["--role", "qa=tiny", "--role", "memory=tiny"], ["tiny", "--baseline", "rag"]])
def test_a_file_of_data_is_never_passed_over_in_silence(more: list[str]) -> None:
    done = CliRunner().invoke(app, ["eval", "--data", "some.jsonl", *more])
    assert isinstance(done.exception, BadInput)
    assert "data.val_files=FILE" in str(done.exception)


def test_a_checkpoint_plays_what_no_role_is_given(small_model: Path) -> None:
    who = named(str(small_model), ["qa=tiny"], list(SETTINGS))
    policies = who.policies("What?")
    assert set(policies.bindings) == {"*", "qa"}
    assert policies.bindings["qa"].policy is not policies.bindings["*"].policy
    assert not any(b.trainable for b in policies.bindings.values())
    policies.close()


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
        named(None, given, list(SETTINGS)).policies("What?")


def test_a_model_of_another_kind_reads_a_short_document_at_once(tmp_path: Path, small_model: Path) -> None:
    shutil.copytree(small_model, tmp_path / "other")
    for file in (tmp_path / "other").glob("*.jinja"):
        file.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    other, sentence, said = str(tmp_path / "other"), "Anna was born in Rome. ", list[str]()
    who = named(other, [], [], reads=True)
    assert who.window is not None
    texts = sentence, sentence * who.window, " \n"
    kinds = [reader(who, question_task(text, "Where?"), said.append).agent.agent_type for text in texts]
    assert kinds == ["concat", "recurrent", "recurrent"]
    assert len(said) == 1
    short = question_task(sentence, "Where?")
    for setting in ("agent.agent_type=rag", "recurrent.memory.config.chunk_size=512"):
        chosen = named(other, [], [setting], reads=True)
        assert reader(chosen, short, said.append) is chosen.cfg
    made_here = named(str(small_model), [], [], reads=True)
    assert reader(made_here, short, said.append) is made_here.cfg
