"""How the reading of prefixes is divided among a GPU's programs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.engine.cuda import prefix_pieces as share
from recollect.engine.cuda.prefix_pieces import divide, most_parts

prefixes = st.lists(st.tuples(st.integers(1, 9000), st.integers(1, 20)), min_size=1, max_size=40)


@given(prefixes, st.sampled_from([1, 3, 6, 7, 16, 40, 71]), st.sampled_from([1, 2, 4, 8]))
def test_every_reader_gets_every_token_once(some: list[tuple[int, int]], group: int, heads: int) -> None:
    lengths, readers = [n for n, _ in some], [n for _, n in some]
    pieces = divide(lengths, readers, group, heads, rows=sum(readers))
    seen = {(p, r): np.zeros(lengths[p], int) for p, n in enumerate(readers) for r in range(n)}
    starts = np.cumsum(readers) - readers
    parts: set[tuple[int, int, int]] = set()
    for prefix, first, count, low, high, part in pieces.table.tolist():
        assert count * group <= pieces.tile
        for reader in range(first - starts[prefix], first - starts[prefix] + count):
            assert low < high, "a piece has tokens"
            seen[prefix, reader][low:high] += 1
            assert (prefix, reader, part) not in parts, "two pieces would write to one place"
            parts.add((prefix, reader, part))
    assert all((x == 1).all() for x in seen.values())
    assert all(0 <= part < pieces.parts[prefix] <= most_parts(sum(readers)) for prefix, _, part in parts)
    assert len(pieces.table) <= max(share.PROGRAMS, 4 * sum(readers)), "the device has room for so many"
    assert len(parts) == sum(int(cut) * n for cut, n in zip(pieces.parts, readers, strict=True))


def test_programs_get_about_the_same_whatever_the_number_of_prefixes() -> None:
    for count in (1, 2, 3, 5, 8, 9, 12, 17, 33):
        table = divide([5000] * count, [16] * count, 6, 2, 16 * count).table
        sizes = (table[:, 4] - table[:, 3])[table[:, 2] > 0]
        assert sizes.max() - sizes.min() <= 2 * share.STEP
        blocks = 2 * count  # 10 readers of 6 queries in 64, and the other 6
        assert sizes.max() <= max(5000 * blocks / (share.PROGRAMS // 2) * 1.4, 5000 / most_parts(16 * count)) + 64


@pytest.mark.parametrize(
    ("lengths", "group", "heads"),
    [([30_000] + [1500] * 65, 7, 4), ([30_000] + [500] * 31, 4, 8), ([1_000_000] + [64] * 131, 6, 2)],
)
def test_a_prefix_that_is_much_longer_is_cut_too(lengths: list[int], group: int, heads: int) -> None:
    rows = 2 * len(lengths)
    pieces = divide(lengths, [2] * len(lengths), group, heads, rows)
    largest = (pieces.table[:, 4] - pieces.table[:, 3]).max()
    assert largest <= max(lengths) / most_parts(rows) + 2 * share.STEP
    assert len(pieces.table) <= 4 * rows, "the device has room for so many"
