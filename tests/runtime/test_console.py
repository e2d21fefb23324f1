"""What people see."""

from __future__ import annotations

import pytest

from recollect.runtime.console import Console


@pytest.mark.parametrize("quiet", [False, True])
def test_standard_output_is_the_consoles_alone(quiet: bool, capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(quiet)
    with console.alone():
        print("a library's line")
        console.say("ours")
    print("after")
    console.say("ours again")
    shown = capsys.readouterr().out.splitlines()
    assert shown == (["after"] if quiet else ["ours", "after", "ours again"])
