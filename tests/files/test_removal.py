"""Folders that were made to stay: they go, and nothing outside them does."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from recollect.files.removal import remove_folder


def deep(folder: Path, depth: int, name: str = "d") -> None:
    """Folders inside each other, deeper than a path can say."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=inner))
        os.close(here)
        here = inner
    os.close(here)


@pytest.mark.parametrize(("depth", "name"), [(1500, "d"), (4000, "x"), (200, "n" * 255), (50, "\udcff\n ")])
def test_depth_and_names(tmp_path: Path, depth: int, name: str) -> None:
    doomed = tmp_path / "doomed"
    doomed.mkdir()
    deep(doomed, depth, name)
    remove_folder(doomed)
    assert not doomed.exists()


def test_few_descriptors_are_enough(tmp_path: Path) -> None:
    doomed = tmp_path / "doomed"
    for i in range(40):
        (doomed / f"a{i}" / "b" / "c").mkdir(parents=True)
    deep(doomed, 300)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 8, hard))
    try:
        remove_folder(doomed)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not doomed.exists()


def test_links_are_not_followed(tmp_path: Path) -> None:
    doomed, kept = tmp_path / "doomed", tmp_path / "kept"
    (kept / "inner").mkdir(parents=True)
    (kept / "file").write_text("mine")
    (doomed / "a").mkdir(parents=True)
    (doomed / "link").symlink_to(kept)
    (doomed / "a" / "link").symlink_to(kept)
    (doomed / "a" / "loop").symlink_to(".")
    os.link(kept / "file", doomed / "a" / "hard")
    os.mkfifo(doomed / "a" / "pipe")
    remove_folder(doomed)
    assert not doomed.exists()
    assert (kept / "file").read_text() == "mine"
    link = tmp_path / "link"
    link.symlink_to(kept)
    remove_folder(link)
    assert (kept / "inner").is_dir()


def test_folders_without_rights(tmp_path: Path) -> None:
    """For others than root; a child gives its rights up."""
    doomed = tmp_path / "doomed"
    (doomed / "a" / "b" / "c").mkdir(parents=True)
    (doomed / "a" / "b" / "file").write_text("x")
    child = os.fork()
    if child == 0:
        try:
            os.chdir(tmp_path)
            if os.geteuid() == 0:
                for name in (".", "doomed", "doomed/a", "doomed/a/b", "doomed/a/b/c", "doomed/a/b/file"):
                    os.chown(name, 65534, 65534)
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
            for name, mode in (("doomed/a/b/c", 0), ("doomed/a/b", 0), ("doomed/a", 0o555)):
                os.chmod(name, mode)
            remove_folder(Path("doomed"))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert not doomed.exists()


def test_what_is_not_there_or_no_folder_is_no_error(tmp_path: Path) -> None:
    remove_folder(tmp_path / "none")
    (tmp_path / "file").write_text("x")
    remove_folder(tmp_path / "file")
    assert (tmp_path / "file").is_file()
