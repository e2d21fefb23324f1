"""A trajectory as a list of messages, which is what a reward of AgentFly's reads."""

from __future__ import annotations

from typing import Any

from recollect.types import Action, Task, Trajectory


def messages_of(task: Task, trajectory: Trajectory) -> list[dict[str, Any]]:
    """The question, what the model said turn by turn, and what tools answered after each turn."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": task.question}]
    for number, turn in enumerate(trajectory.turns, 1):
        used = [action for action in trajectory.actions if action.turn == number]
        said: dict[str, Any] = {"role": "assistant", "content": turn.completion.text}
        if used:
            said["tool_calls"] = [_call(action) for action in used]
        messages.append(said)
        messages += [{"role": "tool", "name": action.tool, "content": action.output} for action in used]
    return messages


def final_response(task: Task, trajectory: Trajectory) -> str:
    """The last message of the model or of a tool."""
    last = messages_of(task, trajectory)[-1]
    return "" if last["role"] == "user" else str(last["content"])


def _call(action: Action) -> dict[str, Any]:
    return {"type": "function", "function": {"name": action.tool, "arguments": action.input}}
