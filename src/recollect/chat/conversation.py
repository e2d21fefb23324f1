"""Conversations from files as token ids: every assistant turn is trained on with its end token, nothing else is.

Rows may hold OpenAI messages (with tool calls), ShareGPT conversations, or a prompt and a response. The ids are those
of a conversation that grew turn by turn, so a model is trained on exactly what it is shown and says in a rollout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from recollect.chat.media import refuse_media
from recollect.chat.renderer import Renderer
from recollect.chat.schemas import Schema
from recollect.files.half_characters import loads_whole
from recollect.images.content import shared_out, without_images
from recollect.runtime.error_text import listed
from recollect.types import BadInput, Image, Message, ToolCall

SHAREGPT_ROLES = {
    "human": "user",
    "gpt": "assistant",
    "observation": "tool",
    "function_response": "tool",
    "chatgpt": "assistant",
    "bing": "assistant",
    "model": "assistant",
}
ROLES = ("system", "developer", "user", "assistant", "tool")
PROMPTS = ("prompt", "instruction")
RESPONSES = ("response", "completion", "output")


@dataclass(frozen=True)
class Said:
    """One message of a conversation, with what only an assistant's has."""

    role: str
    content: str
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    trained: bool = True  # of an assistant's: the loss counts it
    images: tuple[Image, ...] = ()


@dataclass(frozen=True)
class Script:
    """A conversation to learn from, and the tools that its model is shown."""

    messages: tuple[Said, ...]
    tools: tuple[Schema, ...] = ()

    @property
    def images(self) -> tuple[Image, ...]:
        """All images that it shows."""
        return tuple(image for m in self.messages for image in m.images)


def is_conversation(row: Mapping[str, Any]) -> bool:
    """True for a row that holds something to imitate."""
    if isinstance(row.get("messages"), list):
        return any(isinstance(m, Mapping) and m.get("role") == "assistant" for m in row["messages"])
    return "conversations" in row or _is_prompted(row)


def _is_prompted(row: Mapping[str, Any]) -> bool:
    return any(name in row for name in PROMPTS) and any(name in row for name in RESPONSES)


def read_conversation(row: Mapping[str, Any], place: str) -> Script:
    """The conversation of a data row."""
    names = ("messages", "conversations", *PROMPTS)
    row, images = without_images(row, names, place)
    refuse_media(row, (*names, *RESPONSES), place)
    if "messages" in row:
        messages = [_message(m, place) for m in _list(row["messages"], "messages", place)]
    elif "conversations" in row:
        messages = [_sharegpt(m, place) for m in _list(row["conversations"], "conversations", place)]
    elif _is_prompted(row):
        messages = _prompted(row, place)
    else:
        raise BadInput(
            f"{place}: expected `messages`, `conversations`, or `prompt` and `response`; it has {listed(row)}"
        )
    if not messages or messages[0].role == "assistant" or not any(m.role == "assistant" for m in messages):
        raise BadInput(f"{place}: a conversation starts with a user or system message and has an assistant turn")
    shown = shared_out([m.content for m in messages], images)
    messages = [replace(m, images=there) for m, there in zip(messages, shown, strict=True)]
    if any(m.images and m.role == "assistant" for m in messages):
        raise BadInput(f"{place}: a reply holds an image, and models here say text alone")
    return Script(tuple(messages), tuple(_tools(row.get("tools"), place)))


def tokenise(script: Script, renderer: Renderer) -> tuple[list[int], list[bool]]:
    """The ids of a conversation up to its last assistant turn, and which of them are trained on."""
    tools = list(script.tools) or None
    ids: list[int] = []
    mask: list[bool] = []
    pending: list[Message] = []
    reply: list[int] = []
    for message in script.messages:
        if message.role != "assistant":
            pending.append(Message(message.role, message.content, message.images))
            continue
        prompt = renderer.extend(ids, reply, pending, tools) if ids else renderer.prompt(pending, tools)
        reply = renderer.reply(message.content, message.calls, message.reasoning)
        mask += [False] * (len(prompt) - len(mask)) + [message.trained] * len(reply)
        ids, pending = prompt, []
    return ids + reply, mask


def _message(row: Any, place: str) -> Said:
    if not isinstance(row, Mapping) or not isinstance(row.get("role"), str):
        raise BadInput(f"{place}: a message is an object with a role; found {str(row)[:80]}")
    role = row["role"] if row["role"] != "function" else "tool"
    if role not in ROLES:
        raise BadInput(f"{place}: a message of an unknown role {role}; known: {', '.join(ROLES)}")
    content = _text(row.get("content"), place)
    if role != "assistant":
        return Said(role, content)
    given = _parsed(row.get("tool_calls") or [])
    if not isinstance(given, list | tuple):
        raise BadInput(f"{place}: `tool_calls` is a list; found {str(given)[:80]}")
    calls = tuple(_call(c, place) for c in given)
    weight = row.get("weight", 1)
    return Said(role, content, calls, str(row.get("reasoning_content") or ""), weight != 0)


def _sharegpt(row: Any, place: str) -> Said:
    if not isinstance(row, Mapping) or "from" not in row:
        raise BadInput(f"{place}: a message of `conversations` is an object with `from` and `value`")
    role = SHAREGPT_ROLES.get(str(row["from"]), str(row["from"]))
    if role == "function_call":
        return Said("assistant", "", (_call(row.get("value"), place),))
    return _message({"role": role, "content": row.get("value")}, place)


def _prompted(row: Mapping[str, Any], place: str) -> list[Said]:
    """A prompt, of which nothing is trained on, and what is replied."""
    prompt, reply = (next(row[name] for name in names if name in row) for names in (PROMPTS, RESPONSES))
    if "prompt" not in row and isinstance(prompt, str) and isinstance(row.get("input"), str) and row["input"]:
        prompt = f"{prompt}\n\n{row['input']}"  # an instruction with what it is about
    asked = _text_or_messages(prompt, "user", "prompt", place)
    asked = [Said(m.role, m.content, m.calls, m.reasoning, trained=False) for m in asked]
    return asked + _text_or_messages(reply, "assistant", "response", place)


def _text_or_messages(value: Any, role: str, name: str, place: str) -> list[Said]:
    if isinstance(value, str):
        return [Said(role, value)]
    if value is not None and not isinstance(value, list | tuple):
        raise BadInput(f"{place}: a {name} is a text or a list of messages; found {str(value)[:80]}")
    return [_message(m, place) for m in value or ()]


def _call(row: Any, place: str) -> ToolCall:
    """A tool call, OpenAI's (arguments as JSON text) or a plain name with arguments."""
    row = _parsed(row)
    function = row.get("function", row) if isinstance(row, Mapping) else None
    arguments = _parsed(function.get("arguments") or {}) if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not function.get("name") or not isinstance(arguments, Mapping):
        raise BadInput(f"{place}: a tool call has a name and arguments (an object); found {str(row)[:80]}")
    return ToolCall(str(function["name"]), dict(arguments))


def _parsed(value: Any) -> Any:
    try:
        return loads_whole(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _tools(value: Any, place: str) -> list[Schema]:
    value = _parsed(value or [])
    if not isinstance(value, list) or not all(isinstance(t, Mapping) for t in value):
        raise BadInput(f"{place}: `tools` is a list of tool schemas")
    return [dict(t) for t in value]


def _list(value: Any, name: str, place: str) -> list[Any]:
    value = _parsed(value)
    if not isinstance(value, list):
        raise BadInput(f"{place}: `{name}` is a list of messages")
    return value


def _text(content: Any, place: str) -> str:
    """A message's text, also where it is a list of parts."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and all(isinstance(p, Mapping) and isinstance(p.get("text"), str) for p in content):
        return "".join(p["text"] for p in content)
    raise BadInput(f"{place}: a message's content is text; found {str(content)[:80]}")
