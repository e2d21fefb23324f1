"""Conversations: OpenAI messages with tool calls, ShareGPT, and the rows that `recollect sft-data` writes.

A call is an action and the message that answers it its output. What is said besides calls is a ``reason``; what a user
replies to is a ``respond``; what is said last is the answer.
"""

from __future__ import annotations

from typing import Any

from recollect.chat.conversation import SHAREGPT_ROLES
from recollect.files.half_characters import loads_whole
from recollect.runtime.error_text import listed
from recollect.trajectories.field_names import NotATrajectory, action, answer_in, question_in, text_of, unified
from recollect.trajectories.produced import ENDING
from recollect.trajectories.schema import Record, kind

NAMES = ("messages", "conversations")


def fits(row: Record) -> bool:
    """Whether a record is a conversation."""
    return any(isinstance(row.get(name), list) for name in NAMES)


def is_own(row: Record) -> bool:
    """Whether a record is a row that `recollect sft-data` has written: it says what its texts stand for."""
    messages = row.get("messages")
    return isinstance(messages, list) and any(
        isinstance(m, dict) and (m.get("template") is True or isinstance(m.get("action"), dict)) for m in messages
    )


def read(row: Record, name: str | None = None) -> Record:
    """The actions of a conversation. Messages of other systems are kept in the metadata as they came."""
    name = name or next(n for n in NAMES if isinstance(row.get(n), list))
    messages = [_message(m, i, name) for i, m in enumerate(row[name], 1)]
    question, asked = question_in(row)
    own = is_own(row)
    if own and isinstance(row.get("question"), str):
        question, asked = row["question"], "question"
    answer, said = answer_in(row)
    talk = _Talk(question)
    for message in messages:
        talk.add(message)
    actions, spoken = talk.end()
    if talk.question is None and not actions and spoken is None:
        raise NotATrajectory("nobody asks anything: there is neither a question nor a message of a user")
    more: Record = {"system": talk.system} if talk.system is not None else {}
    return unified(
        row,
        [asked, said, name],
        question=talk.question or "",
        actions=actions,
        final_answer=spoken if answer is None else answer,
        more=more if own else {**more, name: row[name]},
    )


class _Talk:
    """A conversation, message by message."""

    def __init__(self, question: str | None) -> None:
        self.question = question
        self.system: str | None = None
        self.actions: list[Record] = []
        self.waiting: list[tuple[Any, Record]] = []  # calls without a result so far, with their ids
        self.said: str | None = None  # what the assistant said last, if nothing came after it
        self.exact = False

    def add(self, message: Record) -> None:
        if message.get("template"):  # written by sft-data around the trajectory
            return
        role, content = message["role"], message.get("content")
        if role in ("system", "developer"):
            self.system = _text(content) if self.system is None else f"{self.system}\n\n{_text(content)}"
        elif role == "user":
            self._user(_text(content))
        elif role == "assistant":
            self._assistant(message, _text(content))
        else:
            self._result(message, message["output"] if "output" in message else _text(content))

    def _user(self, text: str) -> None:
        if self.said is not None:
            self.actions.append(action(self._next(), "respond", self.said, text))
            self.said = None
        elif self.question is None:
            self.question = text
        elif text != self.question:
            self.actions.append(action(self._next(), "observation", "", text))

    def _assistant(self, message: Record, text: str) -> None:
        self._spoken()
        if isinstance(message.get("action"), dict):
            self.waiting = [(None, self._exactly(message["action"]))]
            return
        calls = message.get("tool_calls") or ([message["function_call"]] if message.get("function_call") else [])
        if not calls:
            self.said = text
            return
        if text.strip():
            self.actions.append(action(self._next(), "reason", text))
        self.waiting = []
        for call in calls:
            name, given = _call(call)
            self.actions.append(action(self._next(), name, given))
            self.waiting.append((call.get("id") if isinstance(call, dict) else None, self.actions[-1]))

    def _exactly(self, mine: Record) -> Record:
        """The action of a row of sft-data, which says what its text stands for."""
        step, tool = mine.get("step", self._next()), text_of(mine.get("tool"))
        self.actions.append(action(step, tool, mine.get("input"), mine.get("output")))
        self.exact = True
        return self.actions[-1]

    def _result(self, message: Record, output: Any) -> None:
        if isinstance(message.get("action"), dict):
            self._exactly(message["action"])
            return
        wanted = message.get("tool_call_id")
        place = next((i for i, (key, _) in enumerate(self.waiting) if wanted is not None and key == wanted), 0)
        if not self.waiting:
            name = message.get("name")
            self.actions.append(action(self._next(), name if isinstance(name, str) and name else "observation"))
            self.waiting = [(None, self.actions[-1])]
            place = 0
        self.waiting.pop(place)[1]["output"] = output

    def _spoken(self) -> None:
        if self.said is not None:  # it went on without an answer
            self.actions.append(action(self._next(), "reason", self.said))
            self.said = None

    def end(self) -> tuple[list[Record], str | None]:
        """All actions, and what was said last."""
        if self.said is not None:
            return self.actions, self.said
        last = self.actions[-1] if self.actions else None
        if last is not None and last["tool"] in ENDING and not self.exact:
            value = last["input"]
            return self.actions, text_of(next(iter(value.values())) if isinstance(value, dict) and value else value)
        return self.actions, None

    def _next(self) -> int:
        return len(self.actions) + 1


def _message(message: Any, place: int, name: str) -> Record:
    if not isinstance(message, dict):
        raise NotATrajectory(f"message {place} is no object but {kind(message)}")
    if name == "conversations" and "from" in message:
        role, value = str(message["from"]), message.get("value")
        left = {k: v for k, v in message.items() if k not in ("from", "value")}
        if role == "function_call":
            return {**left, "role": "assistant", "content": "", "tool_calls": _parsed_calls(value)}
        return {**left, "role": SHAREGPT_ROLES.get(role, role), "content": value}
    if not isinstance(message.get("role"), str):
        raise NotATrajectory(f"message {place} has no role; it has {listed(message) or 'nothing'}")
    return message


def _parsed_calls(value: Any) -> list[Any]:
    parsed = _parsed(value)
    return parsed if isinstance(parsed, list) else [parsed]


def _call(call: Any) -> tuple[str, Any]:
    """(tool, input) of OpenAI's call, or of a plain name with arguments. A lone ``input`` is the input itself."""
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        raise NotATrajectory(f"a tool call names no tool: {text_of(call)[:80]}")
    given = _parsed(function.get("arguments", function.get("parameters", {})))
    return function["name"], given["input"] if isinstance(given, dict) and given.keys() == {"input"} else given


def _parsed(value: Any) -> Any:
    try:
        return loads_whole(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _text(content: Any) -> str:
    """A message's text; parts that are not text stay as JSON."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in content):
        return "".join(p["text"] for p in content)
    return text_of(content)
