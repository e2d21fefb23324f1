"""Rows that a notebook can work with: a list of mappings, or a pandas frame."""

from __future__ import annotations

from typing import Any

from recollect.types import BadInput


class Rows(list[dict[str, Any]]):
    """Plain rows. ``frame()`` makes a pandas frame of them, where pandas is installed."""

    def frame(self) -> Any:
        """The rows as a pandas DataFrame."""
        try:
            import pandas
        except ImportError:
            raise BadInput("frame() needs pandas: pip install pandas") from None
        return pandas.DataFrame(self)
