"""Outside servers that say our keys back to us, or more than anybody can hold: nothing is shown, stored or kept."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from recollect.agents.rollout import Collector
from recollect.agents.session import Binding
from recollect.config import Config
from recollect.config.compose import compose
from recollect.policies.endpoint import Endpoint, EndpointError, Patience
from recollect.policies.http_replies import LARGEST
from recollect.retrieval import search_service as remote
from recollect.runs.directory import RunDirectory, rows_of
from recollect.runtime.console import Console
from recollect.runtime.secrets import redacted, without_keys
from recollect.tools.toolbox import Toolbox
from recollect.types import BadInput, Message, Sampling, Task, Trajectory
from tests.commands import run as command

KEY = "Zq8/secret+Value=77"  # of no known form, with signs that JSON and addresses write otherwise
HELLO = [Message("user", "hello")]
Answer = Callable[[Any], None]  # writes an answer with a request handler


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            self.do_GET()

        def do_GET(self) -> None:
            self.close_connection = True
            answer(self)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *args: None  # type: ignore[method-assign]
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


def send(handler: Any, status: int, data: bytes, **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"Content_Length": str(len(data)), "Connection": "close", **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(data)


def models(handler: Any) -> bool:
    if handler.path.endswith("/models"):
        send(handler, 200, b'{"data": [{"id": "m"}]}')
    return bool(handler.path.endswith("/models"))


def refuses_with_its_headers(handler: Any) -> None:
    """401, and the headers of the request in an error of the usual form."""
    said = f"bad key; you sent {dict(handler.headers)}"
    if not models(handler):
        send(handler, 401, json.dumps({"error": {"message": said}}).encode())


def refuses_in_text(handler: Any) -> None:
    if not models(handler):
        send(handler, 403, ("x" * 280 + str(handler.headers)).encode())  # cut in the middle of the key, if at all


def says_it_as_a_model(handler: Any) -> None:
    message = {"role": "assistant", "content": f"You sent {handler.headers['Authorization']}."}
    if not models(handler):
        send(handler, 200, json.dumps({"choices": [{"message": message}]}).encode())


def drips(handler: Any) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(400):
        handler.wfile.write(b"[")
        handler.wfile.flush()
        time.sleep(0.05)


def floods(handler: Any) -> None:
    """An answer without an end (here: 300 MB), in blocks."""
    if models(handler):
        return
    handler.send_response(200)
    handler.end_headers()
    for _ in range(300):
        handler.wfile.write(b" " * (1 << 20))


def bombs(handler: Any) -> None:
    """A hundred MB that travel as a hundredth of it."""
    packer = zlib.compressobj(1, wbits=31)
    data = b"".join([packer.compress(b" " * (1 << 20)) for _ in range(100)]) + packer.flush()
    if not models(handler):
        send(handler, 200, data, Content_Encoding="gzip")


def nests(handler: Any) -> None:
    if not models(handler):
        send(handler, 200, b"[" * 200_000)


def ask(url: str, **options: Any) -> Any:
    endpoint = Endpoint(url, patience=Patience(timeout_s=60, retries=0), key_env="ODD_NAME", **options)
    try:
        return asyncio.run(endpoint.chat(HELLO, None, Sampling(key="k")))
    finally:
        endpoint.close()


def leaks(text: str) -> list[str]:
    """Parts of the key that a text holds, in any of the ways that it may be written."""
    parts = [KEY[i : i + 8] for i in range(len(KEY) - 7)]
    return [part for part in [*parts, json.dumps(KEY)[1:-1], KEY.replace("/", "\\/")] if part in text]


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODD_NAME", KEY)
    monkeypatch.setenv(remote.KEY, KEY)


# ---- keys ----


@pytest.mark.parametrize("answer", [refuses_with_its_headers, refuses_in_text])
def test_a_refusal_that_echoes_the_key_does_not_show_it(answer: Answer) -> None:
    with serving(answer) as url, pytest.raises(EndpointError, match=r"40[13]") as caught:
        ask(url)
    assert leaks(str(caught.value)) == []


def test_the_key_that_a_model_says_is_taken_out() -> None:
    with serving(says_it_as_a_model) as url:
        done = ask(url)
    assert done.text == "You sent Bearer …."
    assert leaks(str(done.message)) == []


def test_a_failed_attempt_stores_no_key(tmp_path: Path, renderer: Any) -> None:
    """The failure in the trajectory, its file, and the line about it."""
    cfg = compose(None, [f"trainer.default_local_dir={tmp_path / 'run'}"])
    with serving(refuses_with_its_headers) as url:
        endpoint = Endpoint(url, patience=Patience(retries=0), key_env="ODD_NAME")
        made = Collector(cfg, {"*": Binding(endpoint, renderer)})

        async def agent(task: Task, session: Any, cfg: Config) -> str:
            return (await session.generate(task.question)).text

        made.agent = agent
        groups = asyncio.run(made.collect([Task("t", "q")], 2, Sampling(), "k"))
        endpoint.close()
    (failed, _) = groups[0].trajectories
    assert failed.failure is not None
    assert "401" in failed.failure.message
    run = RunDirectory.start(cfg)
    run.save_trajectories("step-000000", groups)
    assert leaks(json.dumps(list(rows_of(groups)))) == []
    assert leaks(json.dumps(list(run.trajectories()))) == []


@pytest.mark.parametrize("name", ["Exception", "a tool's exception"])
def test_what_others_raise_is_redacted(name: str) -> None:
    """A reward, an agent or a tool of the user's may raise what a server said to it."""
    said = f"401: {{'Authorization': 'Bearer {KEY}'}}"

    async def look(query: str) -> str:
        """Look.

        Args:
            query: what
        """
        raise RuntimeError(said)

    if name == "Exception":
        made = Collector(Config(), {})

        async def agent(task: Task, session: Any, cfg: Config) -> str:
            raise RuntimeError(said)

        made.agent = agent
        groups = asyncio.run(made.collect([Task("t", "q")], 1, Sampling(), "k"))
        shown = str(groups[0].trajectories[0].failure)
    else:
        shown = asyncio.run(_call(Toolbox([look], Config()), "look", {"query": "x"}))
    assert "401" in shown
    assert leaks(shown) == []


async def _call(box: Toolbox, name: str, arguments: dict[str, Any]) -> str:
    from recollect.types import ToolCall

    async with box.open(Task("t", "q"), Trajectory("t", 0)) as opened:
        return str(await opened.call(ToolCall(name, arguments)))


def test_the_search_service_does_not_make_us_show_its_key() -> None:
    def reason(handler: Any) -> None:
        handler.send_response(401, f"no such key {KEY}")
        handler.end_headers()

    with serving(reason) as url, pytest.raises(RuntimeError, match="401") as caught:
        remote.Remote(url).search("q", 3)
    assert leaks(str(caught.value)) == []

    def echoes(handler: Any) -> None:
        send(handler, 200, json.dumps({"results": [{"text": f"you sent {KEY}"}]}).encode())

    with serving(echoes) as url:
        ((passage, _),) = remote.Remote(url).search("q", 3)
    assert passage.text == "you sent …"


def test_the_command_line_shows_no_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Console().say(f"at {KEY}")
    Console().warn(f"Authorization: Basic {'q' * 20} {KEY}")
    shown = capsys.readouterr()
    assert leaks(shown.out + shown.err) == []
    assert "qqqq" not in shown.err
    with serving(refuses_with_its_headers) as url:
        done = command(
            "rollout",
            *("--domain", "math", "--policy", url, "--question", "1+1?", "--out", str(tmp_path / "out.jsonl")),
            "actor_rollout_ref.rollout.fixed_model_key_env=ODD_NAME",
            cwd=tmp_path,
        )
    assert "401" in done.stdout + done.stderr
    assert leaks(done.stdout + done.stderr) == []
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


def test_words_are_not_taken_for_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "parallel")
    text = "none of the parallel basic words; set OPENAI_API_KEY, or api_key_env=OTHER"
    assert redacted(text) == text
    assert without_keys(f"is {KEY}") == "is …"
    assert redacted("at https://me:pass@host/x") == "at https://host/x"


# ---- sizes ----


@pytest.mark.parametrize("answer", [floods, bombs])
def test_an_answer_without_end_is_refused(answer: Answer) -> None:
    tracemalloc.start()
    try:
        with serving(answer) as url, pytest.raises(EndpointError, match="larger than 16 MiB"):
            ask(url)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6 * LARGEST


def test_a_list_of_models_without_end_is_refused() -> None:
    def answer(handler: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(40):
            handler.wfile.write(b" " * (1 << 20))

    with serving(answer) as url:
        endpoint = Endpoint(url)
        with pytest.raises(BadInput, match="larger than 16 MiB"):
            endpoint.check()
        endpoint.close()


def test_an_answer_nested_without_end_is_no_answer() -> None:
    with serving(nests) as url:
        with pytest.raises(EndpointError, match="not a whole chat completion"):
            ask(url)
        with pytest.raises(RuntimeError, match="did not answer with JSON"):
            remote.Remote(url + "/search").search("q", 3)


def test_a_search_service_that_floods_or_drips_is_left() -> None:
    with serving(floods) as url, pytest.raises(RuntimeError, match="more than"):
        remote.Remote(url).search("q", 3)
    start = time.monotonic()
    with serving(drips) as url, pytest.raises(RuntimeError, match="did not end in time"):
        remote.Remote(url, timeout=1.0).search("q", 3)
    assert time.monotonic() - start < 15  # it would take 20
