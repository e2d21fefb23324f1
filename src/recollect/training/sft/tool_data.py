"""The folders that `recollect sft-data` writes: one data set for each tool, one of whole conversations."""

from __future__ import annotations

from pathlib import Path

from recollect.runtime.error_text import listed
from recollect.types import BadInput

CONVERSATIONS = "conversations"


def tool_file(folder: str, tool: str | None, split: str) -> str:
    """The file of a tool (None: whole conversations) in a folder; a plain file is itself; empty without a val file."""
    path = Path(folder).expanduser()
    if not path.is_dir() and tool is None:
        return folder if split == "train" else ""
    found = path / (tool or CONVERSATIONS) / f"{split}.jsonl"
    if found.is_file():
        return str(found) if split == "train" or found.stat().st_size else ""
    if split != "train":
        return ""
    known = sorted(p.parent.name for p in path.glob("*/train.jsonl"))
    raise BadInput(f"{folder} has no data of the tool {tool}; it has {listed(known) or 'no */train.jsonl'}")
