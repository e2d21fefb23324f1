"""arbor.yaml."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recollect.serve.arbor.arbor_config import VISIBLE, ArborConfig, choose_gpu, read_arbor_config
from recollect.types import BadInput


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("inference:\n  gpu_ids: '0'\n\ntraining:\n  gpu_ids: '1,2'\n", ArborConfig((0,), (1, 2))),
        ("training: {gpu_ids: 3}", ArborConfig((), (3,))),
        ("training: {gpu_ids: [1, 2]}\nstorage_path: here", ArborConfig((), (1, 2), Path("here"))),
    ],
)
def test_what_it_may_say(tmp_path: Path, text: str, config: ArborConfig) -> None:
    path = tmp_path / "arbor.yaml"
    path.write_text(text)
    assert read_arbor_config(path) == config


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("training: {gpu_ids: one}", "numbers"),
        ("training: {gpu_ids: '1,,2'}", "numbers"),
        ("training: {gpu_ids: -1}", "numbers"),
        ("training: {gpu_ids: }", "numbers"),
        ("training: {gpus: 1}", "nothing else"),
        ("training: 1", "nothing else"),
        ("inactivity_timeout: 30", "inactivity_timeout"),
        ("storage_path: [1]", "storage_path"),
        ("- 1", "mapping"),
        ("a: [", "YAML"),
    ],
)
def test_what_it_may_not(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "arbor.yaml"
    path.write_text(text)
    with pytest.raises(BadInput, match=word):
        read_arbor_config(path)


def test_the_gpu_that_trains_is_the_one_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VISIBLE, "7")
    said: list[str] = []
    choose_gpu(ArborConfig((0,), (1, 2)), False, said.append)
    assert os.environ[VISIBLE] == "7"
    choose_gpu(ArborConfig((0,), (1, 2)), True, said.append)
    assert os.environ[VISIBLE] == "1"
    assert "none here" in said[0]
    assert "[0, 2]" in said[1]
    choose_gpu(ArborConfig(), True, said.append)
    assert os.environ[VISIBLE] == "1"
