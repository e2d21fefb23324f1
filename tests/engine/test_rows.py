"""How many rows' keys and values fit into a GPU's memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recollect.engine.cuda.device_cache import MemoryLimit, slot_length


@given(st.integers(1, 600), st.integers(1, 1 << 20), st.integers(0, 1 << 40), st.integers(1, 20000))
def test_rows_that_fit(most: int, each: int, room: int, longest: int) -> None:
    rows = MemoryLimit(most, each, room).rows(longest)
    assert 1 <= rows <= most
    slots = 1 << (rows - 1).bit_length()  # what the cache makes for so many
    assert rows == 1 or slots * slot_length(longest) * each <= room
    assert MemoryLimit(most, each, None).rows(longest) == most


@given(st.integers(1, 1 << 20))
def test_a_slot_has_room_for_its_row(tokens: int) -> None:
    assert tokens <= slot_length(tokens) <= max(256, 2 * tokens)
