"""An embedding model behind an OpenAI-compatible address: texts are posted in batches, vectors come back.

Every request has a deadline. Connection errors, 429 and 5xx are tried again after a pause; other refusals are not.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from recollect.runtime.address import is_address
from recollect.runtime.secrets import key_of
from recollect.runtime.threads import LoopThread
from recollect.types import BadInput

if TYPE_CHECKING:
    from recollect.policies.http_replies import Reply

KEY = "RECOLLECT_EMBEDDING_KEY"  # the environment variable with the service's key
BATCH = 64  # texts of a request
TRIES, PAUSE_S = 4, 0.25  # of a request; the pause doubles
LARGEST = 64 << 20  # bytes of an answer


class ServiceError(RuntimeError):
    """The service gave no vectors; the message says why."""


class Service:
    """An embedding service: a function of texts."""

    def __init__(self, address: str, model: str | None = None, timeout_s: float = 20.0) -> None:
        self.url, self.model, self.timeout_s = endpoint_of(address), model, timeout_s
        self.width = 0  # of its vectors, once it has answered
        self._thread = LoopThread("embedding")
        self._client: Any = None
        self._asked = model is not None

    def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector for each text, in their order."""
        batches = [list(texts[i : i + BATCH]) for i in range(0, len(texts), BATCH)]
        return [vector for batch in batches for vector in self._thread.wait(self._embed(batch))]

    @property
    def identity(self) -> str:
        """What tells its vectors from those of another service or model."""
        return f"{self.url} {self.model} {self.width}"

    def check(self) -> None:
        """Ask for one vector; raises ServiceError."""
        self(["Is somebody there?"])

    async def _embed(self, texts: list[str]) -> list[list[float]]:
        if not self._asked:
            self.model, self._asked = await self._first_model(), True
        body = {"input": texts, "encoding_format": "float", **({"model": self.model} if self.model else {})}
        reply = await self._ask("POST", self.url, body)
        if reply.status != 200:
            raise ServiceError(f"the embedding service {self.url} refused with {reply.status}: {reply.reason()}")
        try:
            return self._vectors(reply.json(), len(texts))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ServiceError(f"the embedding service {self.url} did not answer with vectors") from None

    async def _first_model(self) -> str | None:
        """The first model that the service lists; None for one that lists none, which is asked without a name."""
        reply = await self._ask("GET", f"{self.url.removesuffix('/embeddings')}/models")
        try:
            return str(reply.json()["data"][0]["id"]) if reply.status == 200 else None
        except (ValueError, KeyError, IndexError, TypeError):
            return None

    def _vectors(self, answer: Any, count: int) -> list[list[float]]:
        """The vectors of an answer, in the order of their index; each as wide as the others."""
        rows = sorted(answer["data"], key=lambda row: int(row["index"]))
        vectors = [[float(x) for x in row["embedding"]] for row in rows]
        if [int(row["index"]) for row in rows] != list(range(count)):
            raise ServiceError(f"the embedding service {self.url} gave {len(rows)} vectors for {count} texts")
        widths = {len(vector) for vector in vectors} | ({self.width} if self.width else set())
        if len(widths) != 1 or not all(math.isfinite(x) for vector in vectors for x in vector):
            shown = ", ".join(map(str, sorted(widths)))
            raise ServiceError(f"the embedding service {self.url} gave vectors of {shown} numbers, or not all finite")
        self.width = widths.pop()
        return vectors

    async def _ask(self, method: str, url: str, body: Any = None) -> Reply:
        """The answer, after as many tries as it took."""
        from recollect.policies.http_replies import (  # which imports chat, tools and so memory, which is here
            TooLarge,
            fetch,
        )

        problem = ""
        for attempt in range(TRIES):
            if attempt:
                await asyncio.sleep(PAUSE_S * 2 ** (attempt - 1))
            try:
                async with asyncio.timeout(self.timeout_s):
                    reply = await fetch(self._http(), method, url, body, LARGEST)
                if reply.status != 429 and reply.status < 500:
                    return reply
                problem = f"it answered {reply.status}"
            except TooLarge as error:
                raise ServiceError(f"the embedding service {self.url}: {error}") from None
            except TimeoutError:
                problem = f"no answer within {self.timeout_s:g} s"
            except (httpx.TransportError, httpx.DecodingError) as error:
                problem = f"{type(error).__name__} {error}".strip()
        raise ServiceError(f"the embedding service {self.url} does not answer ({TRIES} tries; the last: {problem})")

    def _http(self) -> Any:
        if self._client is None:
            key = key_of(KEY)
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            self._client = httpx.AsyncClient(headers=headers, timeout=None, follow_redirects=False, trust_env=False)
        return self._client


def endpoint_of(address: str) -> str:
    """Where texts are posted: the address itself where it ends in /embeddings, else below it, or below its /v1."""
    parts = urlsplit(address)
    if not is_address(address) or not parts.hostname:
        raise BadInput(f"search.embedding_model={address} is no address; it looks like http://localhost:8080/v1")
    if parts.username or parts.password:
        raise BadInput(f"search.embedding_model: an address with a login is refused; put the key into {KEY}")
    plain = address.split("?")[0].rstrip("/")
    if plain.endswith("/embeddings"):
        return plain
    return f"{plain}/embeddings" if parts.path.strip("/") else f"{plain}/v1/embeddings"
