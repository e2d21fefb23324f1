"""How much memory a machine says it has."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from recollect.training.learner.free_memory import host_bytes

MEMINFO = "MemTotal:       24684100 kB\nMemFree:  19116516 kB\nMemAvailable:   1000 kB\nHugePages_Total:  0\n"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


GROUP, OLD = "sys/fs/cgroup", "sys/fs/cgroup/memory/memory"
CASES: dict[str, tuple[dict[str, str], int]] = {
    "a machine": ({"proc/meminfo": MEMINFO}, 1_024_000),
    "nobody can say": ({}, sys.maxsize),
    "an old kernel": ({"proc/meminfo": "MemTotal: 5 kB\n"}, sys.maxsize),
    "no limit": (
        {"proc/meminfo": MEMINFO, f"{GROUP}/memory.max": "max\n", f"{GROUP}/memory.current": "5\n"},
        1_024_000,
    ),
    "a container": (
        {
            "proc/meminfo": MEMINFO,
            f"{GROUP}/memory.max": "900000\n",
            f"{GROUP}/memory.current": "400000\n",
            f"{GROUP}/memory.stat": "anon 5\ninactive_file 100000\nactive_file 7\n",
        },
        600_000,
    ),
    "an older container": (
        {
            f"{OLD}.limit_in_bytes": "900000\n",
            f"{OLD}.usage_in_bytes": "400000\n",
            f"{OLD}.stat": "inactive_file 5\ntotal_inactive_file 200000\n",
        },
        700_000,
    ),
    "a container that is full": (
        {f"{GROUP}/memory.max": "9\n", f"{GROUP}/memory.current": "12\n"},
        0,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_can_be_had(case: str, tmp_path: Path) -> None:
    files, expected = CASES[case]
    assert host_bytes(write(tmp_path, files)) == expected


def test_this_machine_has_some() -> None:
    assert host_bytes() > 1 << 20
