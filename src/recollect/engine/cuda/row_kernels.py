"""Rows that come and go between steps, without the host waiting for the step that is under way.

What a row is (its newest token, its position, its limit …) stays in the column of its slot, which only the device
changes while the row decodes. For a step the host says which slots take part, in which order, and what rows are new.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _take_rows(
    order, fresh, serial, seen, given, given_reals, given_stops, kept, kept_reals, kept_stops, numbers, reals, stops,
    size, N: tl.constexpr, P: tl.constexpr, STOPS: tl.constexpr,
):  # fmt: skip
    """One row of a step: what its slot says, or what the host says of a new one, which its slot then says too.

    Computes: numbers[:, row] = kept[:, order[row]], and so reals and stops; where fresh[row] is set and the serial
              number was not seen before, kept[:, order[row]] = given[:, row] first.
    Shapes:   order, fresh int64 [size]; serial, seen int64 [1]; numbers, given int64 [N, size], kept [N, size + 1];
              reals, given_reals float64 [2, size], kept_reals [2, size + 1]; stops, given_stops int64 [size, STOPS],
              kept_stops [size + 1, STOPS].
    Equals:   kept.index_copy_(1, order[fresh], given[:, fresh]), then numbers = kept.index_select(1, order).
    """
    row = tl.program_id(0)
    slot = tl.load(order + row)
    new = (tl.load(fresh + row) != 0) & (tl.load(serial) != tl.load(seen))
    n = tl.arange(0, P)
    there = n < N
    at = n * (size + 1) + slot
    number = tl.load(kept + at, mask=there, other=0)
    number = tl.where(new, tl.load(given + n * size + row, mask=n < tl.where(new, N, 0), other=0), number)
    tl.store(numbers + n * size + row, number, mask=there)
    tl.store(kept + at, number, mask=n < tl.where(new, N, 0))
    r = tl.arange(0, 2)
    at = r * (size + 1) + slot
    real = tl.load(kept_reals + at)
    real = tl.where(new, tl.load(given_reals + r * size + row, mask=r < tl.where(new, 2, 0), other=0.0), real)
    tl.store(reals + r * size + row, real)
    tl.store(kept_reals + at, real, mask=r < tl.where(new, 2, 0))
    s = tl.arange(0, STOPS)
    stop = tl.load(kept_stops + slot * STOPS + s)
    stop = tl.where(new, tl.load(given_stops + row * STOPS + s, mask=s < tl.where(new, STOPS, 0), other=0), stop)
    tl.store(stops + row * STOPS + s, stop)
    tl.store(kept_stops + slot * STOPS + s, stop, mask=s < tl.where(new, STOPS, 0))


def take_rows(
    rows: int, order: Tensor, fresh: Tensor, serial: Tensor, seen: Tensor, given: tuple[Tensor, Tensor, Tensor],
    kept: tuple[Tensor, Tensor, Tensor], made: tuple[Tensor, Tensor, Tensor],
) -> None:  # fmt: skip
    """Fill ``made`` (numbers, reals and stops of a step's rows) from what slots say, or what is given of new rows."""
    count, size = made[0].shape
    _take_rows[(rows,)](
        order, fresh, serial, seen, *given, *kept, *made, size, N=count, P=triton.next_power_of_2(count),
        STOPS=made[2].shape[1], num_warps=1,
    )  # fmt: skip
