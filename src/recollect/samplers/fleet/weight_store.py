"""Weights on storage that learner and servers share: written whole or not at all, with digests, and not for long.

A version is a folder of safetensors files. Its name holds a digest of its content, so that two versions of one step, as
before and after SFT, are never taken for each other.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from recollect.files.output import writing
from recollect.runs.directory import sync_to_disk
from recollect.runtime.threads import in_time
from recollect.samplers.sampler import NamedWeights

if TYPE_CHECKING:
    import torch
    from torch import Tensor

T = TypeVar("T")
FILE_BYTES = 256 << 20  # of tensors in a file; so much is in memory at once
STORAGE_S = 60.0  # for the storage to answer
BYTES_PER_S = 50e6  # slower storage than this is taken for one that hangs
KEPT = 2  # versions: the current one, and the one before it for servers that are late


@dataclass(frozen=True)
class StoredWeights:
    """One version on the storage."""

    folder: Path
    version: int
    files: dict[str, tuple[int, str]] = field(default_factory=dict)  # name → bytes and sha256

    @property
    def label(self) -> str:
        """What servers call it, and write on every completion."""
        return self.folder.name

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(size for size, _ in self.files.values())

    def manifest(self) -> str:
        """What a server needs to verify the files."""
        return json.dumps({"folder": str(self.folder), "files": self.files})

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every weight by name."""
        from safetensors.torch import load_file

        for name in self.files:
            yield from load_file(self.folder / name).items()


class WeightStore:
    """A folder with the newest versions."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        self.folder, self.dtype = folder.expanduser().absolute(), dtype
        self.kept: list[StoredWeights] = []  # the oldest first
        self.made: list[Path] = []  # folders that were not there before
        self.token = secrets.token_hex(8)

    def open(self) -> None:
        """Make the folder anew; what an earlier process left in it goes."""
        with writing(self.folder):
            self._in_time(self._remove)
            self._in_time(self._make)
        self.kept = []

    def _make(self) -> None:
        self.made = [place for place in (self.folder, *self.folder.parents) if not place.exists()]
        self.folder.mkdir(parents=True, exist_ok=True)
        self.probe.write_text(self.token)

    @property
    def probe(self) -> Path:
        """A file with the token, to ask servers whether they see it."""
        return self.folder / "probe.txt"

    def write(self, version: int, weights: NamedWeights) -> StoredWeights:
        """Write a version: file by file, synced, then under its name at once. A full disk leaves nothing behind."""
        half = self.folder / ".writing"
        with writing(self.folder):
            self._in_time(lambda: _emptied(half))
            try:
                files = {}
                for name, data in self._files(weights):
                    files[name] = self._in_time(partial(_written, half / name, data), len(data))
                digest = hashlib.sha256(json.dumps(files).encode()).hexdigest()
                stored = StoredWeights(self.folder / f"{version}-{digest[:12]}", version, files)
                self._in_time(lambda: _named(half, stored.folder))
            except TimeoutError:
                raise  # it cannot be removed either
            except BaseException:
                shutil.rmtree(half, ignore_errors=True)
                raise
        self.kept = [old for old in self.kept if old.folder != stored.folder] + [stored]
        return stored

    def _in_time(self, work: Callable[[], T], size: int = 0) -> T:
        """Do something with the storage, which may hang."""
        return in_time(work, STORAGE_S + size / BYTES_PER_S, "the storage")

    def drop_old(self) -> None:
        """Delete versions that no server needs any more; call it when all have the newest."""
        old, self.kept = self.kept[:-KEPT], self.kept[-KEPT:]
        with suppress(TimeoutError):  # who writes next says that the storage hangs
            self._in_time(partial(_gone, [version.folder for version in old]))

    def clear(self) -> None:
        """Delete everything that this store writes, if the storage answers."""
        self.kept = []
        with suppress(TimeoutError):
            self._in_time(self._remove)

    def _remove(self) -> None:
        for path in self.folder.glob("*-*"):
            if path.is_dir() and path.name.partition("-")[0].isdigit():
                shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(self.folder / ".writing", ignore_errors=True)
        with suppress(OSError):
            self.probe.unlink()
        for place in self.made:  # where nothing else is in them
            with suppress(OSError):
                place.rmdir()

    def _files(self, weights: NamedWeights) -> Iterator[tuple[str, bytes]]:
        """File names and contents."""
        from safetensors.torch import save

        for number, part in enumerate(_parts(self._converted(weights))):
            yield f"part-{number:05d}.safetensors", save(part)

    def _converted(self, weights: NamedWeights) -> Iterable[tuple[str, Tensor]]:
        for name, weight in weights:
            kind = self.dtype if weight.is_floating_point() else weight.dtype
            yield name, weight.detach().to("cpu", kind).contiguous()


def _parts(weights: Iterable[tuple[str, Tensor]]) -> Iterator[dict[str, Tensor]]:
    part: dict[str, Tensor] = {}
    size = 0
    for name, weight in weights:
        part[name] = weight
        size += weight.numel() * weight.element_size()
        if size >= FILE_BYTES:
            yield part
            part, size = {}, 0
    if part:
        yield part


def _emptied(folder: Path) -> None:
    """Make a folder anew."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def _gone(folders: Iterable[Path]) -> None:
    """Delete folders."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _named(half: Path, folder: Path) -> None:
    """Give what was written its name, on the disk too."""
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(half, folder)
    sync_to_disk(folder.parent)


def _written(path: Path, data: bytes) -> tuple[int, str]:
    """Write and sync a file; returns its size and digest."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return len(data), hashlib.sha256(data).hexdigest()
