"""An installed FlashAttention takes the place of torch's own kernel only where it computes the same.

There is neither here, so torch's registry is given a stand-in, and torch's operators plain functions for the CPU: one
where its own kernel would be, one that the stand-in puts over it, as FlashAttention 3 does on a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from inspect import signature
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.library import Library
from torch.nn.attention import (
    _registry,
    activate_flash_attention_impl,
    current_flash_attention_impl,
    register_flash_attention_impl,
    restore_flash_attention_impl,
)

from recollect.models.attention import Scoring
from recollect.packing import flash_attention as installed
from recollect.packing import micro_batch as packed
from recollect.packing import tree_attention as flash
from recollect.packing.dense_attention import flash_forward
from recollect.packing.flash_attention import Kernel, is_installed, prefer_installed, put_in_place
from recollect.packing.tree import build_tree
from recollect.packing.tree_attention import Level, TreeAttention, levels

KEY = "stand-in"
STAND_IN = Kernel(KEY, "stand_in_attention.kernels", "StandIn 9")


def pieces(q_ends: Tensor, k_ends: Tensor) -> list[tuple[slice, slice]]:
    """Where each sequence is."""
    spans = lambda ends: [slice(a, b) for a, b in pairwise(ends.tolist())]
    return list(zip(spans(q_ends), spans(k_ends), strict=True))


def scores_of(q: Tensor, k: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """[heads, queries, keys] in float32, and the keys of each query's head."""
    keys = k.float().repeat_interleave(q.shape[1] // k.shape[1], 1)
    scores = torch.einsum("qhd,khd->hqk", q.float(), keys) * scale
    return (scores.masked_fill(~torch.ones_like(scores[0]).tril().bool(), -torch.inf) if causal else scores), keys


def forward(
    q: Tensor, k: Tensor, v: Tensor, q_ends: Any, k_ends: Any, _q: int, _k: int, drop: float, causal: bool, debug: bool,
    *, scale: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """What aten::_flash_attention_forward computes."""
    if q_ends is None:
        out, total, *more = forward(q[0], k[0], v[0], torch.tensor([0, q.shape[1]]), torch.tensor([0, k.shape[1]]), _q,
                                    _k, drop, causal, debug, scale=scale)  # fmt: skip
        return out[None], total[None], *more
    assert not drop
    assert not debug
    out, total = torch.empty_like(q), torch.empty(q.shape[1], len(q))
    for a, b in pieces(q_ends, k_ends):
        scores, _ = scores_of(q[a], k[b], scale, causal)
        values = v[b].float().repeat_interleave(q.shape[1] // k.shape[1], 1)
        out[a] = torch.einsum("hqk,khd->qhd", scores.softmax(-1), values).to(q.dtype)
        total[:, a] = scores.logsumexp(-1)
    return out, total, *(torch.zeros(0) for _ in range(3))


def backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, total: Tensor, q_ends: Any, k_ends: Any, _q: int,
    _k: int, drop: float, causal: bool, state: Tensor, unused: Tensor, *, scale: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """What aten::_flash_attention_backward computes: gradients with the normalisers and the output that it is given."""
    if q_ends is None:
        flat = [x[0] for x in (grad, q, k, v, out, total)]
        ends = torch.tensor([0, q.shape[1]]), torch.tensor([0, k.shape[1]])
        return tuple(x[None] for x in backward(*flat, *ends, _q, _k, drop, causal, state, unused, scale=scale))
    made = tuple(torch.empty(x.shape) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    for a, b in pieces(q_ends, k_ends):
        scores, keys = scores_of(q[a], k[b], scale, causal)
        weights, g = torch.exp(scores - total[:, a, None]), grad[a].float()
        own = (g * out[a].float()).sum(-1).T[..., None]
        d_scores = weights * (torch.einsum("qhd,khd->hqk", g, v[b].float().repeat_interleave(group, 1)) - own) * scale
        together = lambda x: x.unflatten(1, (-1, group)).sum(2)
        made[0][a] = torch.einsum("hqk,khd->qhd", d_scores, keys)
        made[1][b] = together(torch.einsum("hqk,qhd->khd", d_scores, q[a].float()))
        made[2][b] = together(torch.einsum("hqk,qhd->khd", weights, g))
    return tuple(x.to(q.dtype) for x in made)


class Handle:
    """Kernels over torch's own until they are removed."""

    def __init__(self, forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        self.library: Library | None = Library("aten", "IMPL", "CPU")
        self.library.impl("_flash_attention_forward", forward, "CPU")
        self.library.impl("_flash_attention_backward", backward, "CPU")

    def remove(self) -> None:
        self.library = None


class Others:
    """The stand-in: counts its calls, and can be made wrong."""

    def __init__(self) -> None:
        self.calls = self.activated = 0
        self.forward: Callable[..., Any] = forward
        self.backward: Callable[..., Any] = backward

    def register(self) -> Handle:
        self.activated += 1
        return Handle(self._forward, self._backward)

    def _forward(self, *given: Any, **more: Any) -> Any:
        self.calls += 1
        return self.forward(*given, **more)

    def _backward(self, *given: Any, **more: Any) -> Any:
        self.calls += 1
        return self.backward(*given, **more)


@pytest.fixture(autouse=True)
def others() -> Iterator[Others]:
    """Torch's own kernel and a stand-in for another, in torch's real registry; gone afterwards."""
    own, made = Library("aten", "IMPL"), Others()
    own.impl("_flash_attention_forward", forward, "CompositeExplicitAutograd")
    own.impl("_flash_attention_backward", backward, "CompositeExplicitAutograd")
    register_flash_attention_impl(KEY, register_fn=made.register)
    yield made
    if current_flash_attention_impl() is not None:
        restore_flash_attention_impl()
    del _registry._FLASH_ATTENTION_IMPLS[KEY]
    installed._in_place.clear()
    prefer_installed.cache_clear()
    own._destroy()


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A GPU that the stand-in serves, by its looks; and where packages are installed."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(installed, "KERNELS", {9: STAND_IN})
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def install(folder: Path) -> None:
    (folder / "stand_in_attention").mkdir()
    (folder / "stand_in_attention" / "__init__.py").write_text("raise AssertionError('this is heavy')")
    (folder / "stand_in_attention" / "kernels.py").write_text("raise AssertionError('this is heavy')")


def attend() -> Any:
    """One call as the learner makes it."""
    ends = torch.tensor([0, 5, 8], dtype=torch.int32)
    q, k = torch.randn(8, 4, 16).bfloat16(), torch.randn(8, 2, 16).bfloat16()
    return Level(slice(0, 8), slice(0, 8), ends, ends, 5, 5, True).forward(q, k, k, 0.25)


def tried(width: int = 16) -> list[str]:
    """Try the stand-in; what was said."""
    said: list[str] = []
    put_in_place(STAND_IN, width, "cpu", said.append)
    return said


def served(others: Others) -> bool:
    """Whether torch's operators are now the stand-in's."""
    before = others.calls
    attend()
    flash_forward(*(torch.randn(6, h, 16).bfloat16() for h in (4, 2, 2)), 0.25, True)
    assert others.calls - before in (0, 2)
    assert (current_flash_attention_impl() == KEY) == (others.calls > before)
    return others.calls > before


def test_one_that_is_right_is_kept(others: Others) -> None:
    assert tried() == ["attention by the installed StandIn 9; it computes what torch's own kernel does"]
    assert served(others)
    assert tried(64) == []  # another width is tried as well, without a word
    assert others.activated == 2
    assert served(others)


@pytest.mark.parametrize("kept", [True, False])
def test_trees_are_attended_by_whichever_is_in_place(kept: bool, others: Others, monkeypatch: Any) -> None:
    """Outputs and gradients, level by level, equal those of plain attention under the tree's mask."""
    if kept:
        tried()
    monkeypatch.setattr(flash, "_merge_kernel", lambda: None)
    rows = [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 7], [1, 2, 3, 8, 9, 9], [1, 2, 3, 8, 1], [6, 6]]
    trees = [build_tree(range(4), [np.array(r) for r in rows[:4]]), build_tree([0], [np.array(rows[4])])]
    plan, sizes = levels(trees), [t.size for t in trees]
    assert plan is not None
    assert len(plan) == 3
    q, grad = torch.randn(2, sum(sizes), 4, 16).bfloat16().unbind()
    k, v = torch.randn(2, sum(sizes), 2, 16).bfloat16().unbind()
    found, expected = ([x.clone().requires_grad_() for x in (q, k, v)] for _ in range(2))
    before = others.calls
    out = TreeAttention.apply(*found, 0.25, plan)
    out.backward(grad)
    assert others.calls - before == (6 if kept else 0)
    mask, start = torch.zeros(sum(sizes), sum(sizes), dtype=torch.bool), 0
    for tree, size in zip(trees, sizes, strict=True):
        place = np.arange(size)
        part = (place[None] <= place[:, None]) & (place[:, None] < tree.end[None])
        mask[start : start + size, start : start + size] = torch.from_numpy(part)
        start += size
    scores, _ = scores_of(expected[0], expected[1], 0.25, False)
    values = expected[2].float().repeat_interleave(2, 1)
    plain = torch.einsum("hqk,khd->qhd", scores.masked_fill(~mask, -torch.inf).softmax(-1), values)
    plain.backward(grad.float())
    for a, b in zip((out, *(x.grad for x in found)), (plain, *(x.grad for x in expected)), strict=True):
        assert (a.float() - b.float()).norm() <= 0.02 * b.float().norm()


SPOILED: dict[str, Callable[[Tensor], Tensor]] = {
    "a little more": lambda x: x * 1.03,
    "no numbers": lambda x: x * float("nan"),
    "another sign": lambda x: -x,
}


@pytest.mark.parametrize("how", SPOILED)
@pytest.mark.parametrize("which", range(5))
def test_one_that_computes_something_else_is_dropped(which: int, how: str, others: Others) -> None:
    spoil = lambda found, first: tuple(SPOILED[how](x) if first + i == which else x for i, x in enumerate(found))
    others.forward = lambda *given, **more: spoil(forward(*given, **more), 0)
    others.backward = lambda *given, **more: spoil(backward(*given, **more), 2)
    assert tried() == ["the installed StandIn 9 is not used, but torch's own kernel: it computes something else"]
    assert not served(others)
    assert others.calls


def test_normalisers_must_be_almost_equal(others: Others) -> None:
    """They weigh whole parts against each other, so half a hundredth is too much."""
    others.forward = lambda *given, **more: (lambda out, total, *_: (out, total * 1.005, *_))(*forward(*given, **more))
    assert "something else" in tried()[0]


def unlike(others: Others, kind: str) -> None:
    """Mistakes that only some of our calls show."""
    if kind == "normalisers the other way around":
        others.forward = lambda *a, **m: (lambda out, total, *_: (out, total.mT.contiguous(), *_))(*forward(*a, **m))
    elif kind == "gradients with normalisers of its own":

        def other(*given: Any, **more: Any) -> Any:
            q, k, v, ends = *given[1:4], given[6:8]
            out, total, *_ = forward(q, k, v, *ends, *given[8:10], 0.0, given[11], False, **more)
            return backward(given[0], q, k, v, out, total, *given[6:], **more)

        others.backward = other
    elif kind == "always causal":
        others.forward = lambda *a, **m: forward(*a[:8], len(a[0]) <= len(a[1]) or a[8], a[9], **m)
    elif kind == "the first sequence alone":
        both = lambda ends: None if ends is None else torch.stack([ends[0], ends[-1]])
        others.forward = lambda *a, **m: forward(*a[:3], both(a[3]), both(a[4]), *a[5:], **m)
    elif kind == "keys side by side":
        flat = lambda x: torch.as_strided(x, x.shape, torch.empty(x.shape).stride())
        others.forward = lambda *a, **m: forward(a[0], flat(a[1]), flat(a[2]), *a[3:], **m)
    elif kind == "no mask":
        others.backward = lambda *a, **m: backward(*a[:11], False, *a[12:], **m)


KINDS = ["normalisers the other way around", "gradients with normalisers of its own", "always causal"]
KINDS += ["the first sequence alone", "keys side by side", "no mask"]


@pytest.mark.parametrize("kind", KINDS)
def test_mistakes_of_a_kind_are_found(kind: str, others: Others) -> None:
    unlike(others, kind)
    assert tried()[0].startswith("the installed StandIn 9 is not used")
    assert not served(others)


@pytest.mark.parametrize("error", [RuntimeError("backward unsupported: no\nmore of it"), AssertionError("no")])
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_one_that_fails_is_dropped(error: Exception, where: str, others: Others) -> None:
    def fail(*given: Any, **more: Any) -> Any:
        raise error

    setattr(others, where, fail)
    (said,) = tried()
    assert said.startswith(f"the installed StandIn 9 is not used, but torch's own kernel: {type(error).__name__}: ")
    assert "\n" not in said
    assert not served(others)


def test_one_that_cannot_be_loaded_is_dropped(others: Others) -> None:
    def broken() -> Any:
        raise ImportError("undefined symbol")

    register_flash_attention_impl(KEY, register_fn=broken)
    assert "ImportError: undefined symbol" in tried()[0]
    assert not served(others)
    unknown = Kernel("no such", "none", "Nobody")
    said: list[str] = []
    put_in_place(unknown, 16, "cpu", said.append)
    assert "ValueError" in said[0]


def test_one_that_cannot_do_a_width_is_dropped_for_all(others: Others) -> None:
    def narrow(*given: Any, **more: Any) -> Any:
        if given[0].shape[-1] > 64:
            raise AssertionError("head_dim must be at most 64")
        return forward(*given, **more)

    others.forward = narrow
    assert "attention by" in tried(64)[0]
    assert "head_dim must be at most 64" in tried(128)[0]
    assert not served(others)
    assert tried(32) == []
    assert not served(others)


def test_one_that_somebody_has_chosen_is_left_alone(others: Others) -> None:
    register_flash_attention_impl("chosen", register_fn=others.register)
    try:
        activate_flash_attention_impl("chosen")
        assert tried() == []
        assert current_flash_attention_impl() == "chosen"
        assert others.calls == 0
    finally:
        restore_flash_attention_impl()
        del _registry._FLASH_ATTENTION_IMPLS["chosen"]


def test_one_that_is_installed_is_tried_once(others: Others, hopper: Path, capsys: Any) -> None:
    install(hopper)
    for _ in range(3):
        prefer_installed(16, "cpu")
    assert others.activated == 1
    assert served(others)
    told = capsys.readouterr()
    assert told.err == "recollect: attention by the installed StandIn 9; it computes what torch's own kernel does\n"
    assert told.out == ""


def test_one_that_is_not_installed_is_not_looked_at(others: Others, hopper: Path, capsys: Any) -> None:
    prefer_installed(16, "cpu")
    assert others.activated == others.calls == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("generation", [8, 12])
def test_other_gpus_keep_torchs_kernel(generation: int, others: Others, hopper: Path, monkeypatch: Any) -> None:
    install(hopper)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (generation, 0))
    prefer_installed(16, "cpu")
    assert others.activated == 0


def test_nothing_happens_without_a_gpu(others: Others, hopper: Path, monkeypatch: Any, capsys: Any) -> None:
    install(hopper)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    prefer_installed(16)
    assert others.activated == 0
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("kernel", installed.KERNELS.values(), ids=lambda kernel: kernel.key)
def test_modules_are_those_that_torch_imports(kernel: Kernel) -> None:
    activate = signature(_registry._FLASH_ATTENTION_IMPLS[kernel.key])
    assert activate.parameters["module_path"].default == kernel.module


def test_looking_for_a_module_runs_nothing(hopper: Path) -> None:
    install(hopper)
    assert is_installed("stand_in_attention.kernels")
    assert is_installed("stand_in_attention")
    for absent in ("stand_in_attention.other", "stand_in_attention.kernels.deeper", "not_there", "not_there.either"):
        assert not is_installed(absent)
    assert not any(name.startswith("stand_in_attention") for name in sys.modules)


def test_the_learner_asks_before_it_attends_by_levels(monkeypatch: Any) -> None:
    asked: list[int] = []
    monkeypatch.setattr(packed, "prefer_installed", asked.append)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(packed, "fast_blocks", lambda: False)
    plan = packed.pack([build_tree([0], [np.arange(5)])], [np.arange(5) > 0], [0]).plan
    assert plan.levels is not None
    like = lambda dtype: SimpleNamespace(is_cuda=True, dtype=dtype, shape=(5, 4, 48))
    assert plan._levels_for(like(torch.float32), Scoring(1.0)) is None  # type: ignore[arg-type]
    assert plan._levels_for(like(torch.bfloat16), Scoring(1.0, 16)) is None  # type: ignore[arg-type]
    assert not asked
    assert plan._levels_for(like(torch.bfloat16), Scoring(1.0)) is plan.levels  # type: ignore[arg-type]
    assert asked == [48]
