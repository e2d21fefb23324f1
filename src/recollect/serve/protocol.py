"""Requests of the OpenAI protocol, read and checked; everything that cannot be honoured is refused by name."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from recollect.chat import Renderer
from recollect.chat.media import WHY, media_in
from recollect.chat.schemas import Schema
from recollect.chat.writers import TOOL_WRITERS
from recollect.images.content import ImageColumn, holds_image, marked
from recollect.policies.openai_messages import tool_calls
from recollect.serve.limits import Bounds
from recollect.serve.response_format import read_response_format
from recollect.types import BadInput, Grammar, Message, Sampling

HONOURED = {
    *("model", "messages", "prompt", "tools", "tool_choice", "response_format", "max_tokens", "max_completion_tokens"),
    *("temperature", "top_p", "top_k", "stop", "seed", "n", "logprobs", "stream", "stream_options", "ignore_eos"),
}
ABOUT = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "request_id"}  # a call
NEUTRAL: dict[str, Any] = {  # values of others that ask for nothing, where that is not 0, false or empty
    "repetition_penalty": 1,
    "length_penalty": 1,
    "best_of": 1,
    "truncate_prompt_tokens": -1,
    "parallel_tool_calls": True,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "add_generation_prompt": True,
    "add_special_tokens": True,
    "modalities": ["text"],
}
MOST_N = 64
MOST_STOPS = 16
LONGEST_STOP = 256  # characters
MOST_TOOLS = 128
PREFIXES = ("openai/", "huggingface/", "local:", "arbor:")  # that clients put before a model's name
SHOWN = 100  # characters of what a client wrote that an error repeats


class BadRequest(ValueError):
    """A request that cannot be served; ``param`` names the part of it that is wrong, ``code`` the kind of error."""

    def __init__(self, message: str, param: str | None = None, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.param, self.status, self.code = param, status, code


class TooLong(BadRequest):
    """A prompt that does not fit the model's window; clients cut theirs when they read the code."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message, param, code="context_length_exceeded")


@dataclass(frozen=True)
class CompletionRequest:
    """What a request asks for, in our terms."""

    prompts: list[list[int]]
    sampling: Sampling
    n: int = 1
    stream: bool = False
    stream_usage: bool = False
    logprobs: bool = False
    tools: tuple[Schema, ...] = ()
    chat: bool = True
    messages: tuple[Message, ...] = ()  # of a chat
    owner: object = None  # the sampler that it was read for, where a server has several


def chat_request(body: Mapping[str, Any], renderer: Renderer, bounds: Bounds) -> CompletionRequest:
    """A call of /v1/chat/completions."""
    rows = body.get("messages")
    if not isinstance(rows, list) or not rows:
        raise BadRequest("messages must be a list with at least one message", "messages")
    if len(rows) > bounds.window:
        raise TooLong(f"{len(rows)} messages do not fit the model's window of {bounds.window}", "messages")
    n = _choices(body, 1, bounds)
    messages = read_messages(rows, renderer)
    tools = _tools(body)
    shown = [json.dumps(tools, ensure_ascii=False)] if tools and renderer.shows_tools else []
    _refuse_long("\n".join([*shown, *(message.content for message in messages)]), renderer, bounds, "messages")
    try:
        prompt = renderer.prompt(messages, tools)
    except BadInput as error:
        raise BadRequest(clipped(error), "messages") from None
    wanted = body.get("logprobs") or False
    if not isinstance(wanted, bool):
        raise BadRequest("logprobs must be true or false", "logprobs")
    made = _asked(body, [prompt], n, renderer, bounds, wanted, tools, chat=True)
    return replace(made, messages=tuple(messages))


def text_request(body: Mapping[str, Any], renderer: Renderer, bounds: Bounds) -> CompletionRequest:
    """A call of /v1/completions: text or token ids, one prompt or several."""
    given = body.get("prompt")
    rows = given if isinstance(given, list) and given and isinstance(given[0], str | list) else [given]
    n = _choices(body, len(rows), bounds)
    for text in filter(lambda row: isinstance(row, str), rows):
        _refuse_long(text, renderer, bounds, "prompt")
    prompts = [_prompt(row, renderer, bounds) for row in rows]
    wanted = body.get("logprobs")
    if wanted is not None and (isinstance(wanted, bool) or not isinstance(wanted, int) or not 0 <= wanted <= 1):
        raise BadRequest("logprobs must be 0 or 1: those of the sampled tokens are known, of others not", "logprobs")
    return _asked(body, prompts, n, renderer, bounds, wanted is not None, (), chat=False)


def _choices(body: Mapping[str, Any], prompts: int, bounds: Bounds) -> int:
    """How many completions of each prompt are asked for; refused if the server never samples so many at once."""
    n = integer(body, "n", 1, 1, MOST_N)
    if n * prompts > bounds.completions:
        raise BadRequest(f"{n * prompts} completions are more than the {bounds.completions} that fit at once", "n")
    return n


def _refuse_long(text: str, renderer: Renderer, bounds: Bounds, param: str) -> None:
    """Refuse a prompt that cannot fit before all of it is tokenised."""
    if renderer.at_least(text, bounds.window) > bounds.window:
        raise TooLong(f"a prompt of {len(text)} characters does not fit the model's window of {bounds.window}", param)


def clipped(value: Any) -> str:
    """What a client wrote, as far as an error repeats it."""
    text = value if isinstance(value, str) else type(value).__name__ if isinstance(value, list | dict) else str(value)
    text = text[: SHOWN + 1].encode("utf-8", "replace").decode()
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def plain_name(name: Any) -> str:
    """The name of a model without what clients put before it."""
    text = name if isinstance(name, str) else ""
    for prefix in PREFIXES:
        text = text.removeprefix(prefix)
    return text


def _asked(
    body: Mapping[str, Any],
    prompts: list[list[int]],
    n: int,
    renderer: Renderer,
    bounds: Bounds,
    logprobs: bool,
    tools: Sequence[Schema],
    chat: bool,
) -> CompletionRequest:
    known = HONOURED | ABOUT | (set() if chat else {"return_token_ids"})  # which completions of text always do
    for key, value in body.items():
        if key not in known and value is not None and (value != NEUTRAL[key] if key in NEUTRAL else value):
            but = f", but for {NEUTRAL[key]}" if key in NEUTRAL else ""
            raise BadRequest(f"{clipped(key)} is not supported{but}", clipped(key))
    grammar = _grammar(body, renderer, bounds, tools)
    key = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
    most = bounds.max_tokens
    tokens = integer(body, key, min(most, 256 if chat else 16), 1, 1 << 30)
    if tokens > most:
        raise BadRequest(f"{key}={tokens} is more than the {most} that this server allows", key)
    options = _mapping(body, "stream_options")
    sampling = Sampling(
        temperature=number(body, "temperature", 1.0, 0, 2),
        top_p=number(body, "top_p", 1.0, 0, 1) or 1e-9,
        top_k=integer(body, "top_k", -1, -1, 1 << 30),
        max_tokens=tokens,
        stop=_stops(body),
        stop_ids=() if body.get("ignore_eos") else renderer.stop_ids,
        seed=integer(body, "seed", random.getrandbits(31), -(1 << 62), 1 << 62),
        keep=chat,
        grammar=grammar,
    )
    stream = bool(body.get("stream"))
    return CompletionRequest(
        prompts, sampling, n, stream, bool(options.get("include_usage")), logprobs, tuple(tools), chat
    )


def _grammar(body: Mapping[str, Any], renderer: Renderer, bounds: Bounds, tools: Sequence[Schema]) -> Grammar | None:
    """The form that completions must have."""
    try:
        found = read_response_format(_mapping(body, "response_format"), renderer, bounds.vocabulary)
    except BadInput as error:
        raise BadRequest(f"response_format: {error}", "response_format") from None
    if found is not None and (tools or body.get("ignore_eos")):
        what = "tools, whose calls have a form of their own" if tools else "ignore_eos"
        raise BadRequest(f"response_format: JSON cannot be asked for together with {what}", "response_format")
    return found


def number(body: Mapping[str, Any], key: str, default: float, low: float, high: float) -> float:
    """A number between bounds."""
    value = body.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise BadRequest(f"{key} must be a number between {low} and {high}", key)
    return float(value)


def integer(body: Mapping[str, Any], key: str, default: int, low: int, high: int) -> int:
    """A whole number between bounds."""
    value = body.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise BadRequest(
            f"{key} must be a whole number of at least {low}" + (f" and at most {high}" if high < 1 << 30 else ""), key
        )
    return value


def _mapping(body: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = body.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise BadRequest(f"{key} must be an object", key)
    return value or {}


def _stops(body: Mapping[str, Any]) -> tuple[str, ...]:
    given = body.get("stop")
    rows = [given] if isinstance(given, str) else given or []
    if not isinstance(rows, list) or len(rows) > MOST_STOPS or not all(isinstance(s, str) and s for s in rows):
        raise BadRequest(f"stop must be a text or a list of at most {MOST_STOPS} texts", "stop")
    if any(len(s) > LONGEST_STOP for s in rows):
        raise BadRequest(f"a stop string may have {LONGEST_STOP} characters", "stop")
    return tuple(dict.fromkeys(rows))


def _prompt(given: Any, renderer: Renderer, bounds: Bounds) -> list[int]:
    if isinstance(given, list) and len(given) > bounds.window:
        raise TooLong(f"a prompt of {len(given)} tokens does not fit the model's window of {bounds.window}", "prompt")
    if isinstance(given, str):
        ids = renderer.encode(given)
    elif isinstance(given, list) and all(isinstance(i, int) and not isinstance(i, bool) for i in given):
        ids = list(given)
    else:
        raise BadRequest("prompt must be a text, a list of token ids, or a list of either", "prompt")
    if not ids:
        raise BadRequest("prompt is empty", "prompt")
    if min(ids) < 0 or max(ids) >= bounds.vocabulary:
        raise BadRequest(f"prompt has a token id outside of 0 … {bounds.vocabulary - 1}", "prompt")
    return ids


def read_messages(rows: Sequence[Any], renderer: Renderer) -> list[Message]:
    """The messages of a body, with the images of all of them."""
    column = ImageColumn([], "", None)
    return [_message(row, i, renderer, column) for i, row in enumerate(rows)]


def _message(row: Any, place: int, renderer: Renderer, column: ImageColumn) -> Message:
    """One message; calls of an assistant's turn are written as the template's own models write them."""
    where = f"messages[{place}]"
    if not isinstance(row, Mapping) or row.get("role") not in ("system", "developer", "user", "assistant", "tool"):
        raise BadRequest(f"{where}.role must be system, developer, user, assistant or tool", "messages")
    before = len(column.taken)
    text = _text(_with_marks(row, where, renderer, column), where)
    calls = row.get("tool_calls")
    if calls:
        if not isinstance(calls, list) or not all(map(_is_call, calls)):
            raise BadRequest(f"{where}.tool_calls must be a list of {{function: {{name, arguments}}}}", "messages")
        text = "\n".join(filter(None, [text, TOOL_WRITERS[renderer.parser](tool_calls(calls))]))
    images = tuple(column.taken[before:])
    if images and row["role"] == "assistant":
        raise BadRequest(f"{where}: a reply holds text alone", "messages")
    return Message("system" if row["role"] == "developer" else str(row["role"]), text, images)


def _with_marks(row: Mapping[str, Any], where: str, renderer: Renderer, column: ImageColumn) -> Any:
    """A message's content with marks in place of its images, where the model sees."""
    content = row.get("content")
    if renderer.patches is None or not holds_image(content):
        return content
    column.place = f"{where}.content"
    try:
        return marked(content, column)
    except BadInput as error:
        raise BadRequest(clipped(error), "messages") from None


def _is_call(call: Any) -> bool:
    return isinstance(call, Mapping) and isinstance(call.get("function"), Mapping)


def _text(content: Any, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if (found := media_in(content)) is not None:
        raise BadRequest(f"{where}.content holds {found}; {WHY}", "messages")
    parts = content if isinstance(content, list) else [None]
    if not all(isinstance(p, Mapping) and p.get("type") == "text" and isinstance(p.get("text"), str) for p in parts):
        raise BadRequest(f"{where}.content must be a text, or parts of type text", "messages")
    return "".join(str(p["text"]) for p in parts if p)


def _tools(body: Mapping[str, Any]) -> tuple[Schema, ...]:
    choice = body.get("tool_choice", "auto") or "auto"
    if choice not in ("auto", "none"):
        raise BadRequest("tool_choice must be auto or none: a call cannot be forced", "tool_choice")
    rows = body.get("tools") or []
    if not isinstance(rows, list) or len(rows) > MOST_TOOLS:
        raise BadRequest(f"tools must be a list of at most {MOST_TOOLS}", "tools")
    for row in rows:
        inner = row.get("function") if isinstance(row, Mapping) else None
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            raise BadRequest("every tool must be {type: function, function: {name, …}}", "tools")
    return () if choice == "none" else tuple(rows)
