"""Requests that are made to stop the server: each is refused or bounded, and `/health` answers meanwhile."""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from recollect.chat.encoder import KEPT, Encoder
from recollect.config.compose import compose
from recollect.samplers.bindings import RoleBinder
from recollect.serve import bodies, connections
from recollect.serve.connections import affordable
from recollect.serve.protocol import LONGEST_STOP
from recollect.serve.responses import visible
from recollect.serve.server import ServeLimits, Server
from recollect.serve.stream_text import Spoken, Stop
from tests.hostile.served import dial, health, is_closed, post_head, served
from tests.serve.test_server import Running
from tests.waiting import LONG, until

SOON = 2.0  # seconds within which /health must answer, unless others hold the machine: the best of three
GOOD = {"prompt": "mira holds 472. kolu", "max_tokens": 4, "temperature": 0}


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    found = RoleBinder(compose(None, ["trainer.threads=1", "trainer.device=cpu"]), None).loaded("tiny")
    made = Running(Server(found.sampler, found.renderer, "tiny", ServeLimits(connections=300)))
    yield made
    made.stop()


@pytest.fixture
def address(running: Running) -> tuple[str, int]:
    return "127.0.0.1", int(running.url.rsplit(":", 1)[1])


def slowest_health(url: str, work: Callable[[], Any]) -> tuple[Any, float]:
    """What some work gave, and the longest that /health took while it was done."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    slowest = health(url)
    while thread.is_alive():
        slowest = max(slowest, health(url))
        time.sleep(0.02)
    return found[0], slowest


def is_well(url: str) -> bool:
    return any(health(url) < SOON for _ in range(3))


def answers(url: str) -> bool:
    """True when an ordinary request is served."""
    return httpx.post(f"{url}/v1/completions", json=GOOD, timeout=LONG).status_code == 200


# ---- requests that cost more than they say ----

TEXT = "kolu holds 12 and mira 472. "
MANY: dict[str, tuple[str, dict[str, Any] | bytes, int]] = {
    "stop strings of 460 kB": ("completions", {"prompt": "a", "stream": True, "stop": ["ab" * 230_000] * 16}, 400),
    "a stop string too long": ("completions", {"prompt": "a", "stop": "x" * (LONGEST_STOP + 1)}, 400),
    "a prompt of 8 MB": ("completions", {"prompt": TEXT * 290_000}, 400),
    "one word of 8 MB": ("completions", {"prompt": "a" * 8_000_000}, 400),
    "a message of 8 MB": ("chat/completions", {"messages": [{"role": "user", "content": TEXT * 290_000}]}, 400),
    "messages of 7 MB": ("chat/completions", {"messages": [{"role": "user", "content": TEXT * 500}] * 500}, 400),
    "200,000 messages": ("chat/completions", {"messages": [{"role": "user", "content": ""}] * 200_000}, 400),
    "1.6 million prompts": ("completions", {"prompt": ["a"] * 1_600_000}, 400),
    "2,000 prompts": ("completions", {"prompt": ["a"] * 2000}, 400),
    "2,000 prompts of ids": ("completions", {"prompt": [[5]] * 2000}, 400),
    "n for many prompts": ("completions", {"prompt": ["a"] * 200, "n": 64}, 400),
    "2 million ids": ("completions", {"prompt": [5] * 2_000_000}, 400),
    "ids that are no ids": ("completions", {"prompt": [10**400]}, 400),
    "many lists": ("completions", b'{"prompt": [' + b"[]," * 2_600_000 + b"[]]}", 400),
    "many objects": ("completions", b'{"prompt": [' + b"{}," * 2_600_000 + b"1]}", 400),
    "many names": ("completions", b"{" + b",".join(b'"%d":1' % i for i in range(600_000)) + b"}", 400),
    "deep lists": ("completions", b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
    "a deep tool": (
        "chat/completions",
        b'{"messages": [{"role": "user", "content": "a"}], "tools": [{"function": {"name": "f", "parameters": '
        + b'{"a": ' * 900
        + b"1"
        + b"}" * 900
        + b"}}]}",
        400,
    ),
    "a number of 5,000 digits": ("completions", b'{"prompt": "a", "seed": ' + b"9" * 5000 + b"}", 400),
    "not a number": ("completions", b'{"prompt": "a", "temperature": NaN}', 400),
    "a bias for every token": ("completions", {"prompt": "a", "logit_bias": {str(i): 1 for i in range(200_000)}}, 400),
    "best of many": ("completions", {"prompt": "a", "best_of": 10**9}, 400),
    "an echo": ("completions", {"prompt": "a", "echo": True}, 400),
    "10,000 tools": (
        "chat/completions",
        {
            "messages": [{"role": "user", "content": "a"}],
            "tools": [{"type": "function", "function": {"name": f"f{i}"}} for i in range(10_000)],
        },
        400,
    ),
    "a tool of 7 MB": (
        "chat/completions",
        {
            "messages": [{"role": "user", "content": "a"}],
            "tools": [{"type": "function", "function": {"name": "f", "description": TEXT * 250_000}}],
        },
        200,  # the embedded model's template shows no tools
    ),
    "a model's name of 7 MB": ("completions", {"model": "m" * 7_000_000, "prompt": "a"}, 404),
    "a key of 7 MB": ("completions", {"prompt": "a", "k" * 7_000_000: 1}, 400),
    "a body over the limit": ("completions", b" " * (9 << 20), 413),
}


@pytest.mark.parametrize("name", MANY)
def test_a_costly_request_is_refused_while_others_are_served(running: Running, name: str) -> None:
    route, body, status = MANY[name]
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    ask = lambda: httpx.post(f"{running.url}/v1/{route}", content=data, timeout=LONG)
    for attempt in range(3):
        answer, slowest = slowest_health(running.url, ask)
        assert answer.status_code == status, answer.text[:300]
        assert len(answer.content) < 2000
        if slowest < SOON:
            break
        assert attempt < 2, slowest


def test_refused_prompts_are_not_remembered(running: Running) -> None:
    encoder = running.server.renderer._encoder
    assert encoder is not None
    assert sum(len(known.text) for known in encoder.known) <= KEPT
    assert all(len(known.text) < 1_000_000 for known in encoder.known)


def test_remembered_texts_are_bounded(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recollect.chat.encoder.KEPT", 100_000)
    encoder = Encoder(tokenizer.backend_tokenizer)
    for i in range(5):
        encoder.encode(f"{i} " + "a b " * 10_000)
    assert [known.text[0] for known in encoder.known] == ["3", "4"]  # the newest
    encoder.encode("b a " * 30_000)  # too long to be kept, and no reason to forget others
    assert [known.text[0] for known in encoder.known] == ["3", "4"]


def test_the_same_conversation_is_kept_once(running: Running) -> None:
    body = {"messages": [{"role": "user", "content": "What does mira hold? mira holds 472."}], "temperature": 0}
    kept = []
    for _ in range(3):
        assert httpx.post(f"{running.url}/v1/chat/completions", json=body, timeout=30).status_code == 200
        kept.append(running.server.sampler.scheduler.prefixes.tokens)
    assert kept[0] == kept[1] == kept[2] > 0


# ---- stop strings ----


def test_streamed_text_ends_before_stop_strings() -> None:
    """Whatever the pieces, what was sent is the beginning of the visible text, and all of it but what may be a stop."""
    rng = random.Random(0)
    for _ in range(300):
        letters = "ab" if rng.random() < 0.7 else "abé"
        text = "".join(rng.choices(letters, k=30))
        stops = ["".join(rng.choices(letters, k=rng.randint(1, 6))) for _ in range(rng.randint(0, 3))]
        data = text.encode()
        spoken, sent = Spoken(lambda ids: bytes(ids).decode("utf-8", "replace"), stops), ""
        for count in range(1, len(data) + 1):
            sent += spoken.more(data[:count])
            seen = data[:count].decode("utf-8", "ignore")
            shown = visible(seen, stops)
            held = max((k for s in stops for k in range(1, len(s)) if shown.endswith(s[:k])), default=0)
            if shown == seen:
                assert sent == shown[: len(shown) - held]
        assert visible(text, stops).startswith(sent)
        assert spoken.sent == len(sent)


def test_stop_strings_cost_no_more_for_being_repetitive() -> None:
    stops = ["a" * (LONGEST_STOP - 1) + chr(ord("b") + i) for i in range(16)]
    spoken, ids = Spoken(lambda ids: "a" * len(ids), stops), [1] * 4096
    start = time.thread_time()
    for count in range(1, len(ids) + 1):
        spoken.more(ids[:count])
    assert time.thread_time() - start < 5
    assert spoken.sent == len(ids) - (LONGEST_STOP - 1)
    assert Stop("aabaaab").back == [0, 1, 0, 1, 2, 2, 3]


def test_half_characters_without_end_are_sent_at_the_end() -> None:
    spoken, seen = Spoken(lambda ids: "\ufffd" * len(ids), []), []

    def decode(ids: Any) -> str:
        seen.append(len(ids))
        return "\ufffd" * len(ids)

    spoken.decode = decode
    assert [spoken.more([1] * count) for count in range(1, 500)] == [""] * 499
    assert max(seen) < 100


def test_a_reader_that_stops_reading_costs_no_memory_and_is_left(
    running: Running, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "STALL_S", 0.5)
    body = {"messages": [{"role": "user", "content": "a"}], "stream": True, "n": 64, "max_tokens": 1000}
    data = json.dumps(body | {"ignore_eos": True, "temperature": 1.5}).encode()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(address)
    sock.sendall(post_head(len(data), "/v1/chat/completions") + data)
    assert until(lambda: running.server.running == 64)
    assert until(lambda: running.server.running == 0)
    assert until(lambda: is_closed(sock))
    assert answers(running.url)


# ---- connections ----


def test_many_half_open_connections_keep_nobody_out(running: Running, address: tuple[str, int]) -> None:
    says = [b"", b"GET /health HTTP/1.1\r\nHo", post_head(1000)]
    socks = []
    for i in range(1500):
        socks.append(dial(address, says[i % 3]))
        if i % 250 == 0:
            assert is_well(running.url)
    assert is_well(running.url)
    assert answers(running.url)
    assert len(running.http.room.open) <= 300 + connections.AT_ONCE
    assert sum(map(is_closed, socks)) > 1100
    for sock in socks:
        sock.close()


def test_who_says_nothing_is_left(running: Running, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "ALLOWED", {"head": 1.0, "body": 1.5, "left": 0.5})
    drip = dial(address, b"GET /health HTTP/1.1\r\n")
    quiet, body, refused = dial(address), dial(address, post_head(1000)), dial(address, post_head(100 << 20))
    start = time.monotonic()
    while not is_closed(drip) and time.monotonic() - start < LONG:
        drip.setblocking(True)
        try:
            drip.sendall(b"X: y\r\n")  # a byte now and then does not help
        except OSError:
            break
        time.sleep(0.1)
    assert time.monotonic() - start < LONG
    assert until(lambda: all(map(is_closed, (quiet, body, refused))))


def test_a_slow_body_is_told_so(running: Running, address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BODY_S", 0.5)
    sock = dial(address, post_head(1000) + b"{")
    sock.settimeout(LONG)
    assert b" 408 " in sock.recv(4096)
    sock.close()


def test_unfinished_bodies_are_bounded_together(running: Running, address: tuple[str, int]) -> None:
    """150 bodies that want the end of 8 MB: the largest are given up, small requests are served."""
    size = 8 << 20
    socks, part = [dial(address, post_head(size)) for _ in range(150)], b" " * (1 << 20)
    most = 0
    for _ in range(7):
        for sock in socks:
            sock.settimeout(0.05)
            try:
                sock.sendall(part)
            except OSError:  # given up, or not read as fast as it is sent
                continue
        held = sum(body.counted for body in running.server.bodies.held)
        most = max(most, held)
        assert is_well(running.url)
        assert answers(running.url)
    assert most <= running.server.bodies.budget + (1 << 20)
    for sock in socks:
        sock.close()


def test_clients_without_a_key_make_little_log_and_stop_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 96 descriptors and 400 connections; then requests that are none."""
    with served("--connections", "1000", descriptors=96) as server:
        socks = []
        for i in range(400):
            socks.append(dial(server.address, b"" if i % 2 else post_head(5000)))
            if i % 100 == 0:
                assert is_well(server.url)
        assert is_well(server.url)
        for _ in range(300):
            dial(server.address, b"\x00\xff nonsense\r\n\r\n").close()
            dial(server.address, b"GET /x HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n").close()
        assert is_well(server.url)
        assert httpx.post(f"{server.url}/v1/completions", json=GOOD, timeout=LONG).status_code == 200
        assert server.log.stat().st_size < 10_000, server.log.read_text()[:2000]
        for sock in socks:
            sock.close()


def test_connections_are_as_many_as_there_are_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = [64, 64]
    monkeypatch.setattr(connections.resource, "getrlimit", lambda kind: tuple(limit))
    monkeypatch.setattr(connections.resource, "setrlimit", lambda kind, pair: limit.__setitem__(0, pair[0]))
    monkeypatch.setattr(connections.os, "listdir", lambda path: ["x"] * 20)
    few, at_once = affordable(1024)
    assert 4 <= few + 4 * at_once <= 44
    limit[:] = [64, 1 << 20]
    assert affordable(1024) == (1024, connections.AT_ONCE)
    assert limit[0] > 1024


# ---- the command ----
BAD_OPTIONS = {
    "an empty checkpoint": ["--checkpoint", ""],
    "a blank checkpoint": ["--checkpoint", " "],
    "no such host": ["--checkpoint", "tiny", "--host", "no.such.host.invalid"],
    "an empty host": ["--checkpoint", "tiny", "--host", ""],
    "tokens that are no number": ["--checkpoint", "tiny", "--max-tokens", "nan"],
    "no connections": ["--checkpoint", "tiny", "--connections", "0"],
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_options_that_cannot_work_are_refused(name: str) -> None:
    from tests.commands import run

    done = run("serve", *BAD_OPTIONS[name])
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
