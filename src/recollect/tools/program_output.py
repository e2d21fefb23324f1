"""What the model is shown of a program that ran in the sandbox."""

from __future__ import annotations

from recollect.config import Sandbox
from recollect.sandbox.sandbox_session import ProgramResult
from recollect.types import ToolResult


def observation(ran: ProgramResult, limits: Sandbox) -> ToolResult:
    """Output, value, error and the limit that was passed, in this order; a program's own failure is a normal result."""
    passed = {
        "timeout": f"the time limit of {limits.timeout_s:g} seconds",
        "cpu": f"the limit of {limits.cpu_s:g} seconds of processor time",
        "memory": f"the memory limit of {limits.memory_mb} MB",
        "processes": f"the limit of {limits.processes} processes",
        "output": f"the output limit of {limits.output_kb} KB",
    }
    parts = [ran.out.rstrip("\n"), ran.err.rstrip("\n"), ran.value]
    if ran.outcome in passed:
        parts.append(f"Stopped: it passed {passed[ran.outcome]}.")
    elif ran.outcome == "ended":
        parts.append("The process ended without finishing.")
    else:
        parts.append(ran.error)
        if ran.outcome == "error" and ran.code and not ran.err:
            parts.append(f"exit status {ran.code}")
    if ran.state_lost:
        parts.append("The Python state was lost; variables must be defined again.")
    text = "\n".join(part for part in parts if part)
    return ToolResult(text or "(no output)", "timeout" if ran.outcome == "timeout" else "ok")
