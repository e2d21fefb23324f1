"""A training job on an Arbor server: texts and rewards go there, the server samples and trains.

The server is `recollect serve --trainable`, Arbor itself, or another that speaks its routes (docs/dspy.md).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx

from recollect.policies.endpoint import Endpoint
from recollect.policies.http_replies import Reply, TooLarge, fetch
from recollect.policies.openai_messages import as_messages
from recollect.runtime.error_text import error_text
from recollect.runtime.secrets import key_of, redacted
from recollect.types import BadInput, Completion, Message, Sampling

KEY = "OPENAI_API_KEY"
GRPO = "fine_tuning/grpo"
LOOK_S, CALL_S = 5.0, 3600.0  # to answer at all; a call may load a model or train a round
POLL_S, PENDING_S = 1.0, 600.0  # between two questions, and until an id has to be pending

PostedRow = dict[str, Any]  # messages, completion and reward


class ArborError(RuntimeError):
    """The server refused a call, or went away."""


@dataclass
class ArborJob:
    """One job; ``url`` ends with /v1."""

    url: str
    id: str = ""
    answer: Mapping[str, Any] = field(default_factory=dict)  # the newest of the server
    wait_s: float = 300.0  # for a server that went away
    warn: Callable[[str], None] = lambda message: None

    @staticmethod
    def address(text: str) -> str:
        """The address of a server's routes, from what a user writes."""
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInput(f"--arbor {text}: give an address such as http://127.0.0.1:7453")
        return text.rstrip("/") + ("/v1" if parts.path in ("", "/") else "")

    def look(self, model: str) -> None:
        """Refuse an address where no server answers, and say how to start one."""
        try:
            asyncio.run(_call("GET", f"{self.url}/models", None, LOOK_S))
        except (TimeoutError, httpx.TransportError, httpx.DecodingError, TooLarge) as error:
            raise BadInput(self._nobody(model, error_text(error) or type(error).__name__)) from None

    def begin(self, body: Mapping[str, Any]) -> None:
        """Begin the job."""
        self._ask("initialize", body, str(body["model"]))
        self.id = str(self.answer.get("current_model") or self.answer.get("job_id"))

    def take_up(self, job: str) -> bool:
        """Go on with a job that is open; False where it is not."""
        self.id = job
        try:
            self._ask("status")
        except ArborError:
            return False
        return self.answer.get("status") not in ("cancelled", "failed", "succeeded", "ended")

    def finished(self, steps: int) -> bool:
        """Whether the job of the newest answer has ended with so many steps."""
        return self.answer.get("status") == "succeeded" and int(self.answer.get("step", steps)) >= steps

    def pending(self) -> list[int]:
        """The ids that wait for a group; asks until there are some."""
        began = time.monotonic()
        while True:
            found = self._ask("status").get("pending_batch_ids") or []
            if found:
                return [int(number) for number in found]
            if time.monotonic() - began > PENDING_S:
                raise ArborError(f"{self.url}: nothing was pending for {PENDING_S:g} s")
            time.sleep(POLL_S)

    def post(self, number: int, rows: Sequence[PostedRow]) -> None:
        """Fill a pending id with a group."""
        self._ask("step", {"model": self.id, "batch_id": number, "batch": list(rows)})

    def end(self) -> None:
        """Train on what is posted, and end the job."""
        self._ask("terminate")

    def _ask(self, route: str, body: Mapping[str, Any] | None = None, model: str = "MODEL") -> Mapping[str, Any]:
        whole = {**(body or {}), **({"job_id": self.id} if self.id else {})}
        try:
            reply = self._patient(route, whole)
            found = reply.json() if reply.status == 200 else None
        except (TimeoutError, httpx.TransportError, httpx.DecodingError, TooLarge) as error:
            raise ArborError(f"{self.url} went away: {error_text(error) or type(error).__name__}") from None
        except ValueError:
            found = None
        if reply.status in (404, 405) and route == "initialize":
            raise BadInput(self._nobody(model, f"{reply.status} for /{GRPO}/initialize"))
        if not isinstance(found, Mapping):
            raise ArborError(f"{self.url} refused {route} with {reply.status}: {reply.reason()}")
        self.answer = found
        return found

    def _patient(self, route: str, body: Mapping[str, Any]) -> Reply:
        """A reply, also of a server that goes away for a while. It takes once what is sent again, but a new job."""
        until: float | None = None
        while True:
            try:
                return asyncio.run(_call("POST", f"{self.url}/{GRPO}/{route}", body, CALL_S))
            except httpx.TransportError:
                if route == "initialize" or (until is not None and time.monotonic() >= until):
                    raise
            if until is None:
                until = time.monotonic() + self.wait_s
                self.warn(f"{self.url} went away; waiting up to {self.wait_s:g} s for it")
            time.sleep(min(POLL_S, self.wait_s))

    def _nobody(self, model: str, why: str) -> str:
        start = f"recollect serve {model} --trainable --arbor-config arbor.yaml"
        return redacted(f"No Arbor server found at {self.url} ({why}). Start one in a second terminal: {start}")


async def _call(method: str, url: str, body: Any, seconds: float) -> Reply:
    key, local = key_of(KEY), (urlsplit(url).hostname or "") in ("localhost", "127.0.0.1", "::1")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(headers=headers, timeout=None, trust_env=not local) as client:
        async with asyncio.timeout(seconds):
            return await fetch(client, method, url, body)


class JobEndpoint(Endpoint):
    """The job's model. It keeps what each reply answered, for what is posted has to say the same."""

    def __init__(self, job: ArborJob, **options: Any) -> None:
        super().__init__(job.url, f"arbor:{job.id}", **options)
        self.asked: dict[int, tuple[Any, list[dict[str, Any]]]] = {}

    async def chat(self, log: Sequence[Message | Completion], tools: Any, sampling: Sampling) -> Completion:
        """One reply to a conversation."""
        done = await super().chat(log, tools, sampling)
        self.asked[id(done.message)] = done.message, as_messages(log)
        return done

    def row(self, done: Completion, reward: float) -> PostedRow:
        """A completion as it is posted."""
        _, messages = self.asked[id(done.message)]
        return {"messages": messages, "completion": {"role": "assistant", "content": done.text}, "reward": reward}

    def forget(self) -> None:
        """Forget what was asked so far."""
        self.asked.clear()
