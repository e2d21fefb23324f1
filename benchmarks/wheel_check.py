"""The installed wheel, without the sources: `make test-wheel` runs this in the environment of the wheel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def recollect(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("recollect")), *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)


def test_it_is_the_wheel_that_is_imported(tmp_path: Path) -> None:
    code = "import recollect, torch, sys; print(recollect.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "site-packages" in done.stdout


def test_it_trains(tmp_path: Path) -> None:
    done = recollect("train", "trainer.total_training_steps=2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs/recollect/needle/report.md").is_file()


def test_every_recipe_composes(tmp_path: Path) -> None:
    names = [line.split()[0] for line in recollect("recipes", cwd=tmp_path).stdout.splitlines() if line.strip()]
    assert len(names) > 5
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"title": "Rome", "text": "Rome is a city."}\n')
    asks_for = {"squad_search": [f"search.corpus={corpus}"]}
    for name in names:
        done = recollect("train", name, *asks_for.get(name, []), "--cfg", cwd=tmp_path)
        assert done.returncode == 0, done.stderr


def test_the_doctor_finds_nothing_broken(tmp_path: Path) -> None:
    done = recollect("doctor", "tiny", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert "pip install 'recollect-rl[" in done.stdout  # extras are not part of the wheel
