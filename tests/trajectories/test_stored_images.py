"""Images of stored attempts: files beside the rows, written once, and read back into the same ids."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recollect.files.removal import remove_folder
from recollect.images.image_ids import FIRST
from recollect.packing.samples import trajectory_samples
from recollect.runs.directory import RunDirectory
from recollect.trajectories.codec import decode
from recollect.trajectories.stored_rows import trajectory_rows
from recollect.types import BadInput, Completion, Group, Score, Task, Trajectory, Turn
from tests.seeing import pictures, shown

A, B, _ = pictures()


def attempt() -> Group:
    first = [9, *shown(A).tolist(), 11]
    second = [*first, 12, 13, *shown(B).tolist(), 14]
    done = lambda *ids: Completion(ids, (-0.5,) * len(ids), "stop", 3, "said")
    turns = [
        Turn("agent", array("q", first), done(12, 13), images=(A,)),
        Turn("agent", array("q", second), done(15), images=(A, B)),
    ]
    return Group(Task("t", "q"), [Trajectory("t", i, turns, "said", "stop", Score(1.0)) for i in range(2)])


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    run = RunDirectory(tmp_path / "run")
    (run.path / "trajectories").mkdir(parents=True)
    for step in (1, 2):
        run.save_trajectories(f"step-{step:06d}", [attempt()])
    return run.path


def rows(stored: Path) -> list[tuple[str, Any]]:
    return list(trajectory_rows([str(stored)]))


def test_images_are_written_once(stored: Path) -> None:
    files = sorted(p.name for p in (stored / "trajectories" / "images").iterdir())
    assert files == sorted(f"{image.digest}.png" for image in (A, B))
    (_, row), *_ = rows(stored)
    assert max(row["turns"][1]["prompt_ids"]) < 64
    assert [about["image"] for about in row["turns"][1]["images"]] == [A.digest, B.digest]


def test_what_is_read_back_trains_the_same(stored: Path) -> None:
    made = attempt().trajectories[0]
    place, row = rows(stored)[0]
    _, again = decode(row, place)
    assert [turn.images for turn in again.turns] == [(A,), (A, B)]
    (mine,), (theirs,) = (trajectory_samples(t, 0, 0) for t in (made, again))
    assert np.array_equal(mine.ids, theirs.ids)
    assert np.array_equal(mine.mask, theirs.mask)
    assert mine.images == theirs.images == (A, B)
    assert not mine.mask[mine.ids >= FIRST].any()


@pytest.mark.parametrize("name", ["images/../../x.png", "/etc/passwd", "images/a.png"])
def test_other_files_are_not_read(stored: Path, name: str) -> None:
    place, row = rows(stored)[0]
    with pytest.raises(BadInput, match="a stored image is images/ and its digest"):
        decode({**row, "images": {A.digest: name}}, place)


def test_an_image_that_is_missing_or_another(stored: Path) -> None:
    place, row = rows(stored)[0]
    file = stored / "trajectories" / "images" / f"{A.digest}.png"
    file.write_bytes(B.data)
    with pytest.raises(BadInput, match="is not the image that was stored"):
        decode(row, place)
    file.unlink()
    with pytest.raises(BadInput, match="No such file"):
        decode(row, place)
    remove_folder(stored / "trajectories" / "images")
    with pytest.raises(BadInput, match="No such file"):
        decode(row, place)


@pytest.mark.parametrize("change", [{"at": 40}, {"rows": 0}, {"rows": -2, "columns": -2}, {"at": -3}, {"image": "x"}])
def test_a_place_that_cannot_be(stored: Path, change: dict[str, Any]) -> None:
    place, row = rows(stored)[0]
    row["turns"][0]["images"][0] |= change
    with pytest.raises(BadInput):
        decode(row, place)


def test_ids_of_images_are_not_taken_from_files(stored: Path) -> None:
    place, row = rows(stored)[0]
    row["turns"][0]["prompt_ids"][0] = FIRST + 5
    with pytest.raises(BadInput, match="too large"):
        decode(row, place)
