"""What the model is shown of a long response."""

from __future__ import annotations

import pytest

from recollect.tools.observe import cut


@pytest.mark.parametrize(
    ("side", "begins", "ends"), [("left", "aaa", "…"), ("right", "…", "bbb"), ("middle", "aaa", "bbb")]
)
def test_which_side_is_kept(side: str, begins: str, ends: str) -> None:
    text = cut("a" * 100 + "b" * 100, 60, side)
    assert len(text) <= 60
    assert text.strip().startswith(begins)
    assert text.strip().endswith(ends)
    assert "characters cut" in text
    assert cut("short", 60, side) == "short"
