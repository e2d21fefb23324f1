"""Ids of images: made of content and place, positions as the library computes them."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from recollect.images import image_ids as module
from recollect.images.image_ids import (
    COLUMN,
    FIRST,
    ROW,
    Grid,
    grid_of,
    has_images,
    image_ids,
    image_of,
    plain_ids,
    rotary_part,
    rotary_positions,
    rotary_shift,
    spans,
)
from recollect.types import BadInput, Image
from tests.seeing import KINDS, PATCHES, TOKEN, noise_of, pictures, seeing_pair, shown, words


def test_ids_tell_images_grids_and_places_apart() -> None:
    a, b, _ = pictures()
    made = [image_ids(image, Grid(*shape, 5)) for image in (a, b) for shape in ((2, 3), (3, 2))]
    assert len(np.unique(np.concatenate(made))) == 24
    assert all(int(ids.min()) >= FIRST and ids.dtype == np.int64 for ids in made)
    assert np.array_equal(image_ids(a, Grid(2, 3, 5)), made[0])
    assert image_of(int(made[0][0])) is a
    assert grid_of(int(made[0][0])) == Grid(2, 3, 5)


def test_spans_and_plain_ids() -> None:
    a, b, _ = pictures()
    one, two = image_ids(a, Grid(2, 2, 5)), image_ids(b, Grid(1, 3, 5))
    row = np.concatenate([[9], one, one, two, [9, 9], two[:2]])
    assert [(s.start, s.stop) for s in spans(row)] == [(1, 5), (5, 9), (9, 12), (14, 16)]
    assert plain_ids(row).tolist() == [9, *[5] * 11, 9, 9, 5, 5]
    assert [s.skipped for s in spans(row[3:])] == [2, 0, 0, 0]
    assert has_images(row)
    assert not has_images(np.array([1, 2]))
    assert not has_images([])


def test_nothing_is_kept_of_an_image_that_nobody_holds() -> None:
    image = noise_of(np.random.default_rng(3), 32, 48)
    grid, before = PATCHES.grid(image), len(module._seen)
    base = int(image_ids(image, grid)[0])
    image_ids(image, grid)
    assert grid_of(base) == grid
    again = Image(image.data, image.digest, image.width, image.height)  # as another process sends it
    image_ids(again, grid)
    del image
    assert grid_of(base) == grid
    del again
    gc.collect()
    assert len(module._seen) <= before
    with pytest.raises(AssertionError, match="whoever keeps ids keeps their images"):
        grid_of(base)


def test_an_image_of_too_many_tokens() -> None:
    with pytest.raises(BadInput, match="65,536"):
        image_ids(noise_of(np.random.default_rng(5), 8, 8), Grid(300, 300, 5))


def unpacked(positions: np.ndarray) -> np.ndarray:
    start = positions & ((1 << ROW) - 1)
    return np.stack([start, start + ((positions >> ROW) & 0xFFFF), start + (positions >> COLUMN)])


@pytest.mark.parametrize("kind", KINDS)
def test_positions_are_those_of_the_library(kind: str) -> None:
    import torch

    library: Any = seeing_pair(kind)[0].model
    noise, images = np.random.default_rng(2), [shown(image) for image in pictures()]
    row = np.concatenate([words(noise, 3), images[0], images[2], words(noise, 4), images[1], words(noise, 5)])
    grids = [[1, 2 * g.rows, 2 * g.columns] for g in (grid_of(s.base) for s in spans(row))]
    ids = torch.from_numpy(plain_ids(row))[None]
    expected, shift = library.get_rope_index(ids, (ids == TOKEN).int(), torch.tensor(grids))
    assert np.array_equal(unpacked(rotary_positions(row)), expected[:, 0].numpy())
    assert rotary_shift(row) == int(shift[0, 0])


def test_positions_of_a_part_are_part_of_the_positions() -> None:
    noise, images = np.random.default_rng(3), [shown(image) for image in pictures()]
    row = np.concatenate([words(noise, 3), images[0], words(noise, 2), images[1], words(noise, 2)])
    whole = rotary_positions(row)
    for start in range(0, len(row), 5):
        for stop in range(start, len(row) + 1, 3):
            assert np.array_equal(rotary_part(row, start, stop), whole[start:stop])


def test_the_picture_is_scaled_as_the_library_scales_it() -> None:
    from tests.seeing import processor

    scale, noise = processor(), np.random.default_rng(0)
    for _ in range(60):
        height, width = (int(n) for n in noise.integers(5, 400, 2))
        rows, columns = (int(n) // 2 for n in scale([np.zeros((height, width, 3), np.uint8)])["image_grid_thw"][0][1:])
        assert PATCHES.scaled(width, height) == (16 * columns, 16 * rows)
    with pytest.raises(BadInput, match="too narrow"):
        PATCHES.scaled(1000, 2)
