"""What a box shows to the programs in it, decided on the host: the interpreter, the system's programs, nothing else."""

from __future__ import annotations

import os
import shutil
import stat
import sys
import sysconfig
from dataclasses import asdict
from pathlib import Path
from typing import Any

import recollect
from recollect.config import Sandbox
from recollect.sandbox.inside.view import DEVICES, PRIVATE, WORKSPACE
from recollect.types import BadInput

SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime")
PASSWD = f"user:x:1000:1000::{WORKSPACE}:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n"
GROUP = "user:x:1000:\nnogroup:x:65534:\n"
LIMITS = ("cpu_s", "memory_mb", "disk_mb", "file_mb", "processes", "output_kb")


def interpreter() -> str:
    """The Python that the host's own environment is built on, which needs no environment around it."""
    return os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)


def source_root() -> Path:
    """The folder that holds the package, for the import of the inside."""
    return Path(recollect.__file__).resolve().parent.parent


def packages(cfg: Sandbox) -> list[str]:
    """Folders of installed packages that programs may import from."""
    if not cfg.site_packages:
        return []
    places = (sysconfig.get_paths()[name] for name in ("purelib", "platlib"))
    return [place for place in dict.fromkeys(map(os.path.realpath, places)) if os.path.isdir(place)]


def make_plan(cfg: Sandbox, method: str, scratch: Path) -> dict[str, Any]:
    """Everything that the inside needs to know, as JSON. ``scratch`` is a folder of the host for small files."""
    (scratch / "passwd").write_text(PASSWD)
    (scratch / "group").write_text(GROUP)
    installed = packages(cfg)
    extra = [os.path.realpath(os.path.expanduser(path)) for path in cfg.read_only]
    for path in extra:
        if not os.path.exists(path):
            raise BadInput(f"sandbox.read_only: no file or folder {path}")
        if path in ("/", os.path.realpath(os.path.expanduser("~"))):
            raise BadInput(f"sandbox.read_only: {path} would show everything; name the folder that is needed")
    prefix = os.path.realpath(sys.base_prefix)
    links = {path: os.readlink(path) for path in SYSTEM if os.path.islink(path)}
    folders = ["/usr", *(path for path in SYSTEM if os.path.isdir(path) and path not in links)]
    shown = [*folders, *(path for path in ETC if os.path.exists(path)), prefix, *installed, *extra]
    shown = [p for p in dict.fromkeys(shown) if not any(p != q and p.startswith(f"{q}/") for q in shown)]
    binds = [[os.path.realpath(path), path] for path in shown]
    readable = [target for _, target in binds]
    binds += [[str(scratch / name), f"/etc/{name}"] for name in ("passwd", "group")]
    return {
        "method": method,
        "own_folders": method == "namespaces" or (method == "bubblewrap" and _bubblewrap_may_mount()),
        "binds": binds,
        "in_private": [path for path in readable if path.startswith(tuple(f"{folder}/" for folder in PRIVATE))],
        "links": links,
        "readable": readable if method == "none" else [*readable, "/etc/passwd", "/etc/group", "/dev"],
        "writable": ["/tmp", "/dev/shm"] if method != "none" else [],
        "devices": list(DEVICES),
        "workspace": str(scratch) if method == "none" else "",
        "hidden": [str(source_root())],
        "site": installed,
        "preload": list(cfg.preload),
        "env": environment(prefix, installed),
        "limits": {name: value for name, value in asdict(cfg).items() if name in LIMITS},
    }


def _bubblewrap_may_mount() -> bool:
    """Whether bubblewrap gives the right to mount; one that is set-uid does not to others than root."""
    found = shutil.which("bwrap")
    return os.geteuid() == 0 or found is None or not os.stat(found).st_mode & stat.S_ISUID


def environment(prefix: str, installed: list[str]) -> dict[str, str]:
    """The environment of every program inside; nothing of the host's is in it."""
    return {
        "PATH": ":".join(dict.fromkeys([f"{prefix}/bin", "/usr/local/bin", "/usr/bin", "/bin"])),
        "HOME": WORKSPACE,
        "LANG": "C.UTF-8",
        "USER": "user",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",  # what a program leaves in its home is not run by the next
        "PYTHONPATH": ":".join(installed),
        **{f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMEXPR")},
    }
