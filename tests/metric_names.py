"""The names of metrics that docs/metrics.md has."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"


@cache
def documented() -> re.Pattern[str]:
    """Matches every name of the tables' first columns; ``<…>`` stands for any name."""
    cells = [line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    names = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    return re.compile("|".join(re.sub(r"<\w+>", "[^/]+(?:/[^/]+)*?", re.escape(name)) for name in names))


def undocumented(names: object) -> list[str]:
    """Those of some names that the page does not have."""
    return sorted(name for name in set(names) if not documented().fullmatch(name))  # type: ignore[call-overload]
