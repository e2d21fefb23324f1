"""An HTTP search service: one request, and passages from any of the usual forms of an answer."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from recollect.chat.schemas import loads
from recollect.retrieval.corpus import Passage
from recollect.runtime.address import is_address
from recollect.runtime.secrets import key_of, redacted, without_keys
from recollect.types import BadInput

KEY = "RECOLLECT_SEARCH_KEY"  # the environment variable with the service's key
LARGEST = 4 << 20  # bytes of an answer that are read
LISTS = ("results", "result", "organic", "documents", "passages", "data", "items")
TEXTS = ("text", "contents", "content", "snippet", "passage", "body", "description")

Style = Callable[[str, int, str], tuple[dict[str, Any], dict[str, str]]]  # query, count, key → body, headers
STYLES: dict[str, Style] = {
    "json": lambda q, k, key: ({"query": q, "top_k": k}, {"Authorization": f"Bearer {key}"} if key else {}),
    "serper": lambda q, k, key: ({"q": q, "num": k}, {"X-API-KEY": key} if key else {}),
    "search_r1": lambda q, k, key: (
        {"queries": [q], "topk": k, "return_scores": True},
        {"Authorization": f"Bearer {key}"} if key else {},
    ),
}


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirected request would carry the key to another host."""

    def redirect_request(self, *args: Any) -> None:
        return None


class Remote:
    """A search service."""

    def __init__(self, endpoint: str, style: str = "json", timeout: float = 20.0) -> None:
        if not is_address(endpoint):
            raise BadInput(f"search.endpoint={endpoint}: expected an address that starts with http:// or https://")
        if style not in STYLES:
            raise BadInput(f"search.endpoint_style={style} is unknown; known: {', '.join(STYLES)}")
        self.endpoint, self.style, self.timeout = endpoint, STYLES[style], timeout
        self.opener = urllib.request.build_opener(NoRedirect)

    def search(self, query: str, top_k: int) -> list[tuple[Passage, float]]:
        """What the service found, in its order."""
        body, headers = self.style(query, top_k, key_of(KEY))
        request = urllib.request.Request(
            self.endpoint, json.dumps(body).encode(), {"Content-Type": "application/json", **headers}, method="POST"
        )
        try:
            with self.opener.open(request, timeout=self.timeout) as answer:
                text = _read(answer, time.monotonic() + self.timeout)
        except urllib.error.HTTPError as error:
            raise RuntimeError(redacted(f"the search service answered {error.code} {error.reason}"[:300])) from None
        except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
            why = redacted(str(getattr(error, "reason", error)))
            raise RuntimeError(f"the search service cannot be reached: {why}") from None
        try:
            found = list(results(loads(text)))
        except (ValueError, RecursionError):
            raise RuntimeError("the search service did not answer with JSON") from None
        return [(passage, 1 / rank) for rank, passage in enumerate(found[:top_k], 1)]


def _read(answer: Any, deadline: float) -> str:
    """The whole answer, if it is neither too long nor too slow, without our keys."""
    data = bytearray()
    while part := answer.read1(1 << 16):
        data += part
        if len(data) > LARGEST:
            raise RuntimeError(f"the search service answered with more than {LARGEST} bytes")
        if time.monotonic() > deadline:
            raise TimeoutError("its answer did not end in time")
    return without_keys(data.decode("utf-8", "replace"))


def results(answer: Any) -> Iterator[Passage]:
    """Passages from an answer: a list, a list under a usual name, or a list of lists."""
    if isinstance(answer, list):
        for item in answer:
            if isinstance(item, list):
                yield from results(item)
            elif isinstance(item, str):
                yield Passage("", item)
            elif isinstance(item, Mapping):
                yield from _passage(item)
    elif isinstance(answer, Mapping):
        yield from results(next((answer[n] for n in LISTS if isinstance(answer.get(n), list | Mapping)), []))


def _passage(item: Mapping[str, Any]) -> Iterator[Passage]:
    inside = item.get("document")
    item = inside if isinstance(inside, Mapping) else item
    text = next((item[n] for n in TEXTS if isinstance(item.get(n), str)), None)
    if text is None:
        return
    title = str(item.get("title") or item.get("name") or item.get("url") or item.get("link") or "")
    first, _, rest = text.partition("\n")
    if not title and rest and first.startswith('"') and first.endswith('"'):
        title, text = first.strip('"'), rest
    yield Passage(title.strip(), text.strip())
