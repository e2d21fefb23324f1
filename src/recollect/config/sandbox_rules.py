"""Values of the sandbox section that cannot work."""

from __future__ import annotations

from collections.abc import Iterator

from recollect.config import Config


def problems(whole: Config) -> Iterator[str]:
    """One line for each."""
    cfg = whole.sandbox
    known = ("auto", "namespaces", "bubblewrap")
    if cfg.isolation not in known:
        yield f"sandbox.isolation={cfg.isolation} is unknown; known: {', '.join(known)}"
    for name in ("timeout_s", "cpu_s", "disk_mb", "file_mb", "output_kb", "max_sessions"):
        if not getattr(cfg, name) > 0:
            yield f"sandbox.{name}={getattr(cfg, name)} must be positive"
    if cfg.memory_mb < 64:
        yield f"sandbox.memory_mb={cfg.memory_mb} must be at least 64, which Python itself needs"
    if cfg.processes < 2:
        yield f"sandbox.processes={cfg.processes} must be at least 2, a shell and what it runs"
