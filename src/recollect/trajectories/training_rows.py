"""Training rows of one trajectory: one for each action, and the whole conversation, which can be read back exactly.

What is trained on is what each step produced. What it was told, and what it was shown, is context.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from recollect.chat import TOOL_WRITERS
from recollect.trajectories.field_names import UNKNOWN, text_of
from recollect.trajectories.produced import ENDING, THINKING, ends, is_prompted, plain, produced, prompt_of
from recollect.trajectories.row_templates import Templates, ToolTemplate
from recollect.trajectories.schema import Record
from recollect.trajectories.template_fields import added, fields_at, filled, instructed, value_at
from recollect.types import ToolCall

UNSAID = ("observation", UNKNOWN)  # actions that nobody wrote, where they have no input
HEARD = "ok"  # what an agent is shown after a thought


def tool_rows(record: Record, templates: Templates) -> Iterator[tuple[str, Record]]:
    """(tool, row) of every action that produced something."""
    for i, action in enumerate(record["actions"]):
        template = templates.of(action["tool"])
        fields = instructed(record, i) if template.is_instruction else fields_at(record, i)
        response = template.shortened(_response(template, record, i, fields))
        if response.strip():
            own = template.prompted if is_prompted(action, record) else None
            where = {"task_id": record["task_id"], "domain": record["domain"], "step": action["step"]}
            prompt = filled(template.prompt if own is None else own, fields)
            yield action["tool"], {"prompt": prompt, "response": response, **where}


def _response(template: ToolTemplate, record: Record, i: int, fields: dict[str, str]) -> str:
    """What is learnt; the output of a thought that its agent wrote as the input is that input."""
    action = record["actions"][i]
    if template.source is None:
        return filled(template.response, fields)
    if template.source == "action_output" and action["tool"] in THINKING and not is_prompted(action, record):
        return fields["produced"]
    value = value_at(action, template.source)
    return "" if value is None else text_of(value)


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
        if is_prompted(action, record):
            _tell(messages, action, record)
        messages += _turn(record, i, templates)
    final = record["final_answer"]
    if final is not None and not (record["actions"] and _ends(record)):
        messages.append(
            {"role": "assistant", "content": filled(templates.final, fields_at(record, len(record["actions"])))}
        )
    if not any(m["role"] == "assistant" for m in messages):
        return None
    return {"messages": messages, **{k: v for k, v in record.items() if k != "actions"}}


def _tell(messages: list[Record], action: Record, record: Record) -> None:
    """Add what a step's prompt says beyond everything said before it."""
    more = added(prompt_of(action), record["question"], "\n".join(m["content"] for m in messages))
    if not more:
        return
    if messages[-1]["role"] == "user":
        messages[-1] = {**messages[-1], "content": f"{messages[-1]['content']}\n\n{more}".strip()}
    else:
        messages.append({"role": "user", "content": more, "template": True})


def _turn(record: Record, i: int, templates: Templates) -> list[Record]:
    """What the agent writes for an action, and what it is shown; nothing follows the action that ends the attempt."""
    action = record["actions"][i]
    mine = {"step": action["step"], "tool": action["tool"], "input": action["input"]}
    if action["tool"] in UNSAID and action["input"] in ("", None):
        return [{"role": "tool", "content": text_of(action["output"]), "action": {**mine, "output": action["output"]}}]
    said: Record = {"role": "assistant", "content": "", "action": mine}
    call = ToolCall(action["tool"], _arguments(record, action))
    if templates.syntax == "openai":
        function = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
        said["tool_calls"] = [{"id": f"call_{i + 1}", "type": "function", "function": function}]
    else:
        said["content"] = TOOL_WRITERS[templates.syntax]([call])
    shown: Record = {"role": "tool", "content": filled(templates.observation, fields_at(record, i))}
    if templates.syntax == "openai":
        shown["tool_call_id"] = f"call_{i + 1}"
    if i == len(record["actions"]) - 1 and _ends(record):
        mine["output"] = action["output"]
        return [said]
    if is_prompted(action, record):
        mine["output"] = action["output"]
        return [said, {**shown, "content": HEARD, "template": True}]
    if shown["content"] != action["output"]:
        shown["output"] = action["output"]
    return [said, shown]


def _arguments(record: Record, action: Record) -> dict[str, Any]:
    """The arguments of the call that stands for an action: what it was given, or what it produced from a prompt."""
    value, text = action["input"], produced(action, record)
    if is_prompted(action, record) or (ends(action, record) and text != plain(value)):
        return {"input": text}
    return value if isinstance(value, dict) and value.keys() != {"input"} else {"input": value}


def _ends(record: Record) -> bool:
    """Whether the last action is the one that ends the attempt."""
    return record["actions"][-1]["tool"] in ENDING
