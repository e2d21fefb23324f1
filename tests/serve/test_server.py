"""The server, asked by the official client and by clients that misbehave."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import openai
import pytest

from recollect.config.compose import compose
from recollect.samplers.bindings import RoleBinder
from recollect.serve.connections import Http
from recollect.serve.server import ServeLimits, Server
from recollect.serve.start import listening
from recollect.types import Sampling
from tests.waiting import LONG, until

get, post = partial(httpx.get, timeout=LONG), partial(httpx.post, timeout=LONG)
QUESTION = "Question: What does mira hold?\nMemory: mira holds 472\nAnswer:"
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {"name": "find", "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}},
    }
]


class Running:
    """A server in a thread with a loop of its own."""

    def __init__(self, server: Server) -> None:
        self.server = server
        sock = listening("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        self.http = Http(server.app(), server.limits.connections)
        self.thread = threading.Thread(target=lambda: asyncio.run(self.http.serve(sock)), daemon=True)
        self.thread.start()
        assert until(lambda: self.http.started)

    def client(self, key: str = "none") -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0)

    def stop(self) -> None:
        self.http.stop()
        self.thread.join(10)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    found = RoleBinder(compose(None, ["trainer.threads=1", "trainer.device=cpu"]), None).loaded("tiny")
    made = Running(
        Server(found.sampler, found.renderer, "tiny", ServeLimits(max_tokens=2000, max_body=60_000, concurrency=16))
    )
    yield made
    made.stop()


def ask(client: openai.OpenAI, text: str = QUESTION, **options: Any) -> Any:
    return client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": text}], **options)


def test_models_and_health(running: Running) -> None:
    client = running.client()
    assert [m.id for m in client.models.list()] == ["tiny"]
    assert client.models.retrieve("tiny").owned_by == "recollect"
    with pytest.raises(openai.NotFoundError, match="there is tiny"):
        client.models.retrieve("other")
    assert get(f"{running.url}/health").json() == {"status": "ok", "model": "tiny"}


def test_chat(running: Running) -> None:
    done = ask(running.client(), temperature=0, max_tokens=12, logprobs=True)
    (choice,) = done.choices
    assert choice.finish_reason == "stop"
    assert choice.message.content.strip() == r"\boxed{ 472}"
    assert len(choice.logprobs.content) == done.usage.completion_tokens
    assert all(row.logprob <= 0 for row in choice.logprobs.content)
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens


def test_a_seed_repeats_and_n_differ(running: Running) -> None:
    client = running.client()
    one, two = (ask(client, "Question:", temperature=1.5, seed=5, n=6, max_tokens=10) for _ in range(2))
    assert [c.message.content for c in one.choices] == [c.message.content for c in two.choices]
    assert len({c.message.content for c in one.choices}) > 1
    assert [c.index for c in one.choices] == list(range(6))
    other = ask(client, "Question:", temperature=1.5, seed=6, n=6, max_tokens=10)
    assert [c.message.content for c in other.choices] != [c.message.content for c in one.choices]


def test_streaming_says_the_same(running: Running) -> None:
    client = running.client()
    options: dict[str, Any] = {"temperature": 1.2, "seed": 3, "max_tokens": 24, "n": 2}
    whole = ask(client, **options)
    texts, reasons, usage = ["", ""], [None, None], None
    for chunk in ask(client, stream=True, stream_options={"include_usage": True}, **options):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            reasons[choice.index] = choice.finish_reason or reasons[choice.index]
    assert texts == [c.message.content for c in whole.choices]
    assert reasons == [c.finish_reason for c in whole.choices]
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_stop_strings_end_the_text_before_them(running: Running) -> None:
    client = running.client()
    whole = ask(client, temperature=0, max_tokens=12).choices[0].message.content
    stop = whole[-3:]
    cut = ask(client, temperature=0, max_tokens=12, stop=[stop])
    assert cut.choices[0].message.content == whole[: whole.index(stop)]
    assert cut.choices[0].finish_reason == "stop"
    pieces = [
        c.choices[0].delta.content or "" for c in ask(client, temperature=0, max_tokens=12, stop=[stop], stream=True)
    ]
    assert "".join(pieces) == whole[: whole.index(stop)]
    assert ask(client, temperature=0, max_tokens=2).choices[0].finish_reason == "length"


def test_completions_of_ids_give_ids_and_logprobs(running: Running) -> None:
    renderer = running.server.renderer
    prompt = renderer.encode("mira holds 472. kolu")
    options: dict[str, Any] = {"model": "tiny", "max_tokens": 8, "temperature": 1.0, "seed": 11, "logprobs": 0}
    by_ids = running.client().completions.create(prompt=prompt, **options)
    by_text = running.client().completions.create(prompt=["mira holds 472. kolu"], **options)
    (choice,) = by_ids.choices
    assert choice.token_ids == by_text.choices[0].token_ids
    assert choice.prompt_token_ids == prompt
    assert choice.text == renderer.decode(choice.token_ids)
    assert len(choice.logprobs.token_logprobs) == len(choice.token_ids)
    sampling = Sampling(max_tokens=8, stop_ids=renderer.stop_ids, seed=11, key="serve/0")
    found = RoleBinder(compose(None, ["trainer.threads=1", "trainer.device=cpu"]), None).loaded("tiny")
    again = asyncio.run(found.sampler.generate(prompt, sampling))  # the engine itself says the same
    assert list(again.ids) == choice.token_ids
    assert all(
        math.isclose(a, b, abs_tol=1e-4) for a, b in zip(again.logprobs, choice.logprobs.token_logprobs, strict=True)
    )


def test_requests_share_the_engines_steps(running: Running) -> None:
    """Sixteen at once take far fewer steps than one after another."""
    stats = running.server.sampler.stats
    client = running.client()
    before = stats.steps
    many: dict[str, Any] = {"max_tokens": 128, "extra_body": {"ignore_eos": True}}  # longer than it takes to ask
    ask(client, "Question:", **many)
    alone = stats.steps - before
    before = stats.steps
    threads = [threading.Thread(target=ask, args=(client, f"Question {i}:"), kwargs=many) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stats.steps - before < 6 * alone


def leave(url: str, body: dict[str, Any]) -> None:
    """Ask, and close the connection as soon as something comes back, or soon after."""
    with (
        httpx.Client(timeout=httpx.Timeout(LONG, read=0.05)) as client,
        client.stream("POST", url, json=body) as answer,
    ):
        next(answer.iter_raw())
        raise httpx.ReadTimeout("seen enough")


def test_a_client_that_leaves_is_forgotten(running: Running) -> None:
    server = running.server
    body = {"messages": [{"role": "user", "content": "Question:"}], "max_tokens": 2000, "ignore_eos": True, "n": 4}
    for stream in (False, True):
        before = server.sampler.stats.sampled_tokens
        with pytest.raises(httpx.ReadTimeout):
            leave(f"{running.url}/v1/chat/completions", body | {"stream": stream})
        assert until(lambda: not server.running and not server.sampler.busy)
        assert server.sampler.stats.sampled_tokens - before < 4 * 2000


CHAT = b'{"messages": [{"role": "user", "content": "a\\ud800"}]'
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no messages": ({"messages": []}, "messages"),
    "a message of nobody": ({"messages": [{"role": "stranger", "content": "x"}]}, "messages"),
    "a picture": ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}, "messages"),
    "too hot": ({"temperature": 9}, "temperature"),
    "hot as true": ({"temperature": True}, "temperature"),
    "no tokens": ({"max_tokens": 0}, "max_tokens"),
    "too many tokens": ({"max_tokens": 2001}, "max_tokens"),
    "half a sample": ({"n": 1.5}, "n"),
    "too many samples": ({"n": 65}, "n"),
    "stop by number": ({"stop": 7}, "stop"),
    "an empty stop": ({"stop": [""]}, "stop"),
    "a bias": ({"logit_bias": {"1": 5}}, "logit_bias"),
    "other tokens' logprobs": ({"logprobs": True, "top_logprobs": 3}, "top_logprobs"),
    "a format that nobody knows": ({"response_format": {"type": "xml"}}, "response_format"),
    "a forced call": ({"tools": TOOLS, "tool_choice": "required"}, "tool_choice"),
    "a tool without a name": ({"tools": [{"type": "function"}]}, "tools"),
    "a seed of words": ({"seed": "x"}, "seed"),
    "a format by name": ({"response_format": "json"}, "response_format"),
    "options by name": ({"stream_options": "usage"}, "stream_options"),
    "a penalty": ({"presence_penalty": 0.5}, "presence_penalty"),
    "a penalty of vLLM's": ({"repetition_penalty": 1.2}, "repetition_penalty"),
    "words to avoid": ({"bad_words": ["hi"]}, "bad_words"),
    "a grammar": ({"guided_json": {"type": "object"}}, "guided_json"),
    "one call at a time": ({"parallel_tool_calls": False}, "parallel_tool_calls"),
    "ids of a chat": ({"return_token_ids": True}, "return_token_ids"),
    "a key that nobody knows": ({"foo": 1}, "foo"),
    "a call of words": ({"messages": [{"role": "assistant", "tool_calls": [{"function": "find"}]}]}, "messages"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests_say_what_is_wrong(running: Running, name: str) -> None:
    change, param = BAD[name]
    body = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 4} | change
    answer = post(f"{running.url}/v1/chat/completions", json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert error["message"]


def test_values_that_ask_for_nothing_are_taken(running: Running) -> None:
    nothing = {"echo": False, "suffix": "", "best_of": 1, "min_p": 0.0, "bad_words": [], "logit_bias": None}
    nothing |= {"presence_penalty": 0, "repetition_penalty": 1.0, "parallel_tool_calls": True}
    body = {
        "prompt": "hi",
        "max_tokens": 2,
        "user": "me",
        "metadata": {"run": "7"},
        "return_token_ids": True,
        **nothing,
    }
    answer = post(f"{running.url}/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    assert len(answer.json()["choices"][0]["token_ids"]) <= 2


def test_bodies_that_are_no_requests(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running.server.sampler, "window", 1000)
    url = f"{running.url}/v1/completions"
    assert post(url, content=b"{half").status_code == 400
    assert post(url, content=b"[1]").status_code == 400
    assert post(url, content=b"[" * 19_000).status_code == 400
    assert post(url, content=b"x" * 70_000).status_code == 413
    for prompt in (None, [], "", [10**9], [-1], [True], {"a": 1}, [["x"]]):
        assert post(url, json={"prompt": prompt}).status_code == 400, prompt
    assert post(url, json={"prompt": "x", "logprobs": 5}).json()["error"]["param"] == "logprobs"
    assert post(url, json={"prompt": "x", "model": "gpt"}).status_code == 404
    assert get(f"{running.url}/v1/other").json()["error"]["message"]
    long = {"prompt": [5] * (running.server.sampler.window - 2), "max_tokens": 16}
    assert "window" in post(url, json=long).json()["error"]["message"]
    del long["max_tokens"]  # who asks for no number gets what fits
    assert post(url, json=long).json()["usage"]["completion_tokens"] <= 2


def test_half_a_character_is_refused_by_name(running: Running) -> None:
    for route, body, param in (
        ("completions", b'{"prompt": "a\\ud800"', "prompt"),
        ("completions", b'{"prompt": "a", "model": "\\ud800"', "model"),
        ("completions", b'{"prompt": "a", "odd\\ud800": 1', "odd?"),
        ("completions", b'{"prompt": "a", "stop": ["\\ud800"]', "stop"),
        ("chat/completions", CHAT, "messages"),
    ):
        answer = post(f"{running.url}/v1/{route}", content=body + b', "max_tokens": 2}')
        assert answer.status_code == 400, answer.text
        assert "half a character" in answer.json()["error"]["message"]
        assert answer.json()["error"]["param"] == param


def test_a_limit_that_is_null_is_none(running: Running) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "max_completion_tokens": None}
    answer = post(f"{running.url}/v1/chat/completions", json=body).json()
    assert answer["usage"]["completion_tokens"] <= 2


def test_every_id_that_may_be_sampled_may_be_asked_with(running: Running) -> None:
    """A model can have more embeddings than its tokenizer has tokens."""
    last = running.server.vocabulary - 1
    assert last >= len(running.server.renderer.tokenizer)
    url = f"{running.url}/v1/completions"
    assert post(url, json={"prompt": [5, last], "max_tokens": 2}).status_code == 200
    assert post(url, json={"prompt": [5, last + 1], "max_tokens": 2}).status_code == 400


def test_too_many_at_once_are_told_to_come_back(running: Running) -> None:
    running.server.running += 10  # as if others were at work
    try:
        with pytest.raises(openai.RateLimitError):
            running.client().completions.create(model="tiny", prompt=["a"] * 4, n=2)
        answer = post(f"{running.url}/v1/completions", json={"prompt": "a", "n": 7})
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
    finally:
        running.server.running -= 10


def test_what_never_fits_is_refused(running: Running) -> None:
    with pytest.raises(openai.BadRequestError, match="18 completions are more than the 16"):
        running.client().completions.create(model="tiny", prompt=["a"] * 9, n=2)
    answer = post(f"{running.url}/v1/chat/completions", json={"messages": [{"role": "user"}], "n": 17})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "n")


def test_a_key_is_asked_for(running: Running) -> None:
    server = running.server
    locked = Running(Server(server.sampler, server.renderer, "tiny", key="sesame"))
    try:
        with pytest.raises(openai.AuthenticationError):
            locked.client("wrong").models.list()
        assert get(f"{locked.url}/health").status_code == 200
        assert locked.client("sesame").models.list().data[0].id == "tiny"
    finally:
        locked.stop()


def test_tool_calls_are_told_apart_from_text(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the model writes as a call arrives as one; the model here is told what to write."""
    from recollect.types import Completion

    server, client = running.server, running.client()
    text = 'I look.\n<tool_call>\n{"name": "find", "arguments": {"q": "mira"}}\n</tool_call>'
    seen: list[str] = []

    async def generate(prompt: list[int], sampling: Any, watch: Any = None) -> Completion:
        seen.append(server.renderer.decode(prompt))
        ids = (*server.renderer.encode(text), server.renderer.end_id)
        return Completion(ids, (-0.5,) * len(ids), "stop", 0, text)

    monkeypatch.setattr(server.sampler, "generate", generate)
    for stream in (False, True):
        if stream:
            chunks = list(ask(client, tools=TOOLS, stream=True))
            calls = [c for chunk in chunks for c in (chunk.choices[0].delta.tool_calls or [])]
            reason = chunks[-1].choices[0].finish_reason
        else:
            done = ask(client, tools=TOOLS)
            calls, reason = done.choices[0].message.tool_calls, done.choices[0].finish_reason
            assert done.choices[0].message.content == "I look."
        assert reason == "tool_calls"
        assert (calls[0].function.name, json.loads(calls[0].function.arguments)) == ("find", {"q": "mira"})
    assert ask(client, tools=TOOLS, tool_choice="none").choices[0].message.content == text
    history: Any = [
        {"role": "user", "content": "find mira"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [c.model_dump() for c in done.choices[0].message.tool_calls],
        },
        {"role": "tool", "tool_call_id": calls[0].id, "content": "mira holds 472."},
    ]
    client.chat.completions.create(model="tiny", messages=history)
    assert '"name": "find"' in seen[-1]
    assert "mira holds 472." in seen[-1]


def test_metrics_are_prometheus_text(running: Running) -> None:
    ask(running.client(), max_tokens=2)
    rows = get(f"{running.url}/metrics").text.splitlines()
    values = dict(row.rsplit(" ", 1) for row in rows if not row.startswith("#"))
    assert float(values["recollect_sampled_tokens_total"]) > 0
    assert float(values['recollect_requests_total{route="/v1/chat/completions",status="200"}']) > 0
    assert values["recollect_completions_under_way"] == "0"


@pytest.mark.parametrize("name", ["tiny", "arbor:tiny", "openai/arbor:tiny", "huggingface/tiny", "local:tiny"])
def test_names_as_other_clients_write_them(running: Running, name: str) -> None:
    body = {"model": name, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    answer = post(f"{running.url}/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    assert post(f"{running.url}/v1/chat/completions", json=body | {"model": f"{name}x"}).status_code == 404


LONG_TEXT = "word " * 9000


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("chat/completions", {"messages": [{"role": "user", "content": LONG_TEXT}]}),
        ("chat/completions", {"messages": [{"role": "user", "content": "hi"}] * 5000, "max_tokens": 2}),
        ("completions", {"prompt": LONG_TEXT}),
        ("completions", {"prompt": [5] * 5000}),
        ("completions", {"prompt": [5] * 990, "max_tokens": 100}),
    ],
)
def test_a_prompt_that_is_too_long_has_the_code_that_clients_look_for(
    running: Running, route: str, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running.server, "bounds", replace(running.server.bounds, window=1000))
    monkeypatch.setattr(running.server.bodies, "largest", 1 << 20)
    answer = post(f"{running.url}/v1/{route}", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
