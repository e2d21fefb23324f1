"""Which setting asks for an embedding model, and whether one is there. Runs ask before they start."""

from __future__ import annotations

from functools import cache

from recollect.chat.text_calls import SEARCH_TOOLS
from recollect.config import Config
from recollect.registries import AGENTS
from recollect.retrieval.dense import Embedder, find_embedder
from recollect.retrieval.embedding_service import Service, ServiceError
from recollect.types import BadInput


def embedding_setting(cfg: Config) -> str:
    """The setting that asks for an embedding model; empty where none does."""
    spec, search = AGENTS.of(cfg.agent.agent_type), cfg.search
    if spec and spec.embeds and (key := spec.embeds(cfg)):
        return key
    if set(SEARCH_TOOLS) & set(cfg.agent.tools) and search.corpus and search.method != "bm25":
        return f"search.method={search.method}"
    return ""


def embedder_of(cfg: Config) -> Embedder:
    """The embedding model of a run, loaded once."""
    search = cfg.search
    return _loaded(search.embedding_model, search.embedding_name, search.timeout_s)


def check_embedding(cfg: Config) -> None:
    """Refuse a run whose embedding model is not there, naming the setting that asks for it."""
    key = embedding_setting(cfg)
    if not key:
        return
    try:
        found = embedder_of(cfg)
        if isinstance(found, Service):
            found.check()
    except (BadInput, ServiceError) as error:
        raise BadInput(f"{key} needs an embedding model: {error}") from None


@cache
def _loaded(model: str | None, name: str | None, timeout_s: float) -> Embedder:
    return find_embedder(model, name, timeout_s)
