"""How attention to prefixes is divided among programs: pieces of about the same size, whatever shares what.

A piece is some tokens of one prefix, for some of the rows that share it (readers). Every key head has a program for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

PROGRAMS = 264  # that keep the GPU busy: two for each multiprocessor of a large one
STEP = 64  # a piece has a multiple of so many tokens
MOST_PARTS = 32  # of a prefix …
MOST_PARTIAL = 4096  # … and of all rows together: each leaves an output to be merged
LOADING = 64  # queries whose arithmetic takes about as long as what a piece does whatever the number of its queries
TILES = {16: (128, 4, 3), 64: (64, 4, 3)}  # queries that a program can take → keys at a time, warps and stages …
LARGE_TILE = (64, 8, 3)  # … and where one row alone has more


@dataclass(frozen=True)
class PrefixWork:
    """What programs attend to."""

    tile: int  # queries of each
    table: np.ndarray  # [pieces, 6] prefix, first reader, readers, first token, end, which part of the prefix; or zeros
    parts: np.ndarray  # [prefixes] how many each was cut into


def most_parts(rows: int) -> int:
    """Into how many parts a prefix of some of these rows may be cut."""
    return max(4, min(MOST_PARTS, MOST_PARTIAL // rows))


def _power(number: int) -> int:
    """The power of two that is not less."""
    return 1 << (number - 1).bit_length()


def _size(length: np.ndarray, block: np.ndarray, room: int, most: int) -> int:
    """The least size of pieces, in whole steps, with which there are no more than ``room``."""

    def fits(steps: int) -> bool:
        parts = -(-length // (steps * STEP))
        return int((block * parts).sum()) <= room and int(parts.max()) <= most

    low, high = 0, -(-int(length.max()) // STEP)  # the first is too small, the second is not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high * STEP


def divide(lengths: Sequence[int], readers: Sequence[int], group: int, heads: int, rows: int) -> PrefixWork:
    """Pieces for prefixes of some lengths and numbers of rows, each with ``group`` queries for each of ``heads``."""
    length, count = np.array(lengths), np.array(readers)
    tiles = [tile for tile in TILES if tile >= group] or [_power(group)]
    each = [tile // group for tile in tiles]  # readers of a piece
    blocks = [-(-count // n) for n in each]
    costs = [int((b * length).sum()) * (tile + LOADING) for b, tile in zip(blocks, tiles, strict=True)]
    best = int(np.argmin(costs))
    block, whole = blocks[best], int((blocks[best] * length).sum())
    room = PROGRAMS // heads
    if block.sum() > room:
        room = _power(int(block.sum()))
    size = _size(length, block, room, most_parts(rows))
    if min(size, int(length.max())) > 2 * whole / room:  # one is much longer than the others
        room = max(room, _power(2 * int(block.sum())))
        size = _size(length, block, room, most_parts(rows))
    parts = -(-length // size)
    table = np.zeros((room, 6), np.int32)
    starts, first = np.cumsum(count) - count, np.cumsum(block) - block
    prefix = np.repeat(np.arange(len(length)), block)  # of each block of readers …
    reader = (np.arange(len(prefix)) - first[prefix]) * each[best]  # … and its first, counted within the prefix
    cuts = parts[prefix]
    at = np.repeat(np.arange(len(prefix)), cuts)  # the block of each piece …
    part = np.arange(len(at)) - np.repeat(np.cumsum(cuts) - cuts, cuts)  # … and which part of the prefix it is
    whose = prefix[at]
    ends = lambda part: np.minimum(
        -(-part * length[whose] // (parts[whose] * STEP)) * STEP, length[whose]
    )  # about equal
    table[: len(at)] = np.stack(
        [
            whose,
            (starts[prefix] + reader)[at],
            np.minimum(each[best], count[prefix] - reader)[at],
            ends(part),
            ends(part + 1),
            part,
        ],
        1,
    )
    return PrefixWork(tiles[best], table, parts)
