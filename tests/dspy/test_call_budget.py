"""A budget of requests."""

from __future__ import annotations

import pytest

from recollect.dspy.call_budget import BudgetSpent, CallBudget


def test_requests_are_counted_and_end() -> None:
    seen: list[int] = []
    budget = CallBudget(3, used=1, on_request=lambda: seen.append(1))
    budget.take()
    budget.take()
    budget.spare()
    with pytest.raises(BudgetSpent, match="3 requests is spent"):
        budget.take()
    assert (budget.used, budget.cached, budget.refused, len(seen)) == (3, 1, 1, 2)
