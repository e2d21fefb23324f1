"""What a validation says besides its figure."""

from __future__ import annotations

import pytest

from recollect.runtime.console import Console
from recollect.training.rl.validate import _say_failures
from recollect.types import Failure, Group, Score, Task, Trajectory


def test_failed_attempts_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    good = Trajectory("a", 0, score=Score(1.0))
    bad = [Trajectory("b", i, failure=Failure("policy", "out of memory")) for i in range(2)]
    late = Trajectory("c", 0, failure=Failure("timeout", "60 s"))
    _say_failures([Group(Task("a", "?"), [good]), Group(Task("b", "?"), [*bad, late])], Console(True))
    said = capsys.readouterr().err
    assert "3 of 4 attempts failed and count as 0; most often policy: out of memory" in said
    _say_failures([Group(Task("a", "?"), [good])], Console(True))
    assert capsys.readouterr().err == ""
