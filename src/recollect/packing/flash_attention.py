"""FlashAttention 3 or 4 in the place of torch's own kernel, where it is installed and computes the same.

Torch's own kernel is FlashAttention 2. It can put a newer one behind the operators that `flash` and `dense` call. That
holds for all of the process, so it is done once, before the first such call, and undone where any number is another.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import (
    activate_flash_attention_impl,
    current_flash_attention_impl,
    restore_flash_attention_impl,
)

from recollect.packing.dense_attention import AGREED, flash_backward, flash_forward, near, numbers
from recollect.packing.tree_attention import Level
from recollect.runtime.console import Console

EXACT = 0.001  # by how much normalisers may differ; they are not rounded to half precision


@dataclass(frozen=True, slots=True)
class Kernel:
    """One that may be installed."""

    key: str  # in torch's registry
    module: str  # that torch imports it from
    name: str


KERNELS = {  # by generation of GPUs
    9: Kernel("FA3", "flash_attn_interface", "FlashAttention 3"),
    10: Kernel("FA4", "flash_attn.cute.interface", "FlashAttention 4"),
}
CASES = (  # queries and keys of sequences, and whether they are the same tokens: as trees and prompts have them
    ((1, 37, 200, 128), (1, 37, 200, 128), True),
    ((300, 64, 5), (40, 200, 333), False),
    ((3, 17), (3000, 260), False),
)
_in_place: dict[str, bool] = {}  # kernels that were tried, and whether they serve


@cache
def prefer_installed(width: int, device: str = "cuda") -> None:
    """Have an installed kernel attend heads of a width, if it can; asked before the first such call on a GPU."""
    kernel = KERNELS.get(torch.cuda.get_device_capability()[0]) if torch.cuda.is_available() else None
    if kernel is not None and is_installed(kernel.module):
        put_in_place(kernel, width, device, Console().warn)


def is_installed(module: str) -> bool:
    """Whether a module can be found, without running it or the packages that it is in."""
    first, *rest = module.split(".")
    spec = importlib.util.find_spec(first)
    for name in rest:
        if spec is None or spec.submodule_search_locations is None:
            return False
        spec = importlib.machinery.PathFinder.find_spec(f"{spec.name}.{name}", spec.submodule_search_locations)
    return spec is not None


def put_in_place(kernel: Kernel, width: int, device: str, tell: Callable[[str], None]) -> None:
    """Try a kernel; it stays where torch's own was if it computes the same for every width that comes up."""
    before = _in_place.get(kernel.key)
    if before is False or (before is None and current_flash_attention_impl() is not None):
        return  # it was refused before, or somebody else has chosen one
    problem = _problem(kernel, width, device)
    if problem:
        _restore()
        tell(f"the installed {kernel.name} is not used, but torch's own kernel: {problem}")
    elif before is None:
        tell(f"attention by the installed {kernel.name}; it computes what torch's own kernel does")
    _in_place[kernel.key] = not problem


def _problem(kernel: Kernel, width: int, device: str) -> str:
    """Why a kernel cannot be used; nothing is wrong with one that is now in place."""
    try:
        _restore()
        expected = trial(width, device)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Warning only once for all operators")  # a kernel is replaced
            activate_flash_attention_impl(kernel.key)
        found = trial(width, device)
    except Exception as error:  # whatever it is: nothing depends on this kernel
        return f"{type(error).__name__}: {error}".splitlines()[0]
    same = (near(a, b, AGREED if b.dtype == torch.bfloat16 else EXACT) for a, b in zip(found, expected, strict=True))
    return "" if all(same) else "it computes something else"


def _restore() -> None:
    if current_flash_attention_impl() is not None:
        restore_flash_attention_impl()


def trial(width: int, device: str) -> list[Tensor]:
    """What the kernel that is in place makes of our calls: outputs, normalisers, gradients."""
    made: list[Tensor] = []
    ends = lambda lengths: torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=device)
    for queries, keys, causal in CASES:
        level = Level(slice(0), slice(0), ends(queries), ends(keys), max(queries), max(keys), causal)
        made += _both(level.forward, level.backward, sum(queries), sum(keys), width, device)
    for causal in (True, False):
        forward, backward = partial(flash_forward, causal=causal), partial(flash_backward, causal=causal)
        made += _both(forward, backward, 200, 200 if causal else 130, width, device)
    return made


def _both(
    forward: Callable[..., Any], backward: Callable[..., Any], queries: int, keys: int, width: int, device: str
) -> list[Tensor]:
    """A call and its gradient, which is given the output and the normalisers of more than this call."""
    q, grad, other = numbers(3, (queries, 4, width), device)
    k, v = numbers(2, (keys, 2, width), device, 1)
    aside = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in (k, v)]  # as the engine keeps those of prefixes
    scale = width**-0.5
    out, total = forward(q, k, v, scale)
    grads = backward((grad, q, k, v, (out + other) / 2), total + 0.7, scale)
    return [out, total, *grads, *forward(q, *aside, scale)]
