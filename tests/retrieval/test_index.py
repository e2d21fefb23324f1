"""A corpus of every form, its cache, and the tools that search it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recollect.config import Config, Search
from recollect.retrieval import index as module
from recollect.retrieval.corpus import PASSAGE, Passage, passages
from recollect.retrieval.index import Index
from recollect.retrieval.search_service import KEY, results
from recollect.tools.search import NOTHING, google_search_maker, make_search, render, search_maker
from recollect.types import BadInput
from tests.data.test_task_rows import write

ROWS = [
    {"title": "Mira", "text": "Mira holds 472 in Kolu."},
    {"title": "Paris", "text": "Paris is the capital of France."},
    {"title": "Rome", "text": "Rome is the capital of Italy."},
]


def letters(texts: list[str]) -> np.ndarray:
    return np.array([[t.lower().count(c) + 0.01 for c in "abcdefghilmnoprst"] for t in texts])


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet"])
def test_files_of_rows(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"corpus.{suffix}", ROWS)
    index = Index(path, cache=str(tmp_path / "cache"))
    assert list(index) == [Passage(r["title"], r["text"]) for r in ROWS]
    assert [p.title for p, _ in index.search("capital France", 3)] == ["Paris", "Rome"]


def test_a_folder_of_texts(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.txt").write_text("First paragraph.\n\nSecond one.")
    (tmp_path / "sub" / "a.md").write_text("漢字 " * 900 + "\n\n" + "y" * 2500)
    (tmp_path / "image.png").write_bytes(b"\x00")
    (tmp_path / "rows.jsonl").write_text(json.dumps({"id": 1, "contents": '"Quoted"\nThe text.'}) + "\n")
    made = list(passages(str(tmp_path)))
    assert made[0] == Passage("b", "First paragraph.\n\nSecond one.")
    assert made[1] == Passage("Quoted", "The text.")
    rest = made[2:]
    assert all(p.title == "a" and 0 < len(p.text) <= PASSAGE for p in rest)
    assert "".join("".join(p.text.split()) for p in rest) == "漢字" * 900 + "y" * 2500


def test_it_is_built_once_and_again_when_something_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Path] = []
    original = module.bm25.build
    monkeypatch.setattr(module.bm25, "build", lambda texts, folder: (built.append(folder), original(texts, folder))[1])
    corpus, cache = write(tmp_path / "c.jsonl", ROWS), str(tmp_path / "cache")
    for _ in range(2):
        index = Index(corpus, cache=cache)
    assert len(built) == 1
    write(tmp_path / "c.jsonl", [*ROWS, {"title": "Oslo", "text": "Oslo is the capital of Norway."}])
    os.utime(corpus, ns=(1, 1))
    assert [p.title for p, _ in Index(corpus, cache=cache).search("Norway", 1)] == ["Oslo"]
    assert len(built) == 2
    assert len(list((tmp_path / "cache" / "indexes").iterdir())) == 1  # the old one is gone …
    assert [p.title for p, _ in index.search("France", 1)] == ["Paris"]  # … for those who did not have it open


@pytest.mark.parametrize("method", ["dense", "hybrid"])
def test_by_meaning(method: str, tmp_path: Path) -> None:
    calls: list[int] = []

    def counting(texts: list[str]) -> np.ndarray:
        calls.append(len(texts))
        return letters(texts)

    corpus = write(tmp_path / "c.jsonl", ROWS)
    index = Index(corpus, method, str(tmp_path / "cache"), counting)
    assert index.search("Paris capital France", 1)[0][0].title == "Paris"
    assert len(index.search("zzz", 3)) == 3  # there is always a nearest passage
    calls.clear()
    Index(corpus, method, str(tmp_path / "cache"), counting)
    assert max(calls) == 1  # the passages' vectors were kept
    assert Index(corpus, method, str(tmp_path / "cache"), lambda t: letters(t)[:, ::-1] ** 2).dense is not None
    assert len(list(tmp_path.glob("cache/indexes/*/vectors-*"))) == 2


def test_a_function_of_the_user_embeds(tmp_path: Path) -> None:
    (tmp_path / "emb.py").write_text(
        "def embed(texts):\n    return [[t.count('a') + 1.0, t.count('e') + 1.0] for t in texts]\n"
    )
    cfg = Search(corpus=write(tmp_path / "c.jsonl", ROWS), method="dense", embedding_model=f"{tmp_path}/emb.py:embed")
    cfg.cache_dir = str(tmp_path / "cache")
    assert make_search(cfg)("aaaa", 1).startswith("[1] ")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"title": "x"}], "line 1: a passage needs text"),
        ([{"text": 5}], "line 1: a passage needs"),
        ([{"text": ""}], "no text"),
    ],
)
def test_corpora_that_cannot_work(rows: list[Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=words):
        Index(write(tmp_path / "c.jsonl", rows), cache=str(tmp_path / "cache"))
    assert list(tmp_path.glob("cache/indexes/*")) == []
    with pytest.raises(BadInput, match=r"search\.corpus"):
        Index(str(tmp_path / "gone"), cache=str(tmp_path / "cache"))


# ---- the tools ----


def local(tmp_path: Path, **more: Any) -> Search:
    return Search(corpus=write(tmp_path / "c.jsonl", ROWS), cache_dir=str(tmp_path / "cache"), **more)


def test_search(tmp_path: Path) -> None:
    search = make_search(local(tmp_path, max_length=12))
    assert search.__name__ == "search"
    assert search("capital of France") == "[1] Paris\nParis is the […]\n\n[2] Rome\nRome is the […]"
    assert search("capital of France", top_k=1) == "[1] Paris\nParis is the […]"
    assert search("xyzzy") == NOTHING
    for bad in ({"query": " "}, {"query": "x", "top_k": 0}):
        with pytest.raises(ValueError):
            search(**bad)
    google = make_search(local(tmp_path), "google_search")
    assert google.__name__ == "google_search"
    assert google("472").startswith("[1] Mira\n")
    assert render([Passage("", "bare")], 9) == "[1] bare"


def test_tools_are_made_from_the_whole_configuration(tmp_path: Path) -> None:
    cfg = Config(search=local(tmp_path))
    for make, name in ((search_maker, "search"), (google_search_maker, "google_search")):
        made = make(cfg)
        assert made.__name__ == name
        assert made("472", top_k=1).startswith("[1] Mira\n")


def test_what_is_not_configured_is_said(tmp_path: Path) -> None:
    for cfg, words in (
        (Search(), "needs search.corpus"),
        (local(tmp_path, method="best"), "search.method=best"),
        (local(tmp_path, top_k=0), "search.top_k"),
        (Search(endpoint="ftp://x"), "http://"),
        (Search(endpoint="http://x", endpoint_style="odd"), "json, serper, search_r1"),
    ):
        with pytest.raises(BadInput, match=words):
            make_search(cfg)


class Service(BaseHTTPRequestHandler):
    """A search service that records what it is asked."""

    asked: list[tuple[str, dict[str, Any], str]] = []  # noqa: RUF012

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers.get("Authorization") or self.headers.get("X-API-KEY") or ""
        self.asked.append((self.path, body, key))
        found = [{"title": f"T{i}", "snippet": f"S{i}"} for i in range(5)]
        answers = {
            "/json": (200, json.dumps({"results": found})),
            "/serper": (200, json.dumps({"organic": found})),
            "/retrieve": (200, json.dumps({"result": [[{"document": {"contents": '"T0"\nS0'}, "score": 1.0}]]})),
            "/moved": (302, ""),
            "/html": (200, "<html>"),
            "/none": (200, "{}"),
        }
        status, text = answers.get(self.path, (500, ""))
        self.send_response(status)
        self.send_header("Location", "/json")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    Service.asked = []
    server = HTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    monkeypatch.setenv(KEY, "sesame")
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("style", "path", "body", "key"),
    [
        ("json", "/json", {"query": "q", "top_k": 2}, "Bearer sesame"),
        ("serper", "/serper", {"q": "q", "num": 2}, "sesame"),
        ("search_r1", "/retrieve", {"queries": ["q"], "topk": 2, "return_scores": True}, "Bearer sesame"),
    ],
)
def test_services(style: str, path: str, body: dict[str, Any], key: str, service: str, tmp_path: Path) -> None:
    cfg = local(tmp_path, endpoint=service + path, endpoint_style=style)
    assert make_search(cfg, "google_search")("q", 2).startswith("[1] T0\nS0")
    assert Service.asked == [(path, body, key)]
    assert make_search(cfg, "search")("472").startswith("[1] Mira")  # the corpus
    assert len(Service.asked) == 1
    cfg.corpus = None
    assert make_search(cfg, "search")("472", 1) == "[1] T0\nS0"


@pytest.mark.parametrize(("path", "words"), [("/moved", "302"), ("/html", "JSON"), ("/gone", "500")])
def test_services_that_fail(path: str, words: str, service: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        make_search(Search(endpoint=service + path))("q")
    assert len(Service.asked) == 1  # the key did not follow a redirect
    assert make_search(Search(endpoint=f"{service}/none"))("q") == NOTHING


def test_a_service_that_is_down() -> None:
    with pytest.raises(RuntimeError, match="cannot be reached"):
        make_search(Search(endpoint="http://127.0.0.1:9", timeout_s=2))("q")


def test_answers_of_every_shape() -> None:
    assert list(results(["a", {"text": "b", "url": "u"}, {"no": 1}, [{"contents": "c"}], 5])) == [
        Passage("", "a"),
        Passage("u", "b"),
        Passage("", "c"),
    ]
    assert list(results({"data": {"results": [{"text": "x"}]}})) == [Passage("", "x")]
    assert list(results(None)) == []
