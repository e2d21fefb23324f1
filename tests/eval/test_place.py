"""Results of one model are never written over those of another, nor over those of other data or settings."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from recollect.cli import app
from recollect.config.compose import compose, to_yaml
from recollect.eval.output_folder import place_name
from recollect.models.tiny import TINY
from recollect.samplers.checkpoint_roles import named
from recollect.types import BadInput

CHAT = ["agent.agent_type=chat", "agent.reward_name=qa_em", "data.max_response_length=2", "trainer.threads=1"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for folder in ("", "a", "b"):
        Path(folder or ".").mkdir(exist_ok=True)
        Path(folder, "t.jsonl").write_text(json.dumps({"question": f"say {folder}", "answer": "1"}) + "\n")
    for run in ("one", "two"):
        shutil.copytree(TINY, Path("runs", run, "step-0"))
    return tmp_path


def measured(*words: str) -> Any:
    done = CliRunner().invoke(app, ["eval", *words, "-q"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def results() -> dict[str, str]:
    return {str(p): p.read_text() for p in Path("runs/eval").glob("*/metrics.json")}


ONE = ["--model", "runs/one/step-0", "--data", "t.jsonl", *CHAT]


@pytest.mark.parametrize(
    "other",
    [
        ["--model", "runs/two/step-0", "--data", "t.jsonl", *CHAT],
        ["--model", "tiny", "--data", "t.jsonl", *CHAT],
        ["--model", "runs/one/step-0", "--data", "a/t.jsonl", *CHAT],
        ["--model", "runs/one/step-0", "--data", "t.jsonl", "--data", "b/t.jsonl", *CHAT],
        [*ONE, "--seeds", "2"],
        [*ONE, "trainer.seed=5"],
        [*ONE, "data.max_response_length=3"],
        [*ONE[:4], "needle", *CHAT, "agent.system_prompt=Be brief."],
    ],
    ids=lambda words: " ".join(words[:5]),
)
def test_results_of_anything_else_have_a_place_of_their_own(here: Path, other: list[str]) -> None:
    measured(*ONE)
    first = results()
    assert len(first) == 1
    measured(*other)
    both = results()
    assert len(both) == 2
    assert first.items() <= both.items()


def test_the_same_again_updates_its_own(here: Path) -> None:
    measured(*ONE)
    measured(*ONE)
    assert len(results()) == 1


def test_other_weights_at_the_same_place(here: Path) -> None:
    from recollect.models.tiny import save_scratch

    measured(*ONE)
    first = results()
    shutil.rmtree("runs/one/step-0")
    save_scratch(Path("runs/one/step-0"), 1, width=32, layers=1)
    measured(*ONE)
    assert first.items() < results().items()


def test_a_place_that_was_named_is_not_written_over(here: Path) -> None:
    measured(*ONE, "--out", "found")
    before = Path("found/metrics.json").read_text()
    measured(*ONE, "--out", "found")
    with pytest.raises(BadInput, match=r"found/metrics.json holds the results of runs/one/step-0; name another --out"):
        measured("--model", "runs/two/step-0", "--data", "t.jsonl", *CHAT, "--out", "found")
    with pytest.raises(BadInput, match="holds results of other data, settings or weights"):
        measured(*ONE, "trainer.seed=1", "--out", "found")
    assert Path("found/metrics.json").read_text() == before


LENGTHS = ["evaluation.lengths=[1]", "evaluation.tasks=[2]", "trainer.device=cpu"]


def test_held_out_results_that_were_named(here: Path) -> None:
    measured("runs/one/step-0", *LENGTHS, "--out", "found")
    measured(
        "runs/one/step-0", "evaluation.lengths=[1]", "evaluation.tasks=[3]", "trainer.device=cpu", "--out", "found"
    )
    kept = Path("found.json").read_text()
    for other in (
        ["runs/two/step-0", *LENGTHS],
        ["runs/one/step-0", *LENGTHS, "evaluation.first=9"],
        ["runs/one/step-0", *LENGTHS, "recurrent.memory.config.chunk_size=40"],
        ["--role", "memory=runs/one/step-0", "--role", "qa=runs/two/step-0", *LENGTHS],
    ):
        with pytest.raises(BadInput, match=r"found\.json holds .*name another --out"):
            measured(*other, "--out", "found")
    assert Path("found.json").read_text() == kept


def test_results_within_a_run(here: Path) -> None:
    """Its own keep their name; what was chosen otherwise than the run did is told apart."""
    shutil.copytree(TINY, Path("r", "checkpoints", "step-0"))
    Path("r/config.yaml").write_text(to_yaml(compose("needle", [])))
    name = lambda *settings, roles=(): place_name(named("r", roles, list(settings)))
    assert name() == name(*LENGTHS[:2]) == "step-0"
    assert name("evaluation.first=7") == "step-0+first-7"
    others = [
        name(roles=["qa=runs/one/step-0"]),
        name(roles=["qa=runs/two/step-0"]),
        name(roles=["qa=http://localhost:1/v1"]),
        name("data.val_files=a/t.jsonl"),
        name("data.val_files=b/t.jsonl"),
        name("recurrent.memory.config.chunk_size=40"),
        name("trainer.seed=3"),
    ]
    assert len({"step-0", *others}) == len(others) + 1
    assert all(other.startswith("step-0+") for other in others)
