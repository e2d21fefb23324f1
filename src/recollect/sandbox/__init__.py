"""A place for programs that a model wrote: no network, no files but its own, limits on everything, killed as a whole.

``inside`` is what runs behind the walls, with the standard library alone; the other modules are the host's side.
Nothing is imported here at once, so that the inside can be loaded without the host's side.
"""

from __future__ import annotations


async def run_python(code: str, stdin: str = "", timeout: float | None = None) -> tuple[int, str, str]:
    """(exit status, stdout, stderr) of a Python program in a fresh session of the process's own sandbox."""
    from recollect.sandbox import shared

    return await shared.run_python(code, stdin, timeout)
