"""Look-up exercises: every digit that is due can be looked up, and nothing of the held-out set is shown."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.tasks.drill import HOLDS_ALWAYS, HOLDS_BEGINS, make_drill
from recollect.tasks.names import split_of


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), done=st.floats(0, 1))
def test_what_is_due_is_in_the_list_and_nothing_else_is_trained(seed: int, done: float) -> None:
    drill = make_drill(random.Random(seed), done)
    assert len(drill.given) % 3 == 0
    assert len(drill.asked) % 3 == 0
    known = {start.split()[0]: digit for start, digit in zip(drill.given[::3], drill.given[1::3], strict=True)}
    assert len(known) == len(drill.given) // 3 >= 2
    for (start, named), (digit, due), (_, ended) in zip(*[iter(drill.asked)] * 3, strict=True):
        assert known[start.split()[0]] == digit
        assert digit[1:].isdigit()
        assert (named, due, ended) == (False, True, False)
    assert {split_of(name) for name in known} == {"train"}


def test_the_word_comes_in_little_by_little() -> None:
    def share(done: float) -> float:
        made = [make_drill(random.Random(i), done) for i in range(200)]
        starts = [p for d in made for p in d.given[::3]]
        return sum(s.endswith(" holds") for s in starts) / len(starts)

    assert share(0) == share(HOLDS_BEGINS) == 0
    assert 0.4 < share((HOLDS_BEGINS + HOLDS_ALWAYS) / 2) < 0.6
    assert share(HOLDS_ALWAYS + 0.01) == share(1) == 1
