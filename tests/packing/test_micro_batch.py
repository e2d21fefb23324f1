"""How a micro-batch attends on a GPU: by levels where the kernels can, else by segments; here with a stand-in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from recollect.models.attention import Scoring
from recollect.packing import tree_attention as flash
from recollect.packing.micro_batch import TreePlan, pack
from recollect.packing.tree import build_tree
from recollect.packing.tree_attention import levels
from tests.engine.test_prefill import attend_plainly


class OnGpu(Tensor):
    """Says that it is on a GPU."""

    is_cuda = True  # type: ignore[assignment]


def tree_plan() -> TreePlan:
    """Three rows that begin alike, and one that does not, as packed where there is a GPU."""
    rows = [np.array([1, 2, 3, *end]) for end in ([4, 5], [4, 6, 7], [8])] + [np.arange(5)]
    trees = [build_tree(range(3), rows[:3]), build_tree([3], rows[3:])]
    plan = pack(trees, [np.arange(len(row)) > 0 for row in rows], [0, 10, 20, 30]).plan
    plan.levels = levels(trees)
    return plan


@pytest.mark.parametrize(
    ("dtype", "width", "by_levels"),
    [
        (torch.bfloat16, 64, True),
        (torch.float16, 80, True),
        (torch.bfloat16, 256, True),
        (torch.bfloat16, 12, False),
        (torch.bfloat16, 264, False),
        (torch.float32, 64, False),
    ],
)
def test_heads_that_the_kernels_cannot_take_go_by_segments(
    dtype: torch.dtype, width: int, by_levels: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def attend(q: Tensor, k: Tensor, v: Tensor, *more: Any) -> tuple[Tensor, Tensor]:
        calls.append(q.shape[2])
        out, total = attend_plainly(q.float(), k.float(), v.float(), *more)
        return out.to(q.dtype), total

    monkeypatch.setattr(flash, "attend_lengths", attend)
    monkeypatch.setattr(flash, "_merge_kernel", lambda: None)  # tensors only say that they are on a GPU
    torch.manual_seed(0)
    plan = tree_plan()
    q, k, v = (torch.randn(heads, plan.total, width).to(dtype) for heads in (4, 2, 2))
    there = [x.as_subclass(OnGpu) for x in (q, k, v)]
    expected = plan.attend(0, q.float(), k.float(), v.float(), Scoring(width**-0.5))
    assert not calls
    found = plan.attend(0, *there, Scoring(width**-0.5))  # type: ignore[call-arg, arg-type]
    assert bool(calls) == by_levels
    torch.testing.assert_close(found.as_subclass(Tensor).float(), expected, atol=0.05, rtol=0.05)
    calls.clear()
    plan.attend(0, *there, Scoring(width**-0.5, 24))  # type: ignore[call-arg, arg-type]
    assert not calls, "kernels without a window attend within one"
