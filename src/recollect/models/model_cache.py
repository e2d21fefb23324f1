"""Models that were converted on this machine, kept in the user's cache so that the second start is quick."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from recollect.files.output import refuse_unwritable, writing
from recollect.models.checkpoints import problem
from recollect.models.checksums import NAME, write_checksums
from recollect.types import BadInput


def cache_folder() -> Path:
    """The folder of converted models below the user's cache directory; it may not be there yet."""
    place = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(place).expanduser() / "recollect" / "models"


def cached(name: str) -> Path | None:
    """A converted model that is there and whole."""
    folder = cache_folder() / name
    return folder if folder.is_dir() and not problem(folder) else None


def make_cached(name: str, make: Callable[[Path], object]) -> Path:
    """A converted model, made now unless it is there; two processes may do it at once."""
    folder = cache_folder() / name
    if (found := cached(name)) is not None:
        return found
    refuse_unwritable(folder, f"the cache of converted models ({folder.parent}; XDG_CACHE_HOME moves it)")
    with writing(folder), new_folder(folder) as made:
        make(made.folder)
        write_checksums(made.folder)
        if folder.exists() and cached(name) is None:
            shutil.rmtree(folder)  # it is damaged
        made.keep()
    return folder


class new_folder:
    """A folder that is filled beside its place and renamed in, so it is never half there. Use it as a context."""

    def __init__(self, out: Path) -> None:
        self.out = out
        out.parent.mkdir(parents=True, exist_ok=True)
        self.work = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        self.folder = self.work / out.name
        self.folder.mkdir()

    def __enter__(self) -> new_folder:
        return self

    def keep(self) -> None:
        """Put it in its place; what another process has put there meanwhile stays."""
        if self.out.is_dir() and not any(self.out.iterdir()):
            self.out.rmdir()
        try:
            self.folder.rename(self.out)
        except OSError:
            if not self.out.is_dir():
                raise

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.work, ignore_errors=True)


def copy_cached(folder: Path, out: Path) -> None:
    """Copy a converted model to a new folder that its owner may edit, so without checksums."""
    with new_folder(out) as made:
        shutil.copytree(folder, made.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(NAME))
        made.keep()


def refuse_filled(out: Path) -> Path:
    """The absolute path of a new folder; refuses one that holds something or cannot be written."""
    out = out.expanduser().absolute()
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise BadInput(f"{out} is not empty; name a new folder with --out")
    refuse_unwritable(out, f"--out {out}")
    return out
