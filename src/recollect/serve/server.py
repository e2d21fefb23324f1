"""An OpenAI-compatible server over a sampler. Requests that come in while others run join their next step."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from recollect.chat import Renderer
from recollect.runtime.error_text import named_error
from recollect.runtime.secrets import redacted
from recollect.runtime.threads import Slots, in_thread
from recollect.samplers.sampler import Sampler
from recollect.serve import responses as answers
from recollect.serve.bodies import Bodies, parsed
from recollect.serve.limits import SMALL, Bounds, ServeLimits
from recollect.serve.opening import MessageRows, opened
from recollect.serve.protocol import (
    BadRequest,
    CompletionRequest,
    TooLong,
    chat_request,
    clipped,
    plain_name,
    text_request,
)
from recollect.serve.response_format import NotFollowed
from recollect.serve.stream_text import Spoken
from recollect.types import Completion

T = TypeVar("T")
OPEN = ("/health", "/metrics")  # need no key


KINDS = {401: "authentication_error", 429: "rate_limit_error", 503: "server_error"}  # of errors, by status
THREADS = 4  # that read small requests and write answers; one more reads large ones


class Server:
    """The routes over one sampler."""

    def __init__(
        self, sampler: Sampler, renderer: Renderer, name: str, limits: ServeLimits = ServeLimits(), key: str = ""
    ) -> None:
        self.limits, self.key = limits, key
        self.opening: MessageRows = []  # stands before conversations without a system message
        self.use(sampler, renderer, name)
        self.bodies = Bodies(limits.max_body)
        self.small, self.large = Slots(THREADS), Slots(1)
        self.running = self.requests = 0  # completions and requests under way
        self.counts: Counter[tuple[str, int]] = Counter()
        self.seconds = 0.0
        self.began = time.time()

    def use(self, sampler: Sampler, renderer: Renderer, name: str, window: int | None = None) -> None:
        """Serve this model; ``window`` may be smaller than the model's own."""
        self.sampler, self.renderer, self.name = sampler, renderer, name
        self.vocabulary = sampler.vocabulary
        window = min(sampler.window, window or sampler.window)
        self.bounds = Bounds(self.limits.max_tokens, self.limits.concurrency, window, self.vocabulary)

    def app(self) -> Starlette:
        """The application."""
        return Starlette(routes=self.routes(), exception_handlers={HTTPException: _not_found})

    def routes(self) -> list[Route]:
        """What may be asked for."""
        return [
            Route("/health", self._guarded(self.health)),
            Route("/metrics", self._guarded(self.metrics)),
            Route("/v1/models", self._guarded(self.models)),
            Route("/v1/models/{name:path}", self._guarded(self.model)),
            Route("/v1/chat/completions", self._guarded(self.chat), methods=["POST"]),
            Route("/v1/completions", self._guarded(self.complete), methods=["POST"]),
        ]

    # ---- routes ----

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "model": self.name})

    async def metrics(self, request: Request) -> Response:
        return PlainTextResponse(self.prometheus(), media_type="text/plain; version=0.0.4")

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._card()]})

    async def model(self, request: Request) -> Response:
        if self.name not in (request.path_params["name"], plain_name(request.path_params["name"])):
            raise BadRequest(f"there is no model {request.path_params['name']}; there is {self.name}", "model", 404)
        return JSONResponse(self._card())

    async def chat(self, request: Request) -> Response:
        return await self._serve(request, chat_request, answers.chat_choice)

    async def complete(self, request: Request) -> Response:
        return await self._serve(request, text_request, answers.text_choice)

    # ---- a request ----

    async def _serve(
        self, request: Request, read: Callable[..., CompletionRequest], choice: Callable[..., Any]
    ) -> Response:
        asked = await self._asked(request, read)
        renderer = self.renderer
        wanted = asked.n * len(asked.prompts)
        if self.running + wanted > self.limits.concurrency or self.requests >= self.limits.requests:
            raise BadRequest(f"{self.running} completions are under way; come back later", status=429)
        if asked.stream:
            return StreamingResponse(self._stream(request, asked, wanted, choice), media_type="text/event-stream")
        done = await _unless_gone(request, self._all(asked, wanted))
        async with self.small.one():
            return await in_thread(self._reply, {"asked": asked, "done": done, "choice": choice, "renderer": renderer})

    def _reply(
        self, asked: CompletionRequest, done: Sequence[Completion], choice: Callable[..., Any], renderer: Renderer
    ) -> Response:
        """The whole answer to a request."""
        made = answers.frame(asked, self.name, answers.new_id(asked.chat))
        choices = [choice(i, asked, completion, renderer) for i, completion in enumerate(done)]
        return JSONResponse({**made, "choices": choices, "usage": answers.usage(asked, done)})

    async def _asked(self, request: Request, read: Callable[..., CompletionRequest]) -> CompletionRequest:
        """What a request asks for, read in a thread: others are answered meanwhile."""
        return await self._in_lane(request, partial(self._understood, read=read))

    async def _in_lane(self, request: Request, work: Callable[..., T]) -> T:
        """What a function makes of a request's body, in a thread for bodies of its size."""
        async with self.bodies.taken(request) as data:
            lane = self.small if len(data) <= SMALL else self.large
            async with lane.one():
                made: T = await in_thread(work, {"data": data})
                return made

    def _understood(self, data: bytearray, read: Callable[..., CompletionRequest]) -> CompletionRequest:
        body = parsed(data, self.bounds.marks)
        if body.get("model") is not None and self.name not in (body["model"], plain_name(body["model"])):
            raise BadRequest(f"there is no model {clipped(body['model'])}; there is {self.name}", "model", 404)
        return self._read(body, read)

    def _read(self, body: dict[str, Any], read: Callable[..., CompletionRequest]) -> CompletionRequest:
        try:
            return self._fitted(read(opened(body, self.opening), self.renderer, self.bounds), body)
        except RecursionError:
            raise BadRequest("the body is nested too deeply") from None

    def _fitted(self, asked: CompletionRequest, body: dict[str, Any]) -> CompletionRequest:
        """The request, refused if the model cannot take it; a client that names no number of tokens gets what fits."""
        if asked.sampling.grammar is not None and not getattr(self.sampler, "keeps_form", False):
            raise BadRequest("response_format: this model is sampled by servers that take no form", "response_format")
        window = min(self.bounds.window, self.sampler.window)
        longest = max(map(len, asked.prompts))
        tokens = asked.sampling.max_tokens
        if longest < window and body.get("max_tokens") is None and body.get("max_completion_tokens") is None:
            tokens = min(tokens, window - longest)
        if longest + tokens > window:
            raise TooLong(
                f"a prompt of {longest} tokens and {tokens} new ones do not fit the model's window of {window}"
            )
        return replace(asked, sampling=replace(asked.sampling, max_tokens=tokens))

    def _turn(self, asked: CompletionRequest) -> AbstractAsyncContextManager[Any]:
        """The time in which a request may sample."""
        return nullcontext()

    def _sampled(self, asked: CompletionRequest, done: Sequence[Completion]) -> None:
        """Is told of what was sampled for a request, before the client is."""

    async def _all(self, asked: CompletionRequest, count: int) -> list[Completion]:
        async with self._turn(asked):
            tasks = self._start(asked, count)
            try:
                done = list(await asyncio.gather(*tasks))
                self._sampled(asked, done)
                return done
            finally:
                await self._end(tasks)

    def _start(
        self, asked: CompletionRequest, count: int, watch: Callable[[int, list[int]], None] | None = None
    ) -> list[asyncio.Task[Completion]]:
        """One task for every completion; they share what their prompts share."""
        self.running += count
        self.requests += 1
        tasks = []
        for i in range(count):
            sampling = replace(asked.sampling, key=f"serve/{i}")
            told = None if watch is None else (lambda ids, i=i: watch(i, ids))
            work = self.sampler.generate(asked.prompts[i // asked.n], sampling, told)
            tasks.append(asyncio.ensure_future(work))
        return tasks

    async def _end(self, tasks: Sequence[asyncio.Task[Completion]]) -> None:
        self.running -= len(tasks)
        self.requests -= 1
        for task in tasks:
            task.cancel()

    async def _stream(
        self, request: Request, asked: CompletionRequest, count: int, choice: Callable[..., Any]
    ) -> AsyncIterator[str]:
        """A streamed answer, within the request's turn."""
        try:
            async with self._turn(asked):
                async for piece in self._pieces(request, asked, count, choice):
                    yield piece
        except BadRequest as error:
            yield answers.event(answers.problem(str(error), param=error.param, code=error.code))

    async def _pieces(
        self, request: Request, asked: CompletionRequest, count: int, choice: Callable[..., Any]
    ) -> AsyncIterator[str]:
        """Pieces of text as they are sampled; with tools the whole text, since a call is known only at its end."""
        news, ended, wake = dict[int, list[int]](), list[int](), asyncio.Event()  # of each choice only the newest
        head = answers.frame(asked, self.name, answers.new_id(asked.chat), chunk=True)

        def heard(i: int, ids: list[int] | None) -> None:
            if ids is None:
                ended.append(i)
            else:
                news[i] = ids
            wake.set()

        tasks = self._start(asked, count, heard)
        for i, task in enumerate(tasks):
            task.add_done_callback(lambda _, i=i: heard(i, None))  # type: ignore[misc]
        watcher = asyncio.ensure_future(_when_gone(request, tasks))
        spoken = [Spoken(self.renderer.decode, asked.sampling.stop) for _ in range(count)]
        try:
            for i in range(count if asked.chat else 0):
                yield answers.event({**head, "choices": [answers.piece(i, asked, "", role="assistant", content="")]})
            left = count
            while left:
                await wake.wait()
                wake.clear()
                while news:
                    i, ids = news.popitem()
                    text = "" if asked.tools else spoken[i].more(ids)
                    if text:
                        yield answers.event({**head, "choices": [answers.piece(i, asked, text)]})
                while ended:
                    i = ended.pop(0)
                    left -= 1
                    if tasks[i].cancelled():  # nobody listens any more
                        return
                    last = self._last(i, asked, tasks[i].result(), spoken[i].sent, choice)
                    yield answers.event({**head, "choices": [last]})
            done = [task.result() for task in tasks]
            self._sampled(asked, done)
            if asked.stream_usage:
                spent = answers.usage(asked, done)
                yield answers.event({**head, "choices": [], "usage": spent})
            yield answers.event("[DONE]")
        except NotFollowed as error:
            yield answers.event(answers.problem(f"response_format: {error}", param="response_format"))
        except Exception as error:
            yield answers.event(answers.problem(_broken(error), "server_error"))
        finally:
            watcher.cancel()
            await self._end(tasks)

    def _last(
        self, i: int, asked: CompletionRequest, done: Completion, sent: int, choice: Callable[..., Any]
    ) -> dict[str, Any]:
        """The piece that ends a choice: the rest of its text, its calls, why it ended."""
        whole = choice(i, asked, done, self.renderer)
        if not asked.chat:
            row = answers.piece(i, asked, whole["text"][sent:], whole["finish_reason"])
            return row | {"token_ids": whole["token_ids"], "logprobs": whole["logprobs"]}
        message = whole["message"]
        calls = [{"index": k, **call} for k, call in enumerate(message.get("tool_calls") or [])]
        rest = (message["content"] or "")[sent:]
        more = {"tool_calls": calls} if calls else {}
        return answers.piece(i, asked, rest, whole["finish_reason"], **more) | {"logprobs": whole["logprobs"]}

    # ---- around every route ----

    def _guarded(self, route: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def call(request: Request) -> Response:
            start = time.monotonic()
            try:
                if self.key and request.url.path not in OPEN and not self._allowed(request):
                    raise BadRequest("the key is missing or wrong", status=401)
                response = await route(request)
            except BadRequest as error:
                kind = KINDS.get(error.status, "invalid_request_error")
                response = JSONResponse(answers.problem(str(error), kind, error.param, error.code), error.status)
                if error.status in (429, 503):
                    response.headers["Retry-After"] = "1"
            except NotFollowed as error:
                response = JSONResponse(answers.problem(f"response_format: {error}", param="response_format"), 400)
            except ClientDisconnect:
                response = Response(status_code=499)
            except Exception as error:
                response = JSONResponse(answers.problem(_broken(error), "server_error"), 500)
            self.counts[request.scope["route"].path, response.status_code] += 1
            self.seconds += time.monotonic() - start
            return response

        return call

    def _allowed(self, request: Request) -> bool:
        given = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        return hmac.compare_digest(given.encode(), self.key.encode())

    def _card(self) -> dict[str, Any]:
        return {
            "id": self.name,
            "object": "model",
            "created": int(self.began),
            "owned_by": "recollect",
            "max_model_len": self.bounds.window,
        }

    def prometheus(self) -> str:
        """Counters and gauges as Prometheus reads them."""
        stats = self.sampler.statistics()
        rows = ["# TYPE recollect_requests_total counter"]
        rows += [
            f'recollect_requests_total{{route="{route}",status="{status}"}} {n}'
            for (route, status), n in sorted(self.counts.items())
        ]
        for name, kind, value in (
            ("prompt_tokens_total", "counter", stats.prompt_tokens),
            ("computed_prompt_tokens_total", "counter", stats.computed_prompt_tokens),
            ("sampled_tokens_total", "counter", stats.sampled_tokens),
            ("engine_steps_total", "counter", stats.steps),
            ("request_seconds_total", "counter", round(self.seconds, 6)),
            ("completions_under_way", "gauge", self.running),
            ("rows_decoding", "gauge", stats.decoding),
            ("rows_waiting", "gauge", stats.waiting),
            ("rows_peak", "gauge", stats.peak_rows),
        ):
            rows += [f"# TYPE recollect_{name} {kind}", f"recollect_{name} {value}"]
        return "\n".join([*rows, ""])


def _broken(error: Exception) -> str:
    """A short message about an error of the server's own."""
    return redacted(named_error(error)[:300])


async def _unless_gone(request: Request, work: Any) -> Any:
    """Do the work, but drop it when the client goes away."""
    task = asyncio.ensure_future(work)
    watcher = asyncio.ensure_future(_when_gone(request, [task]))
    try:
        return await task
    except asyncio.CancelledError:
        raise ClientDisconnect from None
    finally:
        task.cancel()
        watcher.cancel()


async def _when_gone(request: Request, tasks: Sequence[asyncio.Future[Any]]) -> None:
    """Cancel tasks when the client goes away."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    for task in tasks:
        task.cancel()


async def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse(answers.problem(f"{request.method} {request.url.path}: {error.detail}"), error.status_code)
