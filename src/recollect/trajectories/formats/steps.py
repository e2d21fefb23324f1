"""Records of a run's steps: ``steps: [{role: assistant | tool, content, phase, turn_id}]``, tool output in tags.

An assistant step and the tool steps after it are one action. What the assistant wrote around its command, phases, turns
and return codes go to ``metadata.steps``, one entry for each action.
"""

from __future__ import annotations

import json
import re
from typing import Any

from recollect.chat.json_calls import hermes
from recollect.chat.text_calls import react
from recollect.trajectories.keys import (
    INPUT,
    TOOL,
    NotATrajectory,
    action,
    answer_in,
    find,
    question_in,
    text_of,
    unified,
)
from recollect.trajectories.schema import Record, kind

PHASES = {"PLAN": "reason", "WRITE": "write", "EXEC": "bash", "FINALIZE": "finalize"}
_FENCE = re.compile(r"```([\w+-]*)[ \t]*\r?\n(.*?)\r?\n?```", re.DOTALL)
_CODE = re.compile(r"<returncode>\s*(-?\d+)\s*</returncode>")
_OUTPUT = re.compile(r"<output>(.*)</output>", re.DOTALL)
_SHELLS = {"bash": "bash", "sh": "bash", "shell": "bash", "console": "bash", "python": "python", "py": "python"}


def fits(row: Record) -> bool:
    """Whether a record is of this format."""
    steps = row.get("steps")
    return isinstance(steps, list) and any(isinstance(s, dict) and "role" in s for s in steps)


def read(row: Record) -> Record:
    """The actions of a record of steps."""
    steps = row["steps"]
    for i, step in enumerate(steps, 1):
        if not isinstance(step, dict) or not isinstance(step.get("role"), str):
            raise NotATrajectory(f"step {i} is no object with a role but {kind(step)}")
    question, asked = question_in(row)
    if question is None and isinstance(row.get("env"), dict):
        question = question_in(row["env"])[0]
    opening = [s for s in steps if s["role"] == "user"][:1]
    if question is None and opening:
        question = text_of(opening[0].get("content") or "")
    answer, said = answer_in(row)
    actions, notes = _actions([s for s in steps if s["role"] != "user" or s not in opening])
    if answer is None:
        answer = _last_words(steps)
    more: Record = {"steps": notes}
    if opening and asked is not None:
        more["opening"] = opening[0]
    return unified(
        row, [asked, said, "steps"], question=question or "", actions=actions, final_answer=answer, more=more
    )


def _actions(steps: list[Record]) -> tuple[list[Record], list[Record]]:
    actions: list[Record] = []
    notes: list[Record] = []
    for step in steps:
        content = step.get("content")
        content = "" if content is None else content
        left = {k: v for k, v in step.items() if k not in ("role", "content")}
        if step["role"] == "assistant":
            tool, given = called(text_of(content), str(step.get("phase") or ""))
            actions.append(action(len(actions) + 1, tool, given))
            notes.append({**left, **({} if given == content else {"content": content})})
            continue
        if step["role"] != "tool":
            left["role"] = step["role"]
        if not actions or "tool" in notes[-1]:  # nobody asked for it, or it is one more result
            actions.append(action(len(actions) + 1, "observation"))
            notes.append({})
        output, code = shown(text_of(content))
        actions[-1]["output"] = output
        notes[-1]["tool"] = {**left, **({} if code is None else {"returncode": code})}
        if output != content and not _tagged(content, output, code):
            notes[-1]["tool"]["content"] = content
    return actions, notes


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
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    tool, given = find(value, TOOL[:2]), find(value, INPUT)
    return (value[tool], value[given]) if tool and given and isinstance(value[tool], str) and value[tool] else None


def shown(content: str) -> tuple[str, int | None]:
    """(output, return code) of what a tool wrote."""
    code, inside = _CODE.search(content), _OUTPUT.search(content)
    return (inside[1] if inside else content), int(code[1]) if code else None


def _tagged(content: Any, output: str, code: int | None) -> bool:
    """Whether the content is nothing but the two tags, so that it can be written again."""
    return content in (f"<returncode>{code}</returncode><output>{output}</output>", f"<output>{output}</output>")


def _last_words(steps: list[Record]) -> str | None:
    said = [s for s in steps if s["role"] == "assistant" and s.get("content")]
    final = [s for s in said if str(s.get("phase") or "").upper() == "FINALIZE"] or said
    if not final:
        return None
    tool, given = called(text_of(final[-1]["content"]), str(final[-1].get("phase") or ""))
    if tool in ("finalize", "answer", "submit") and isinstance(given, dict) and len(given) == 1:
        return text_of(next(iter(given.values())))
    return text_of(given) if tool == "finalize" else text_of(final[-1]["content"])
