"""Places to write to: one that takes no files is refused in a sentence, before any work is done."""

from __future__ import annotations

import tempfile
from pathlib import Path

from recollect.types import BadInput


def refuse_unwritable(folder: Path, what: str) -> None:
    """Refuse a folder, there already or not, that cannot be written to; ``what`` names it in the message."""
    place = folder.expanduser().absolute()
    try:
        place = next(p for p in (place, *place.parents) if p.exists())
        with tempfile.TemporaryFile(dir=place):  # permissions alone do not tell: read-only disks, /proc
            pass
    except OSError as error:
        why = f"{place} is not a folder that takes files ({error.strerror}); name another place"
        raise BadInput(f"{what} cannot be written: {why}") from None
