"""The folder that blocks of the pages work in: made once, also where several processes run the tests."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import pytest

from tests.guides.workshop import build


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (shared / "workshop.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = shared / "workshop"
        if not (shared / "workshop.made").exists():
            shutil.rmtree(made, ignore_errors=True)
            build(made)
            (shared / "workshop.made").touch()
    return made


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """The folder, for one test alone; its files are shared."""
    return Path(shutil.copytree(folder, tmp_path / "copy", copy_function=os.link))
