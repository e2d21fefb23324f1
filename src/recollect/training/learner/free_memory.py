"""How much memory is free: of a GPU, or of the machine."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

LIMITS = (  # what a group of processes may use, and uses, by either version of Linux's control groups
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)
SHARE = 3 / 4  # of the machine's free memory that an update may count on; others live there too


def free_bytes(device: torch.device) -> int:
    """Memory that an update on a device may take; of a GPU also what is held for reuse."""
    if device.type != "cuda":
        return int(SHARE * host_bytes())
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + held


def is_scarce(device: torch.device) -> bool:
    """True where an update may need the memory that sampling holds: on a CPU, and on a GPU that is half full."""
    if device.type != "cuda":
        return True
    return free_bytes(device) < torch.cuda.get_device_properties(device).total_memory / 2


def host_bytes(root: Path = Path("/")) -> int:
    """Memory that is available on the machine, within the limit of a container; sys.maxsize if unknown."""
    found = [sys.maxsize, 1024 * _figures(root / "proc/meminfo").get("MemAvailable", sys.maxsize)]
    for limit, used, parts in LIMITS:
        try:
            most, taken = (int((root / "sys/fs/cgroup" / name).read_text()) for name in (limit, used))
        except (OSError, ValueError):  # no such group, or no limit
            continue
        stat = _figures(root / "sys/fs/cgroup" / parts)
        found.append(most - taken + stat.get("total_inactive_file", stat.get("inactive_file", 0)))
    return max(0, min(found))


def _figures(path: Path) -> dict[str, int]:
    """The numbers of a file of lines "name number", by name."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {line[0].rstrip(":"): int(line[1]) for line in lines if len(line) > 1 and line[1].isdigit()}
