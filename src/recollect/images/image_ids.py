"""The ids that stand for an image among token ids, and what they say about it.

A model sees an image as rows and columns of tokens of its own. Each of them has an id here that no vocabulary has,
made of the image's content and the token's place in it. So equal ids mean equal inputs for images as for text:
everything that compares prompts, such as prefix caches and prefix trees, works with images as it is, and nothing can
sample such an id. The ids are the same in every process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from weakref import WeakValueDictionary, finalize

import numpy as np

from recollect.types import BadInput, Image

FIRST = 1 << 62  # ids from here on are of images
PLACES = 16  # bits of an id that say which of the image's tokens it is
ROW, COLUMN = 32, 48  # bits of a packed position at which the row and the column begin


class Grid(NamedTuple):
    """How a model sees an image: so many rows and columns of tokens, for which its vocabulary has one id."""

    rows: int
    columns: int
    token: int

    @property
    def size(self) -> int:
        """Tokens of the image."""
        return self.rows * self.columns


class Span(NamedTuple):
    """An image among some ids: tokens ``start`` to ``stop`` of them, of which the first is its token ``skipped``."""

    base: int
    start: int
    stop: int
    skipped: int = 0


GONE = "the image of an id is gone: whoever keeps ids keeps their images"
_images: WeakValueDictionary[int, Image] = WeakValueDictionary()
_seen: dict[int, tuple[str, Grid]] = {}  # by the image's first id: content and grid, while somebody holds it


def image_ids(image: Image, grid: Grid) -> np.ndarray:
    """The ids of an image's tokens, row by row."""
    if not 0 < grid.size <= 1 << PLACES:
        raise BadInput(f"an image of {image.width} × {image.height} pixels has {grid.size} tokens; 65,536 are allowed")
    named = f"{image.digest}|{grid.rows}|{grid.columns}|{grid.token}".encode()
    number = int.from_bytes(hashlib.blake2b(named, digest_size=8).digest(), "little") % (1 << 46)
    base = FIRST + (number << PLACES)
    about = image.digest, grid
    if _seen.setdefault(base, about) != about:
        raise BadInput("two images have the same number; change one of them by a pixel")
    if _images.get(base) is not image:
        _images[base] = image
        finalize(image, _forget, base).atexit = False
    return np.arange(base, base + grid.size)


def _forget(base: int) -> None:
    """Nobody holds an image any more."""
    if base not in _images:
        _seen.pop(base, None)


def has_images(ids: Sequence[int] | np.ndarray) -> bool:
    """True where some ids are of images."""
    return bool(len(ids)) and int(np.max(ids)) >= FIRST


def grid_of(base: int) -> Grid:
    """How the image with this first id is seen; somebody has to hold it."""
    assert base in _seen, GONE
    return _seen[base][1]


def image_of(base: int) -> Image:
    """The image with this first id; somebody has to hold it."""
    found = _images.get(base)
    assert found is not None, GONE
    return found


def spans(ids: np.ndarray) -> Iterator[Span]:
    """The images among some ids, in order. The first and the last may be there in part."""
    places = np.flatnonzero(ids >= FIRST)
    if not len(places):
        return
    found = ids[places]
    breaks = 1 + np.flatnonzero((np.diff(places) != 1) | (np.diff(found) != 1))
    for first, last in zip([0, *breaks.tolist()], [*breaks.tolist(), len(places)], strict=True):
        number = int(found[first])
        skipped = (number - FIRST) % (1 << PLACES)
        yield Span(number - skipped, int(places[first]), int(places[last - 1]) + 1, skipped)


def plain_ids(ids: Sequence[int] | np.ndarray) -> np.ndarray:
    """Ids as a vocabulary has them: every image token by the one id that its model has for all of them."""
    plain = np.array(ids, np.int64)
    for base, start, stop, _ in spans(plain.copy()):
        plain[start:stop] = grid_of(base).token
    return plain


def rotary_positions(ids: np.ndarray) -> np.ndarray:
    """The position of every token in a whole sequence as rotary embeddings take it, one number for each.

    A text token's is a plain position. An image token has three: that of the image's beginning, and its row and column
    after that, which stand in the higher bits. What follows an image goes on after its longer side.
    """
    positions = np.arange(len(ids))
    for base, start, stop, _ in spans(ids):
        grid, begin = grid_of(base), int(positions[start])
        inside = np.arange(stop - start)
        rows, columns = inside // grid.columns, inside % grid.columns
        positions[start:stop] = begin + (rows << ROW) + (columns << COLUMN)
        positions[stop:] += max(grid.rows, grid.columns) - (stop - start)
    return positions


def rotary_part(ids: np.ndarray, start: int, stop: int) -> np.ndarray:
    """The rotary positions of a part of a whole sequence."""
    if not has_images(ids[:stop]):
        return np.arange(start, stop)
    return rotary_positions(ids[:stop])[start:]


def rotary_shift(ids: np.ndarray) -> int:
    """What is added to a place after a whole sequence to get its rotary position."""
    if not has_images(ids):
        return 0
    return sum(max(grid_of(s.base)[:2]) - (s.stop - s.start) for s in spans(ids))
