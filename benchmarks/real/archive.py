"""What of a job is small and worth keeping, and an archive of it that is whole at any time."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

MOST = 15 << 20  # bytes of an archive
LARGEST = (4 << 20, 1 << 20, 1 << 18)  # bytes of a file in it: the first limit with which the archive is small enough
SMALL = (
    *("config.yaml", "metrics.jsonl", "report.json", "report.md", "stages.png", "lineage.json", "fidelity.json"),
    *("plots/*", "trajectories/evaluation.jsonl.zst", "checkpoints/*/trainer_state.json"),
)


def pack(part: str, names: Sequence[str], out: Path, target: Path) -> None:
    """Write TARGET/PART.tar.gz from what jobs of these names have left so far."""
    temporary = target / f".{part}.tar.gz"
    for largest in LARGEST:
        with tarfile.open(temporary, "w:gz", compresslevel=4) as archive:
            for path in sorted({path for name in names for path in files_of(name, out)}):
                if path.stat().st_size <= largest:
                    archive.add(path, path.relative_to(out))
        if temporary.stat().st_size <= MOST:
            break
    os.replace(temporary, target / f"{part}.tar.gz")


def files_of(name: str, out: Path) -> Iterator[Path]:
    """The log, the results and the run of a job."""
    places = [out / "logs" / f"{name}.log", *(out / f"{name}.{end}" for end in ("json", "md", "png"))]
    run = out / name
    folders = [run, *(path.parent for path in run.glob("*/config.yaml"))]
    places += [path for folder in folders for pattern in SMALL for path in folder.glob(pattern)]
    places += sorted((out / f"{name}.items").glob("*"))
    yield from (path for path in places if path.is_file() and not path.is_symlink())
