"""The tools ``search`` and ``google_search``: passages of a local corpus, or what an HTTP service finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from recollect.config import Config, Search
from recollect.retrieval.corpus import Passage
from recollect.retrieval.dense import find_embedder
from recollect.retrieval.index import METHODS, Index
from recollect.retrieval.search_service import Remote
from recollect.types import BadInput

MOST = 20  # passages that a call may ask for
NOTHING = "No passage was found for this query. Try other words."


class Source(Protocol):
    """What can be searched."""

    def search(self, query: str, top_k: int) -> list[tuple[Passage, float]]: ...


class Nowhere:
    """What `google_search` asks when nothing is configured: every call is an error that the model reads."""

    def search(self, query: str, top_k: int) -> list[tuple[Passage, float]]:
        """There is nothing to search."""
        raise RuntimeError("nothing can be searched: neither search.endpoint nor search.corpus is set")


def make_search(cfg: Search, name: str = "search") -> Callable[..., str]:
    """The function ``search`` (the corpus before the service) or ``google_search`` (the service before the corpus)."""
    if cfg.top_k < 1 or cfg.max_length < 1:
        raise BadInput(f"search.top_k={cfg.top_k} and search.max_length={cfg.max_length} must be positive")
    source = _source(cfg, name)

    def search(query: str, top_k: int | None = None) -> str:
        """Search for passages about something.

        Args:
            query: What to look for, in a few words.
            top_k: How many passages to return.
        """
        if not query.strip():
            raise ValueError("the query is empty")
        if top_k is not None and top_k < 1:
            raise ValueError("top_k must be at least 1")
        return render([p for p, _ in source.search(query, min(top_k or cfg.top_k, MOST))], cfg.max_length)

    search.__name__ = search.__qualname__ = name
    return search


def search_maker(cfg: Config) -> Callable[..., str]:
    """The tool ``search`` of a run."""
    return make_search(cfg.search)


def google_search_maker(cfg: Config) -> Callable[..., str]:
    """The tool ``google_search`` of a run."""
    return make_search(cfg.search, "google_search")


def render(passages: Sequence[Passage], max_length: int) -> str:
    """Numbered passages with their titles."""
    if not passages:
        return NOTHING
    return "\n\n".join(f"[{i}] {_shown(passage, max_length)}" for i, passage in enumerate(passages, 1))


def _source(cfg: Search, name: str) -> Source:
    if cfg.endpoint and (name == "google_search" or not cfg.corpus):
        return Remote(cfg.endpoint, cfg.endpoint_style, cfg.timeout_s)
    if cfg.corpus:
        dense = cfg.method in METHODS and cfg.method != "bm25"
        embedder = find_embedder(cfg.embedding_model, cfg.embedding_name, cfg.timeout_s) if dense else None
        return Index(cfg.corpus, cfg.method, cfg.cache_dir, embedder)
    if name == "google_search":
        return Nowhere()
    raise BadInput(f"the tool {name} needs search.corpus=FOLDER or FILE, or search.endpoint=ADDRESS")


def _shown(passage: Passage, most: int) -> str:
    text = passage.text if len(passage.text) <= most else f"{passage.text[:most].rstrip()} […]"
    return f"{passage.title}\n{text}" if passage.title else text
