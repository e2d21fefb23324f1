"""A policy behind an OpenAI-compatible server. It is asked with chat messages, and its turns are never trained.

One pooled client, in a thread with a loop of its own. Every call has a deadline. Connection errors, 429, 5xx and
answers that are broken or empty are tried again after a jittered pause; other refusals are not, nor answers that are
too large. What a server says is read up to a bound, and our keys are taken out of it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx

from recollect.chat.schemas import Schema
from recollect.policies.http_replies import Reply, TooLarge, fetch
from recollect.policies.openai_messages import completion_of, request_body
from recollect.runtime.error_text import error_text
from recollect.runtime.secrets import key_of, redacted
from recollect.runtime.threads import LoopThread
from recollect.types import BadInput, Completion, Group, Message, Sampling

PAUSE_S = 0.25  # before the first further try; doubles with each
LONGEST_PAUSE_S = 20.0
LOOK_S = 10.0  # deadline of a look at /models
TOO_MANY = 429  # the one refusal that passes
ADVICE = "verify that the server is running (curl {}/models), check firewall and network, and read the server's logs"


class EndpointError(RuntimeError):
    """The server refused a call, or gave no proper answer after all tries. The message holds no key."""

    def __init__(self, message: str) -> None:
        super().__init__(redacted(message))


class EndpointDown(EndpointError):
    """No answer after all tries."""


class EndpointGone(RuntimeError):
    """The server went away and did not come back; the run can go on when it is there again."""

    def __init__(self, message: str, groups: Sequence[Group] = ()) -> None:
        super().__init__(message)
        self.groups = list(groups)  # the attempts that it left behind


class GoesAway(Protocol):
    """A policy behind a network: it may be away for a while. A request then fails with `EndpointDown`."""

    @property
    def loss(self) -> str:
        """What to say when it did not come back."""

    async def back(self, warn: Callable[[str], None]) -> bool:
        """Wait for it; False when it did not come back in time."""


@dataclass(frozen=True)
class Patience:
    """How long to wait for a server."""

    timeout_s: float = 120.0  # one call
    retries: int = 5  # further tries of a call
    wait_s: float = 300.0  # for a server that went away
    concurrency: int = 64  # calls at once


class Endpoint:
    """One server. ``version`` is -1: nobody here trains what it samples with."""

    version = -1

    def __init__(
        self,
        url: str,
        name: str | None = None,
        patience: Patience = Patience(),
        key_env: str = "OPENAI_API_KEY",
        syntax: str = "hermes",
    ) -> None:
        """``syntax`` is how tool calls that come back are written for the agent's parser."""
        self.url, self.name, self.patience, self.key_env, self.syntax = url.rstrip("/"), name, patience, key_env, syntax
        self.calls = self.retried = 0
        self._thread = LoopThread("endpoint")
        self._client: Any = None
        self._slots = asyncio.Semaphore(patience.concurrency)
        self._jitter = random.Random(url)  # pauses only; it decides nothing that is computed

    # ---- what callers use ----

    async def chat(
        self, log: Sequence[Message | Completion], tools: Sequence[Schema] | None, sampling: Sampling
    ) -> Completion:
        """One reply to a conversation."""
        if self.name is None:
            await self._thread.call(self._find_name())
        body = request_body(str(self.name), log, tools, sampling)
        return completion_of(await self._thread.call(self._ask(body)), self.syntax)

    def check(self, what: str = "fixed model API") -> str:
        """The model's name; BadInput that says what to do when the server is not there or has no such model."""
        try:
            return str(self._thread.wait(self._find_name()))
        except EndpointDown as error:
            raise BadInput(f"Connection error to {what} {self.url}: {error}; {ADVICE.format(self.url)}") from None
        except EndpointError as error:
            raise BadInput(f"the {what} {self.url} {error}") from None

    @property
    def loss(self) -> str:
        """What to say when it did not come back."""
        return (
            f"the fixed model at {self.url} went away and was not back within {self.patience.wait_s:g} s "
            "(fixed_model_wait_s)"
        )

    async def healthy(self) -> bool:
        """True when the server answers now."""
        try:
            await self._thread.call(self._models())
        except EndpointDown:
            return False
        except EndpointError:
            return True
        return True

    async def back(self, warn: Callable[[str], None]) -> bool:
        """Wait for a server that went away; False when it did not come back in time."""
        if await self.healthy():
            return True
        warn(f"the fixed model at {self.url} went away; waiting up to {self.patience.wait_s:g} s for it")
        start = time.monotonic()
        while (left := self.patience.wait_s - (time.monotonic() - start)) > 0:
            await asyncio.sleep(min(2.0, left))
            if await self.healthy():
                warn(f"the fixed model at {self.url} is back after {time.monotonic() - start:.0f} s")
                return True
        return False

    def close(self) -> None:
        """Close the connections."""

        async def close() -> None:
            if self._client is not None:
                await self._client.aclose()

        self._thread.wait(close())
        self._thread.close()

    # ---- in the client's own loop ----

    def _http(self) -> Any:
        if self._client is None:
            key = key_of(self.key_env)
            most = self.patience.concurrency
            local = (urlsplit(self.url).hostname or "") in ("localhost", "127.0.0.1", "::1")
            self._client = httpx.AsyncClient(
                headers={"Authorization": f"Bearer {key}"} if key else {},
                limits=httpx.Limits(max_connections=most + 4, max_keepalive_connections=most),
                timeout=None,  # every call has its own deadline
                trust_env=not local,
            )
        return self._client

    async def _models(self) -> list[str] | None:
        """The names that the server lists; None when it has no such list."""
        try:
            async with asyncio.timeout(LOOK_S):
                answer = await fetch(self._http(), "GET", f"{self.url}/models")
        except TooLarge as error:
            raise EndpointError(f"cannot be asked for its models: {error}") from None
        except (TimeoutError, httpx.TransportError, httpx.DecodingError) as error:
            raise EndpointDown(_said(error, LOOK_S)) from None
        except httpx.InvalidURL as error:
            raise EndpointError(f"is no address: {error}") from None
        if answer.status in (401, 403):
            raise EndpointError(f"wants a key ({answer.status}); set the environment variable {self.key_env}")
        if answer.status >= 500:
            raise EndpointDown(f"it answered {answer.status}")
        try:
            return [str(row["id"]) for row in answer.json()["data"]] if answer.status == 200 else None
        except (ValueError, KeyError, TypeError):
            return None

    async def _find_name(self) -> str:
        """The model's name: the one given, if the server has it, else the first that it lists."""
        names = await self._models()
        if self.name is None:
            if not names:
                raise EndpointError("lists no models at /models; name one with fixed_model_name")
            self.name = names[0]
        elif names is not None and self.name not in names:
            raise EndpointError(f"has no model {self.name}; it has {', '.join(names)[:300] or 'none'}")
        return self.name

    async def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        """The choice that the server gave, after as many tries as it took."""
        problem, pause = "", 0.0
        for attempt in range(self.patience.retries + 1):
            if attempt:
                self.retried += 1
                base = min(LONGEST_PAUSE_S, PAUSE_S * 2 ** (attempt - 1))
                await asyncio.sleep(max(pause, base * self._jitter.uniform(0.5, 1.0)))
            choice, problem, pause = await self._try(body)
            if choice is not None:
                return choice
        tries = self.patience.retries + 1
        raise EndpointDown(f"{self.url} gave no proper answer in {tries} tries; the last: {problem}")

    async def _try(self, body: dict[str, Any]) -> tuple[dict[str, Any] | None, str, float]:
        """Try once: the choice, or what was wrong, and how long the server asks to wait."""
        try:
            async with self._slots:
                self.calls += 1
                async with asyncio.timeout(self.patience.timeout_s):
                    answer = await fetch(self._http(), "POST", f"{self.url}/chat/completions", body)
        except TooLarge as error:
            raise EndpointError(f"{self.url}: {error}") from None
        except (TimeoutError, httpx.TransportError, httpx.DecodingError) as error:
            return None, _said(error, self.patience.timeout_s), 0.0
        if answer.status == TOO_MANY or answer.status >= 500:
            return None, f"it answered {answer.status}", _retry_after(answer.headers)
        if answer.status != 200:
            raise EndpointError(f"{self.url} refused a call with {answer.status}: {answer.reason()}")
        return (*_choice(answer), 0.0)


def _choice(answer: Reply) -> tuple[dict[str, Any] | None, str]:
    """The first choice of an answer, or what is wrong with it. A model may say nothing; a server may not."""
    try:
        found = answer.json()
        choice = found["choices"][0]
        message = choice["message"]
        calls = message.get("tool_calls") or []
        said = message.get("content") or calls or (found.get("usage") or {}).get("completion_tokens")
        whole = isinstance(calls, list) and all(isinstance(call["function"], dict) for call in calls)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        whole, said = False, None
    if not whole:
        return None, "its answer is not a whole chat completion"
    return (choice, "") if said else (None, "its reply was empty")


def _retry_after(headers: Any) -> float:
    try:
        return min(LONGEST_PAUSE_S, max(0.0, float(headers.get("retry-after", 0))))
    except ValueError:  # a date
        return PAUSE_S


def _said(error: Exception, seconds: float) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:g} s"
    return f"{type(error).__name__} {error_text(error)}".strip()
