"""What a run sets aside from the collector comes back at its end, unless somebody else had set it aside."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from recollect.runtime.garbage import leaving_the_old


class Ring:
    """An object that only the collector can remove."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    yield
    if frozen:
        gc.collect()
        gc.freeze()


def test_garbage_of_before_and_of_meanwhile_is_found() -> None:
    before, threshold = weakref.ref(Ring()), gc.get_threshold()
    with leaving_the_old():
        assert before() is None
        old, new = Ring(), weakref.ref(Ring())
        gc.collect()
        assert new() is None
        assert gc.get_threshold() != threshold
        kept = weakref.ref(old)
        del old
    gc.collect()
    assert (kept(), gc.get_threshold(), gc.get_freeze_count()) == (None, threshold, 0)


def test_what_somebody_else_has_set_aside_stays_so() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    with leaving_the_old():
        pass
    assert gc.get_freeze_count() >= frozen - 100  # what was frozen can still be freed by its last reference
