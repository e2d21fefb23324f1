"""Training rows of one trajectory: one for each action, and the whole conversation, which can be read back exactly."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from recollect.chat import TOOL_WRITERS
from recollect.tools.base import ToolCall
from recollect.trajectories.keys import text_of
from recollect.trajectories.schema import Record
from recollect.trajectories.templates import Templates, fields_at, filled


def tool_rows(record: Record, templates: Templates) -> Iterator[tuple[str, Record]]:
    """(tool, row) of every action whose input is not empty."""
    for i, action in enumerate(record["actions"]):
        template, fields = templates.of(action["tool"]), fields_at(record, i)
        response = filled(template.response, fields)
        if response.strip():
            where = {"task_id": record["task_id"], "domain": record["domain"], "step": action["step"]}
            yield action["tool"], {"prompt": filled(template.prompt, fields), "response": response, **where}


def conversation(record: Record, templates: Templates) -> Record | None:
    """The messages of a trajectory, beside everything else that it holds; None if an agent says nothing in it."""
    messages: list[Record] = []
    own = record["metadata"].get("system")
    start = fields_at(record, 0)
    system = own if isinstance(own, str) else filled(templates.system, start)
    if system:
        messages.append({"role": "system", "content": system, "template": True})
    messages.append({"role": "user", "content": filled(templates.user, start), "template": True})
    for i, action in enumerate(record["actions"]):
        last = i == len(record["actions"]) - 1
        messages += _turn(record, i, templates, ends=last and _gives(action, record["final_answer"]))
    final = record["final_answer"]
    if final is not None and not (record["actions"] and _gives(record["actions"][-1], final)):
        messages.append(
            {"role": "assistant", "content": filled(templates.final, fields_at(record, len(record["actions"])))}
        )
    if messages[-1]["role"] == "user":
        return None
    return {"messages": messages, **{k: v for k, v in record.items() if k != "actions"}}


def _turn(record: Record, i: int, templates: Templates, ends: bool) -> list[Record]:
    """What the agent writes for an action, and what it is shown; nothing follows the action that ends the attempt."""
    action = record["actions"][i]
    mine = {"step": action["step"], "tool": action["tool"], "input": action["input"]}
    said: Record = {"role": "assistant", "content": "", "action": mine}
    call = ToolCall(action["tool"], _arguments(action["input"]))
    if templates.syntax == "openai":
        function = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
        said["tool_calls"] = [{"id": f"call_{i + 1}", "type": "function", "function": function}]
    else:
        said["content"] = TOOL_WRITERS[templates.syntax]([call])
    if ends:
        mine["output"] = action["output"]
        return [said]
    shown: Record = {"role": "tool", "content": filled(templates.observation, fields_at(record, i))}
    if templates.syntax == "openai":
        shown["tool_call_id"] = f"call_{i + 1}"
    if shown["content"] != action["output"]:
        shown["output"] = action["output"]
    return [said, shown]


def _arguments(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) and value.keys() != {"input"} else {"input": value}


def _gives(action: Record, answer: str | None) -> bool:
    """Whether an action is the one that ends an attempt with this answer."""
    if action["tool"] not in ("finalize", "answer", "finish", "submit"):
        return False
    value = action["input"]
    if isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()
    return answer is None or text_of(value) == answer
