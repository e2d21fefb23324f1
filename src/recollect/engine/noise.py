"""Counter-based noise: the random number of a token depends on its request's key and its position, nothing else."""

from __future__ import annotations

from torch import Tensor

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit number


def _mix(x: Tensor, shift: int, factor: int) -> Tensor:
    logical = (x >> shift) & ((1 << (64 - shift)) - 1)  # torch shifts signed numbers arithmetically
    return (x ^ logical) * factor


def uniform(keys: Tensor, positions: Tensor) -> Tensor:
    """[rows] float64 in (0, 1) from int64 keys and token positions (SplitMix64, computed on the keys' device)."""
    x = keys + (positions + 1) * _GOLDEN
    x = _mix(x, 30, -4658895280553007687)
    x = _mix(x, 27, -7723592293110705685)
    x = x ^ ((x >> 31) & ((1 << 33) - 1))
    return (((x >> 11) & ((1 << 53) - 1)).double() + 0.5) / float(1 << 53)
