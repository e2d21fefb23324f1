"""Verl's files of tools (`multi_turn.tool_config_path`), as far as their tools are here too."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recollect.files.yaml import read_mapping
from recollect.types import BadInput

MEMORY = "verl.tools.memory.mem_tool."  # the two-stage system's classes: they edit and search the agent's memory
SEARCHES = {"RankBM25RetrievalTool": "bm25", "EmbeddingRetrievalTool": "embedding"}
EDITS = ("AddTool", "UpdateTool", "DeleteTool", "RetrieveTool", "ListTool", "FinalAnswerTool")
TOOLS = {
    "verl.tools.search_tool.SearchTool": "search",
    "verl.tools.sandbox_fusion_tools.SandboxFusionTool": "code_interpreter",
}


def settings_of(key: str, path: Any) -> Mapping[str, Any]:
    """The settings that a file of tools stands for; none when no file is named."""
    if path is None:
        return {}
    names = _classes(key, str(path))
    known = {*(f"{MEMORY}{name}" for name in (*SEARCHES, *EDITS)), *TOOLS}
    if odd := next((name for name in names if name not in known), None):
        raise BadInput(f"{key}={path}: {odd} is a class of verl; name a function with agent.tools=[FILE.py:FUNCTION]")
    searches = [SEARCHES[n.removeprefix(MEMORY)] for n in names if n.removeprefix(MEMORY) in SEARCHES]
    tools = [TOOLS[name] for name in names if name in TOOLS]
    memory = {"agent.agent_type": "tool_memory"} if any(name.startswith(MEMORY) for name in names) else {}
    return {
        **memory,
        **({"memory.search": searches} if searches else {}),
        **({"agent.tools": tools} if tools else {}),
    }


def _classes(key: str, path: str) -> list[str]:
    try:
        tree = read_mapping(Path(path).expanduser(), "file of tools")
        return [str(tool["class_name"]) for tool in tree["tools"]]
    except BadInput as error:
        raise BadInput(f"{key}: {error}") from None
    except (TypeError, KeyError):
        raise BadInput(f"{key}={path} is no file of tools: it lists no `tools` with a `class_name` each") from None
