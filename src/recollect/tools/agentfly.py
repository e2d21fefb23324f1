"""Options of AgentFly's ``@tool``, as options of ours; what has no counterpart here is refused with a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OURS = ("timeout", "max_length", "scope", "pool", "ends")
ENDING = {"terminal": True, "finish": True, "success": False, "continue": False}
STATE = "environments of AgentFly's do not exist here; a tool with state is a class under @tool"
SCHEMA = "the schema is made from the signature and the docstring"
REFUSED = {  # unless they are empty or false, as by default
    **dict.fromkeys(("stateful", "resource_spec", "env_cls", "env_kwargs"), STATE),
    **dict.fromkeys(("schema", "args"), SCHEMA),
}


def translated(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of ours that some options mean. ``auto_register`` means nothing: tools are named by their place."""
    mine = {name: value for name, value in options.items() if name in OURS}
    for name, value in options.items():
        if name in OURS or name == "auto_register":
            continue
        if name == "status":
            mine["ends"] = _ends(value)
        elif name == "pool_size":
            mine["pool"] = value if value > 0 else None
        elif name in REFUSED and value:
            raise ValueError(f"@tool({name}=…): {REFUSED[name]}")
        elif name == "backend" and value != "local":
            raise ValueError(f"@tool(backend={value!r}): tools run in this process, which is local")
        elif name not in (*REFUSED, "backend"):
            known = ("name", "description", *OURS, "status", "pool_size", "auto_register")
            raise ValueError(f"@tool has no option {name}; it has {', '.join(known)}")
    return mine


def _ends(status: Any) -> bool:
    if status not in ENDING:
        raise ValueError(f"@tool(status={status!r}) is unknown; known: {', '.join(ENDING)}")
    return ENDING[status]
