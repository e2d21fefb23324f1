"""SHA-256 of the files of a checkpoint, written with it and compared when it is read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

NAME = "checksums.json"


class Damaged(ValueError):
    """A file is not what was written."""


def write_checksums(folder: Path) -> None:
    """Store the digest of every file in a folder, those of folders inside it included."""
    found = {str(path.relative_to(folder)): digest_of(path) for path in _files(folder)}
    (folder / NAME).write_text(json.dumps(found, indent=2) + "\n")


def verify_checksums(folder: Path) -> None:
    """Refuse a folder in which a file is missing or is not what was written; one without checksums passes."""
    if not (folder / NAME).is_file():
        return
    try:
        stored = dict(json.loads((folder / NAME).read_text()))
    except (ValueError, TypeError):
        raise Damaged(f"{folder / NAME} cannot be read") from None
    for name, digest in stored.items():
        path = folder / name
        if not path.is_file():
            raise Damaged(f"{path} is missing")
        if digest_of(path) != digest:
            raise Damaged(f"{path} is damaged: it is not what was written (SHA-256)")


def digest_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != NAME)
