"""Which made-up tasks a model is measured on."""

from __future__ import annotations

import pytest

from recollect.compose import compose
from recollect.data.tasks import held_out

RECIPES = ["needle", "ledger", "arithmetic", "react_search", "code"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_fresh_held_out_tasks_are_others_and_as_many(recipe: str) -> None:
    make = lambda first: held_out(compose(recipe, [f"evaluation.first={first}"]), 1, 20)
    usual, later, fresh = make(0), make(10), make(5000)
    assert [t.id for t in usual[10:]] == [t.id for t in later[:10]]
    assert len(later) == 20
    assert not {t.id for t in usual} & {t.id for t in fresh}
    assert [t.question for t in usual] != [t.question for t in fresh]
