"""Weights on shared storage: whole, verified, and not for long."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest
import torch

from recollect.files.output import Unwritten
from recollect.samplers.fleet import weight_store
from recollect.samplers.fleet.weight_store import StoredWeights, WeightStore


def weights(seed: int) -> list[tuple[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [(f"layer.{i}.weight", torch.randn(30, 20, generator=generator)) for i in range(5)]


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.is_dir())


def test_what_is_written_is_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_store, "FILE_BYTES", 5000)
    store = WeightStore(tmp_path / "w", torch.float32)
    store.open()
    stored = store.write(3, iter(weights(0)))
    assert len(stored.files) == 2
    found = dict(stored.tensors())
    assert all(torch.equal(found[name], weight) for name, weight in weights(0))
    assert json.loads(stored.manifest())["folder"] == str(tmp_path / "w" / stored.label)
    assert stored.size == sum((stored.folder / name).stat().st_size for name in stored.files)
    half = WeightStore(tmp_path / "h", torch.bfloat16).write(0, weights(0))
    assert {t.dtype for _, t in half.tensors()} == {torch.bfloat16}


def test_versions_of_one_step_have_names_of_their_own_and_old_ones_go(tmp_path: Path) -> None:
    store = WeightStore(tmp_path / "w", torch.float32)
    store.open()
    first, other = store.write(0, weights(0)), store.write(0, weights(1))
    assert first.label != other.label
    assert store.write(0, weights(1)).label == other.label  # the same weights again
    assert names(store.folder) == sorted([first.label, other.label])
    last = store.write(1, weights(2))
    store.drop_old()
    assert names(store.folder) == sorted([other.label, last.label])
    (store.folder / "mine").mkdir()
    store.clear()
    assert names(store.folder) == ["mine"]  # what others keep there stays
    again = WeightStore(tmp_path / "x" / "y" / "w", torch.float32)
    again.open()
    again.clear()
    assert not (tmp_path / "x").exists()


def test_a_disk_that_is_full_leaves_nothing_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = WeightStore(tmp_path / "w", torch.float32)
    store.open()
    kept = store.write(0, weights(0))

    def full(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unwritten, match=r"could not be written: No space left on device; make room"):
        store.write(1, weights(1))
    assert names(store.folder) == [kept.label]


def test_storage_that_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a network file system does whose server is gone."""
    store = WeightStore(tmp_path / "w", torch.float32)
    store.open()
    store.write(0, weights(0))
    back = threading.Event()
    monkeypatch.setattr(weight_store, "STORAGE_S", 0.2)
    monkeypatch.setattr(os, "fsync", lambda descriptor: back.wait(30))
    with pytest.raises(Unwritten, match=r"the storage has not answered for 0.2.* s; when it is back the same"):
        store.write(1, weights(1))
    monkeypatch.setattr(weight_store.shutil, "rmtree", lambda folder, ignore_errors: back.wait(30))
    start = time.monotonic()
    for version in range(2):
        store.kept.append(StoredWeights(store.folder / str(version), version))
    store.drop_old()
    store.clear()  # what ends a run must not wait for ever
    with pytest.raises(Unwritten, match=r"the storage has not answered for 0.2 s"):
        store.open()
    assert time.monotonic() - start < 5
    back.set()
    monkeypatch.undo()
    assert store.write(1, weights(1)).folder.is_dir()


def test_opening_removes_what_a_killed_process_left(tmp_path: Path) -> None:
    store = WeightStore(tmp_path / "w", torch.float32)
    store.open()
    store.write(0, weights(0))
    (store.folder / ".writing").mkdir()
    again = WeightStore(tmp_path / "w", torch.float32)
    again.open()
    assert names(again.folder) == []
    assert again.probe.read_text() == again.token != store.token
