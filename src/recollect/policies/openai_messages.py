"""Conversations as OpenAI-compatible servers take them, and their replies as completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from recollect.chat.schemas import Schema, loads
from recollect.chat.writers import TOOL_WRITERS
from recollect.images.image_files import to_url
from recollect.types import IMAGE_MARK, Completion, Message, Sampling, ToolCall


def as_messages(log: Sequence[Message | Completion]) -> list[dict[str, Any]]:
    """A conversation's messages. Results follow the calls of the reply before them; others are the user's words."""
    rows: list[dict[str, Any]] = []
    open_calls: list[str] = []
    for item in log:
        if isinstance(item, Completion):
            rows.append(dict(item.message) if item.message else {"role": "assistant", "content": item.text})
            open_calls = [str(call.get("id", "")) for call in rows[-1].get("tool_calls") or ()]
        elif item.role == "tool" and open_calls:
            rows.append({"role": "tool", "tool_call_id": open_calls.pop(0), "content": content_of(item)})
        else:
            rows.append({"role": "user" if item.role == "tool" else item.role, "content": content_of(item)})
    return rows


def content_of(message: Message) -> str | list[dict[str, Any]]:
    """A message's content: a text, or texts and images in turn."""
    if not message.images:
        return message.content
    first, *others = message.content.split(IMAGE_MARK)
    parts: list[dict[str, Any]] = [{"type": "text", "text": first}]
    for image, text in zip(message.images, others, strict=True):
        parts += [{"type": "image_url", "image_url": {"url": to_url(image)}}, {"type": "text", "text": text}]
    return [part for part in parts if part.get("text") != ""]


def request_body(
    model: str, log: Sequence[Message | Completion], tools: Sequence[Schema] | None, sampling: Sampling
) -> dict[str, Any]:
    """The body of a call of /chat/completions. The seed makes a server that honours it repeat itself."""
    body: dict[str, Any] = {
        "model": model,
        "messages": as_messages(log),
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "seed": sampling.noise_seed & 0x7FFFFFFF,
    }
    if sampling.top_p < 1:
        body["top_p"] = sampling.top_p
    if sampling.top_k > 0:
        body["top_k"] = sampling.top_k
    if sampling.stop:
        body["stop"] = list(sampling.stop)
    if tools:
        body["tools"] = [dict(schema) for schema in tools]
    return body


def completion_of(choice: Mapping[str, Any], syntax: str) -> Completion:
    """A reply as a completion without ids; its tool calls are written as the agent's parser reads them."""
    message = choice["message"]
    text, calls = str(message.get("content") or ""), message.get("tool_calls") or []
    if calls:
        text = "\n".join(filter(None, [text, TOOL_WRITERS.get(syntax, TOOL_WRITERS["hermes"])(tool_calls(calls))]))
    text = text.encode("utf-8", "replace").decode()  # half characters, which no tokenizer takes
    kept = {"role": "assistant", "content": message.get("content") or "", **({"tool_calls": calls} if calls else {})}
    stop = "length" if choice.get("finish_reason") == "length" else "stop"
    return Completion((), (), stop, -1, text, kept)  # type: ignore[arg-type]


def tool_calls(calls: Sequence[Mapping[str, Any]]) -> list[ToolCall]:
    """Calls with their arguments; text that is not JSON stays as it is, for the parser to refuse."""
    found = []
    for call in calls:
        inner = call.get("function") or {}
        given: Any = inner.get("arguments") or {}
        if isinstance(given, str):
            with suppress(ValueError):
                given = loads(given)
        found.append(ToolCall(str(inner.get("name", "")), given, str(call.get("id", ""))))
    return found
