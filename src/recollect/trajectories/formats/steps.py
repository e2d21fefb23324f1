"""Records of a run's steps: ``steps: [{role: assistant | tool, content, phase, turn_id}]``, tool output in tags.

An assistant step and the tool step after it are one action. ``metadata.steps`` keeps the steps as they came, with what
the assistant wrote around its command, phases, turns and return codes.
"""

from __future__ import annotations

import re
from typing import Any

from recollect.chat.json_calls import hermes
from recollect.chat.text_calls import react
from recollect.files.half_characters import loads_whole
from recollect.trajectories.field_names import (
    INPUT,
    OUTPUT,
    TOOL,
    NotATrajectory,
    action,
    answer_in,
    find,
    question_in,
    text_of,
    unified,
)
from recollect.trajectories.formats import conversations as chat
from recollect.trajectories.formats.actions import one
from recollect.trajectories.produced import ENDING
from recollect.trajectories.schema import Record, kind

PHASES = {"PLAN": "reason", "WRITE": "write", "EXEC": "bash", "FINALIZE": "finalize"}
_FENCE = re.compile(r"```([\w+-]*)[ \t]*\r?\n(.*?)\r?\n?```", re.DOTALL)
_CODE = re.compile(r"<returncode>\s*(-?\d+)\s*</returncode>")
_OUTPUT = re.compile(r"<output>(.*)</output>", re.DOTALL)
_SHELLS = {"bash": "bash", "sh": "bash", "shell": "bash", "console": "bash", "python": "python", "py": "python"}


def list_of(row: Record) -> str | None:
    """The name under which a record has steps with roles."""
    name = find(row, ("steps", "trajectory", "history", "actions"))
    given = row[name] if name else None
    return name if isinstance(given, list) and any(isinstance(s, dict) and "role" in s for s in given) else None


def read(row: Record) -> Record:
    """The actions of a record of steps; steps that are chat messages with calls are read as such."""
    name = list_of(row)
    assert name is not None
    steps = row[name]
    for i, step in enumerate(steps, 1):
        if not isinstance(step, dict) or not isinstance(step.get("role", ""), str):
            raise NotATrajectory(f"step {i} is no object with a role but {kind(step)}")
    if any(step.get("tool_calls") or step.get("function_call") for step in steps):
        return chat.read(row, name)
    question, asked = question_in(row)
    opening = [s for s in steps if s.get("role") == "user"][:1]
    if question is None and opening:
        question = text_of(opening[0].get("content") or "")
    answer, said = answer_in(row)
    actions = _actions([s for s in steps if s not in opening])
    return unified(
        row,
        [asked, said, name],
        question=question or "",
        actions=actions,
        final_answer=_last_words(actions, steps) if answer is None else answer,
        more={"steps": steps},
    )


def _actions(steps: list[Record]) -> list[Record]:
    actions: list[Record] = []
    answered = True  # whether the last action has a result
    for step in steps:
        content = step.get("content")
        content = "" if content is None else content
        if "role" not in step or _names_a_tool(step):
            made, _ = one(step, len(actions) + 1)
            actions.append(made)
            answered = made["output"] != ""
        elif step["role"] == "assistant":
            tool, given = called(text_of(content), str(step.get("phase") or ""))
            actions.append(action(len(actions) + 1, tool, given))
            answered = False
        else:
            if answered:  # nobody asked for it, or it is one more result
                actions.append(action(len(actions) + 1, "observation"))
            actions[-1]["output"] = shown(content)[0] if isinstance(content, str) else content
            answered = True
    return actions


def _names_a_tool(step: Record) -> bool:
    """Whether a step is an action of its own, whatever its role."""
    return step["role"] != "tool" and bool(find(step, TOOL[:3])) and bool(find(step, (*INPUT, *OUTPUT)))


def called(content: str, phase: str) -> tuple[str, Any]:
    """(tool, input) of what an assistant wrote: a call, a block of code, or the text of its phase."""
    calls = hermes(content) if "<tool_call>" in content else react(content) if "Action" in content else []
    if len(calls) == 1 and calls[0].arguments is not None and calls[0].name:
        return calls[0].name, calls[0].arguments
    if content.lstrip().startswith("{") and (found := _object(content)) is not None:
        return found
    fences = _FENCE.findall(content)
    default = PHASES.get(phase.upper())
    if len(fences) == 1 and phase.upper() != "FINALIZE":
        language, code = fences[0]
        return _SHELLS.get(language.lower(), default if default not in (None, "reason") else "bash"), code
    return default or "reason", content


def _object(content: str) -> tuple[str, Any] | None:
    """A call that is a JSON object with a tool and an input."""
    try:
        value = loads_whole(content)
    except ValueError:
        return None
    tool, given = find(value, (*TOOL[:3], "name")), find(value, INPUT)
    return (value[tool], value[given]) if tool and given and isinstance(value[tool], str) and value[tool] else None


def shown(content: str) -> tuple[str, int | None]:
    """(output, return code) of what a tool wrote."""
    code, inside = _CODE.search(content), _OUTPUT.search(content)
    return (inside[1] if inside else content), int(code[1]) if code else None


def _last_words(actions: list[Record], steps: list[Record]) -> str | None:
    """The answer: what the last FINALIZE returned as one, or what was said in it, or what was said last."""
    final = next((a for a in reversed(actions) if a["tool"] in ENDING), None)
    if final is not None:
        returned = _answer(final["output"])
        given = final["input"]
        if returned is None and isinstance(given, dict) and len(given) == 1:
            (given,) = given.values()
        return text_of(given) if returned is None else returned
    said = [s["content"] for s in steps if s.get("role") == "assistant" and s.get("content")]
    return text_of(said[-1]) if said else None


def _answer(output: Any) -> str | None:
    """The answer in a result that is an object, or its JSON."""
    if isinstance(output, str) and output.lstrip().startswith("{"):
        try:
            output = loads_whole(output)
        except ValueError:
            return None
    return answer_in(output)[0] if isinstance(output, dict) else None
