"""Folders of boxes: what killed runs leave behind goes, what is in use stays."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from recollect.sandbox.scratch import OWNER, PREFIX, ScratchFolder

HOLD = """
import sys
from recollect.sandbox.scratch import ScratchFolder
made = ScratchFolder()
print(made.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_a_killed_run_s_folder_goes_with_the_next_box(elsewhere: Path) -> None:
    held = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert held.stdout is not None
    folder = Path(held.stdout.readline().strip())
    (folder / "passwd").write_text("x")
    first = ScratchFolder()
    assert folder.exists()  # its owner lives
    held.kill()
    held.wait()
    second = ScratchFolder()
    assert not folder.exists()
    assert first.path.exists()
    for made in (first, second):
        made.close()
        made.close()
    assert not list(elsewhere.iterdir())


def test_folders_that_are_not_ours_to_remove_stay(elsewhere: Path) -> None:
    beginning, target = elsewhere / f"{PREFIX}beginning", elsewhere / "target"
    beginning.mkdir()
    target.mkdir()
    (target / OWNER).touch()
    (elsewhere / f"{PREFIX}link").symlink_to(target)
    made = ScratchFolder()
    assert beginning.exists()
    assert (target / OWNER).exists()
    assert os.stat(made.path).st_mode & 0o777 == 0o755
    made.close()
