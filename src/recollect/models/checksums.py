"""SHA-256 of the files of a checkpoint, written with it and compared when it is read."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

NAME = "checksums.json"
STATE = "trainer_state.json"  # of a checkpoint
SFT_REPORT = "sft.json"  # of a run whose folder ``model`` has checksums
CHECKED = "files"  # the key in both that lists what has checksums, so that they cannot get lost unnoticed


class Damaged(ValueError):
    """A file is not what was written."""


def write_checksums(folder: Path) -> None:
    """Store the digest of every file in a folder, those of folders inside it included."""
    found = {name: digest_of(folder / name) for name in file_names(folder)}
    (folder / NAME).write_text(json.dumps(found, indent=2) + "\n")


def file_names(folder: Path) -> list[str]:
    """The files that checksums are kept of. What a folder belongs to lists them under ``CHECKED``."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != NAME)
    return [str(path.relative_to(folder)) for path in found]


def verify_checksums(folder: Path) -> None:
    """Refuse a folder in which a file is missing or is not what was written.

    One of an earlier version, which promises no checksums and has none, passes.
    """
    promised = _promised(folder)
    if not (folder / NAME).is_file():
        if promised:
            raise Damaged(f"{folder / NAME} is missing")
        return
    stored = _stored(folder / NAME)
    if unlisted := [name for name in promised if name not in stored]:
        raise Damaged(f"{folder / NAME} is damaged: it does not list {unlisted[0]}")
    for name, digest in stored.items():
        path = folder / name
        if not path.is_file():
            raise Damaged(f"{path} is missing")
        if digest_of(path) != digest:
            raise Damaged(f"{path} is damaged: it is not what was written (SHA-256)")


def _stored(path: Path) -> dict[str, str]:
    try:
        return dict(json.loads(path.read_text()))
    except (ValueError, TypeError):
        raise Damaged(f"{path} cannot be read") from None


def _promised(folder: Path) -> list[str]:
    """The files that have checksums, by what the folder's owner says; none where an earlier version wrote it."""
    found: list[str] = []
    for place in (folder / STATE, *([folder.parent / SFT_REPORT] if folder.name == "model" else [])):
        try:
            names = json.loads(place.read_text()).get(CHECKED)
        except (OSError, ValueError, AttributeError):
            continue  # who reads it says so
        found += map(str, names) if isinstance(names, list) else []
    return found


def digest_of(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
