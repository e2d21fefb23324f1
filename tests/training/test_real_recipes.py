"""The recipes for real models and data, each from its data to its report with the embedded model and few steps."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import recollect
from tests.commands import run

LIMITS = "recurrent.memory.config"
TINY = [
    *("actor_rollout_ref.model.path=tiny", "trainer.total_training_steps=1", "sft.steps=2", "sft.batch_size=4"),
    *("data.train_batch_size=2", "actor_rollout_ref.rollout.n=2", "data.val_max_samples=4"),
]
SHORT = [
    *(f"{LIMITS}.style=plain", f"{LIMITS}.chunk_size=48", f"{LIMITS}.max_prompt_length=48"),
    *(f"{LIMITS}.max_memorization_length=32", f"{LIMITS}.max_final_response_length=16"),
]


def squad_file(path: Path, paragraphs: int = 40) -> str:
    """A file in SQuAD's format."""
    articles = []
    for n in range(paragraphs):
        text = f"the house {n} is old. kolu {n} holds {n}72. nobody knows why."
        answer = {"text": f"{n}72", "answer_start": text.index(f"{n}72")}
        asked = {"id": f"q{n}", "question": f"what does kolu {n} hold?", "answers": [answer]}
        articles.append({"title": f"t{n}", "paragraphs": [{"context": text, "qas": [asked]}]})
    path.write_text(json.dumps({"data": articles}))
    return str(path)


def squad_tasks(folder: Path, *sizes: int) -> list[str]:
    """Settings that name a training and a validation file."""
    source = squad_file(folder / "squad.json")
    asked = [word for size in sizes for word in ("--paragraphs", str(size))]
    for split in ("train", "tune"):
        done = run("data", "squad", source, str(folder / f"{split}.jsonl"), *asked, "--split", split)
        assert done.returncode == 0, done.stderr
    return [f"data.train_files={folder / 'train.jsonl'}", f"data.val_files={folder / 'tune.jsonl'}"]


def phases(out: Path) -> set[str | None]:
    return {json.loads(line).get("phase") for line in (out / "metrics.jsonl").read_text().splitlines()}


def test_squad_memory(tmp_path: Path) -> None:
    out = tmp_path / "run"
    files = squad_tasks(tmp_path, 4)
    done = run("train", "squad_memory", *files, *TINY, *SHORT, f"trainer.default_local_dir={out}")
    assert done.returncode == 0, done.stderr
    assert "found" in done.stdout
    assert {"base", "sft"} <= phases(out)
    assert json.loads((out / "report.json").read_text())["held_out"]["rl"] is not None


def test_squad_memory_on_two_cores_takes_the_same_path(tmp_path: Path) -> None:
    files = squad_tasks(tmp_path, 2)
    done = run("train", "squad_memory", "size=cpu", *files, *TINY, *SHORT, "--dry-run")
    assert done.returncode == 0, done.stderr


def gsm8k_tasks(folder: Path) -> list[str]:
    """Settings that name a training and a validation file of problems."""
    rows = [
        {"question": f"{n} + {n}?", "answer": f"It is {n}+{n} = <<{n}+{n}={2 * n}>>{2 * n}.\n#### {2 * n}"}
        for n in range(40)
    ]
    (folder / "gsm8k.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for split in ("train", "tune"):
        done = run("data", "gsm8k", str(folder / "gsm8k.jsonl"), str(folder / f"g-{split}.jsonl"), "--split", split)
        assert done.returncode == 0, done.stderr
    return [f"data.train_files={folder / 'g-train.jsonl'}", f"data.val_files={folder / 'g-tune.jsonl'}"]


@pytest.mark.parametrize("tools", ["calculator", "none"])
def test_gsm8k_tools(tools: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    given = [*gsm8k_tasks(tmp_path), *TINY, f"tools={tools}", "agent.system_prompt=Go.", "sft.test_freq=1"]
    given += ["agent.max_tokens_per_turn=64", "data.max_response_length=64", "data.max_prompt_length=256"]
    done = run("train", "gsm8k_tools", *given, f"trainer.default_local_dir={out}")
    assert done.returncode == 0, done.stderr
    assert "held-out conversations after 2: loss" in done.stdout
    assert {"base", "sft"} <= phases(out)


@pytest.mark.parametrize("agent", ["react", "search_once"])
def test_squad_search(agent: str, tmp_path: Path) -> None:
    out, corpus = tmp_path / "run", str(tmp_path / "corpus.jsonl")
    files = squad_tasks(tmp_path)
    assert run("data", "passages", str(tmp_path / "squad.json"), corpus).returncode == 0
    given = [*files, *TINY, f"search.corpus={corpus}", f"search.cache_dir={tmp_path}", f"agent.agent_type={agent}"]
    given += ["agent.system_prompt=Go.", "search.top_k=1", f"{LIMITS}.style=plain"]
    done = run("train", "squad_search", *given, f"trainer.default_local_dir={out}")
    assert done.returncode == 0, done.stderr
    assert "28 sequences from 28 rows" in done.stdout
    assert {"base", "sft"} <= phases(out)


def test_squad_stages_on_two_cores_has_stages_of_its_own(tmp_path: Path) -> None:
    few = [key for key in TINY if not key.startswith("trainer.total_training_steps")]
    done = run("stages", "squad_stages", "size=cpu", *squad_tasks(tmp_path, 2), *few, *SHORT, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert re.search(r"memory\s+memory\s+6 steps", done.stdout), done.stdout


def test_squad_stages(tmp_path: Path) -> None:
    recipe = tmp_path / "stages.yaml"
    text = (Path(recollect.__file__).parent / "recipes" / "squad_stages.yaml").read_text()
    recipe.write_text(re.sub(r"(role: \w+, steps:) \d+", r"\1 1", text))
    few = [key for key in TINY if not key.startswith("trainer.total_training_steps")]
    out = tmp_path / "run"
    done = run("stages", str(recipe), *squad_tasks(tmp_path, 4), *few, *SHORT, f"trainer.default_local_dir={out}")
    assert done.returncode == 0, done.stderr
    report = json.loads((out / "report.json").read_text())
    assert [stage["role"] for stage in report["stages"]] == ["memory", "qa"]
    assert report["end_to_end"]["steps"] == 2
