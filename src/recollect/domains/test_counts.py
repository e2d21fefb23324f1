"""How many tests a runner says it ran and what became of them: unittest's and pytest's last lines."""

from __future__ import annotations

import re
from dataclasses import dataclass

_RAN = re.compile(r"^Ran (\d+) tests? in ", re.MULTILINE)
_PARTS = re.compile(r"(expected failures|failures|errors|skipped|unexpected successes)=(\d+)")
_LAST = re.compile(r"^(?:OK|FAILED|NO TESTS RAN)\b.*$", re.MULTILINE)
_PYTEST = re.compile(r"^=*\s*((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s", re.MULTILINE)
_COUNT = re.compile(r"(\d+) (passed|failed|errors?|skipped|xfailed|xpassed)")


@dataclass(frozen=True)
class SuiteCounts:
    """Tests by what became of them."""

    passed: int
    skipped: int
    total: int
    expected: int = 0  # failures that were expected


def tally(text: str) -> SuiteCounts | None:
    """What a test run's output says last; None when it says nothing of the kind."""
    ran, summary = _RAN.findall(text), _PYTEST.findall(text)
    if ran:
        ends = _LAST.findall(text)
        parts = {name: int(count) for name, count in _PARTS.findall(ends[-1] if ends else "")}
        total = int(ran[-1])
        passed, expected = max(0, total - sum(parts.values())), parts.get("expected failures", 0)
        return SuiteCounts(passed, parts.get("skipped", 0), total, expected)
    if summary:
        counts = {name: int(count) for count, name in _COUNT.findall(summary[-1])}
        expected = counts.get("xfailed", 0)
        return SuiteCounts(counts.get("passed", 0), counts.get("skipped", 0), sum(counts.values()), expected)
    return None
