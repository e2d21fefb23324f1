"""The images of stored trajectories: files beside the rows, named by what is in them and written once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recollect.files.output import write_atomic
from recollect.images.image_files import from_file
from recollect.images.image_ids import FIRST, PLACES, Grid, grid_of, has_images, image_ids, image_of, plain_ids, spans
from recollect.types import BadInput, Group, Image, Trajectory

FOLDER = "images"
_NAME = re.compile(rf"{FOLDER}/([0-9a-f]{{64}})\.(png|jpeg|webp|gif|bmp)")
MOST_SIDE = 1 << PLACES  # tokens of an image


def file_name(image: Image) -> str:
    """Where an image is, beside the rows."""
    return f"{FOLDER}/{image.digest}.{image.kind}"


def images_of(made: Trajectory) -> list[Image]:
    """The images that an attempt's prompts hold, each once."""
    return list({image.digest: image for turn in made.turns for image in turn.images}.values())


def write_images(folder: Path, groups: Sequence[Group]) -> None:
    """Write the images of some attempts into a folder of rows, but for those that are there."""
    for image in {i.digest: i for g in groups for t in g.trajectories for i in images_of(t)}.values():
        path = folder / file_name(image)
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, image.data)


def located(row: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A row whose images lie in a folder, with their whole paths."""
    names = row.get("images")
    if not isinstance(names, Mapping) or not isinstance(row.get("turns"), list):
        return row
    return {**row, "images": {digest: str(folder / str(name)) for digest, name in names.items()}}


def placed(ids: Sequence[int]) -> tuple[list[int], list[dict[str, Any]]]:
    """Ids as a vocabulary has them, and where images stand among them."""
    if not has_images(ids):
        return list(ids), []
    found: list[dict[str, Any]] = []
    for span in spans(np.asarray(ids, np.int64)):
        grid = grid_of(span.base)
        assert span.stop - span.start == grid.size, "a prompt holds whole images"
        about = {"image": image_of(span.base).digest, "at": span.start}
        found.append({**about, "rows": grid.rows, "columns": grid.columns})
    return plain_ids(ids).tolist(), found


def read_images(row: Mapping[str, Any], place: str) -> dict[str, Image]:
    """The images of a stored attempt, by their digests."""
    names = row.get("images")
    if not isinstance(names, Mapping):
        return {}
    found = {}
    for digest, name in names.items():
        path = Path(str(name))
        if not (known := _NAME.fullmatch("/".join(path.parts[-2:]))) or known[1] != digest:
            raise BadInput(f"{place}: a stored image is {FOLDER}/ and its digest, and not {str(name)[:80]}")
        image = from_file(path, place)
        if image.digest != digest:
            raise BadInput(f"{place}: {path.name} is not the image that was stored")
        found[digest] = image
    return found


def with_images(ids: Sequence[int], at: Any, images: Mapping[str, Image], place: str) -> tuple[int, ...]:
    """Ids of a stored prompt with the ids of its images in their places."""
    if max(ids, default=0) >= FIRST:
        raise ValueError("a token id is too large")
    made = list(ids)
    for about in at or ():
        start, rows, columns = (int(about[name]) for name in ("at", "rows", "columns"))
        image = images.get(str(about["image"]))
        if image is None:
            raise BadInput(f"{place}: the image {str(about['image'])[:12]}… is not among the row's `images`")
        size = rows * columns
        if not (0 < rows <= MOST_SIDE and 0 < columns <= MOST_SIDE and start >= 0 and start + size <= len(made)):
            raise ValueError("an image does not stand among the ids")
        token = made[start]
        if any(t != token for t in made[start : start + size]):
            raise ValueError("the ids of an image differ")
        made[start : start + size] = image_ids(image, Grid(rows, columns, token)).tolist()
    return tuple(made)
