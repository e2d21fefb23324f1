"""The expert of repairs: it knows the edits that make the tests pass, or only runs the tests where it does not."""

from __future__ import annotations

import json
import re

from recollect.domains.experts.texts import GIVE_UP
from recollect.types import Action, Task

TEST = "python -m unittest -q"
_FAILED = re.compile(r"FAILED|Traceback|Error\b|\b[1-9]\d* (?:failed|errors?)\b|exit status|not found|Stopped: ")


def swe_expert(task: Task, actions: list[Action]) -> str:
    """Run the tests, read each file concerned, edit it, run the tests again."""
    test = str(task.fields.get("test") or TEST)
    edits = task.fields.get("solution") or []
    if task.fields.get("files") == {}:  # a program is to be written, and a script cannot write one
        return ["list_files:", f"finalize: {GIVE_UP}"][min(len(actions), 1)]
    plan = [f"bash: {test}"]
    plan += [f"read_file: {path}" for path in dict.fromkeys(e["path"] for e in edits)]
    plan += [f"edit_file: {json.dumps({k: e[k] for k in ('path', 'old', 'new')})}" for e in edits]
    plan += [f"bash: {test}"] if edits else ["list_files:"]
    if len(actions) < len(plan):
        return plan[len(actions)]
    last = actions[-1]
    passed = bool(edits) and last.tool == "bash" and last.outcome == "ok" and not _FAILED.search(last.output)
    return "finalize: the tests pass" if passed else "finalize: not repaired"
