"""Completions as the OpenAI protocol says them: whole, or in pieces while they are sampled."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Sequence
from typing import Any

from recollect.chat import TOOL_PARSERS, Renderer
from recollect.serve.protocol import CompletionRequest
from recollect.types import Completion


def new_id(chat: bool) -> str:
    """The name of one reply."""
    return f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex[:24]}"


def frame(asked: CompletionRequest, model: str, name: str, chunk: bool = False) -> dict[str, Any]:
    """What every reply, or piece of one, begins with."""
    kind = ("chat.completion" if asked.chat else "text_completion") + (".chunk" if chunk and asked.chat else "")
    return {"id": name, "object": kind, "created": int(time.time()), "model": model}


def usage(asked: CompletionRequest, done: Sequence[Completion]) -> dict[str, int]:
    """Tokens of a request."""
    prompt, sampled = sum(map(len, asked.prompts)), sum(len(d.ids) for d in done)
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


def visible(text: str, stops: Sequence[str]) -> str:
    """A reply's text up to the first of its stop strings."""
    places = [text.index(stop) for stop in stops if stop in text]
    return text[: min(places)] if places else text


def chat_choice(index: int, asked: CompletionRequest, done: Completion, renderer: Renderer) -> dict[str, Any]:
    """One choice of a chat completion; tool calls are told apart from text when tools were offered."""
    text, calls = visible(done.text, asked.sampling.stop), []
    reason = "length" if done.stop == "length" else "stop"
    if asked.tools:
        spoken = visible(renderer.said(done.ids), asked.sampling.stop)
        found = TOOL_PARSERS[renderer.parser](spoken, asked.tools)
        calls = [_call(call.name, call.arguments or {}) for call in found if not call.error]
        if calls and len(calls) == len(found):
            text, reason = text.split("<tool_call>")[0].split('{"name"')[0].strip(), "tool_calls"
        else:
            calls = []
    message: dict[str, Any] = {"role": "assistant", "content": (text or None) if calls else text}
    if calls:
        message["tool_calls"] = calls
    logprobs = {"content": token_logprobs(done, renderer), "refusal": None} if asked.logprobs else None
    return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": reason}


def text_choice(index: int, asked: CompletionRequest, done: Completion, renderer: Renderer) -> dict[str, Any]:
    """One choice of a text completion, with the ids that were sampled."""
    logprobs = None
    if asked.logprobs:
        rows = token_logprobs(done, renderer)
        starts = [0]
        for row in rows:
            starts.append(starts[-1] + len(row["token"]))
        logprobs = {
            "tokens": [row["token"] for row in rows],
            "token_logprobs": [row["logprob"] for row in rows],
            "top_logprobs": None,
            "text_offset": starts[:-1],
        }
    return {
        "index": index,
        "text": visible(done.text, asked.sampling.stop),
        "logprobs": logprobs,
        "finish_reason": done.stop,
        "token_ids": list(done.ids),
        "prompt_token_ids": asked.prompts[index // asked.n],
    }


def token_logprobs(done: Completion, renderer: Renderer) -> list[dict[str, Any]]:
    """Every sampled token with its log-probability."""
    rows = []
    for token, logprob in zip(done.ids, done.logprobs, strict=True):
        text = renderer.token_text(token)
        rows.append({"token": text, "logprob": logprob, "bytes": list(text.encode()), "top_logprobs": []})
    return rows


def piece(index: int, asked: CompletionRequest, text: str, reason: str | None = None, **more: Any) -> dict[str, Any]:
    """One choice of a chunk."""
    if asked.chat:
        delta = {**({"content": text} if text else {}), **more}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
    return {"index": index, "text": text, "logprobs": None, "finish_reason": reason, **more}


def _call(name: str, arguments: Any) -> dict[str, Any]:
    inner = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": inner}


def event(value: Any) -> str:
    """One server-sent event."""
    return f"data: {value if isinstance(value, str) else json.dumps(value)}\n\n"


def problem(
    message: str, kind: str = "invalid_request_error", param: str | None = None, code: str | None = None
) -> Any:
    """An error as clients of the protocol read it."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
