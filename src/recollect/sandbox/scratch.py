"""A box's folder on the host, which goes with its owner: what a killed run leaves behind, the next one removes."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

from recollect.files.removal import remove_folder

PREFIX = "recollect-sandbox-"
OWNER = "owner"  # locked for as long as its process lives


class ScratchFolder:
    """A new folder that anybody may read."""

    def __init__(self) -> None:
        remove_left()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.path.chmod(0o755)
        self._owner = os.open(self.path / "new", os.O_CREAT | os.O_RDWR)
        fcntl.flock(self._owner, fcntl.LOCK_EX)
        (self.path / "new").rename(self.path / OWNER)  # nobody ever sees it unlocked

    def close(self) -> None:
        """Remove it."""
        remove_folder(self.path)
        if self._owner >= 0:
            os.close(self._owner)
        self._owner = -1


def remove_left() -> None:
    """Remove the folders whose owners are gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            owner = os.open(folder / OWNER, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:  # it is just being made, or somebody else's
            continue
        try:
            fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_folder(folder)
        except OSError:  # its owner lives
            pass
        finally:
            os.close(owner)
