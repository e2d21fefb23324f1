"""Minutes of good and bad traffic at once: every good request is answered, `/health` is quick, memory stays.

RECOLLECT_HOSTILE_SECONDS says how long; 600 unless told.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import httpx
import openai
import pytest

from tests.commands import CONTEXT
from tests.hostile.served import Served, dial, health, post_head, served
from tests.hostile.test_server import MANY

SECONDS = float(os.environ.get("RECOLLECT_HOSTILE_SECONDS", "600"))
SOON, GROWTH = 2.0, 0.05
WARM_S = max(30.0, SECONDS / 10)
KEY = "campaign-key-472"

COSTLY = {
    name: (route, body if isinstance(body, bytes) else json.dumps(body).encode(), status)
    for name, (route, body, status) in MANY.items()
}
Attack = Callable[[Served, random.Random], str]  # one attempt → what came of it


class Tally:
    """Attempts and outcomes, from all threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.rows: Counter[tuple[str, str]] = Counter()
        self.health: list[float] = []
        self.wrong: list[str] = []

    def add(self, name: str, outcome: str) -> None:
        with self.lock:
            self.rows[name, outcome] += 1

    def table(self) -> str:
        width = max(len(name) for name, _ in self.rows)
        return "\n".join(f"{name:<{width}}  {outcome:<24} {n:>7}" for (name, outcome), n in sorted(self.rows.items()))


# ---- bad traffic ----


def costly(server: Served, rng: random.Random) -> str:
    """One of the requests of test_server.py."""
    route, data, status = COSTLY[rng.choice(list(COSTLY))]
    headers = {"Authorization": f"Bearer {KEY}"}
    try:
        found = httpx.post(f"{server.url}/v1/{route}", content=data, headers=headers, timeout=60).status_code
    except httpx.WriteError:  # refused before it was sent to its end
        found = status
    return "refused" if found in (status, 429, 503) else f"status {found}"


def half_open(server: Served, rng: random.Random) -> str:
    """200 connections that say half of something, held for a while."""
    says = [b"", b"GET /health HTTP/1.1\r\nX: ", post_head(5000), post_head(8 << 20) + b" " * 50_000]
    socks = []
    with suppress(OSError):
        for _ in range(200):
            socks.append(dial(server.address, rng.choice(says)))
    time.sleep(rng.uniform(0.2, 2))
    for sock in socks:
        sock.close()
    return "held"


def unfinished(server: Served, rng: random.Random) -> str:
    """20 bodies of 8 MB that never end, with the key."""
    head = post_head(8 << 20).replace(b"\r\n\r\n", f"\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode())
    socks = [dial(server.address, head) for _ in range(20)]
    for _ in range(4):
        for sock in socks:
            sock.settimeout(0.05)
            with suppress(OSError):
                sock.sendall(b" " * (1 << 20))
    time.sleep(rng.uniform(0.1, 1))
    for sock in socks:
        sock.close()
    return "held"


def garbage(server: Served, rng: random.Random) -> str:
    """Bytes that are no request."""
    with suppress(OSError):
        dial(server.address, rng.randbytes(rng.randint(1, 3000)) + b"\r\n\r\n").close()
    return "sent"


def stranger(server: Served, rng: random.Random) -> str:
    """No key, or another."""
    headers = {"Authorization": "Bearer " + "x" * rng.randint(1, 500)}
    found = httpx.post(f"{server.url}/v1/completions", json={"prompt": "a"}, headers=headers, timeout=30).status_code
    return "refused" if found == 401 else f"status {found}"


def leaver(server: Served, rng: random.Random) -> str:
    """Asks for a long answer and goes."""
    body = {"prompt": "Question:", "max_tokens": 500, "ignore_eos": True, "n": 4, "stream": rng.random() < 0.5}
    with suppress(httpx.TransportError):
        httpx.post(
            f"{server.url}/v1/completions",
            json=body,
            headers={"Authorization": f"Bearer {KEY}"},
            timeout=httpx.Timeout(10, read=rng.uniform(0.01, 0.3)),
        )
    return "gone"


def mutated(server: Served, rng: random.Random) -> str:
    """An ordinary request with some bytes changed."""
    data = bytearray(json.dumps({"prompt": "mira holds 472", "max_tokens": 4, "stop": ["x"], "n": 2}).encode())
    for _ in range(rng.randint(1, 6)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    headers = {"Authorization": f"Bearer {KEY}"}
    found = httpx.post(f"{server.url}/v1/completions", content=bytes(data), headers=headers, timeout=60).status_code
    return "answered" if found in (200, 400, 404, 429) else f"status {found}"


ATTACKS: dict[str, Attack] = {
    "costly requests": costly,
    "half-open connections (200 each)": half_open,
    "unfinished bodies (20 each)": unfinished,
    "garbage": garbage,
    "no key": stranger,
    "clients that leave": leaver,
    "mutated requests": mutated,
}

# ---- good traffic ----


def good(client: openai.OpenAI, number: int) -> str:
    """One ordinary request; what is wrong with its answer, or nothing."""
    question = "Question: What does mira hold?\nMemory: mira holds 472\nAnswer:"
    messages: Any = [{"role": "user", "content": question}]
    options: dict[str, Any] = {"model": "tiny", "messages": messages, "temperature": 0, "max_tokens": 12}
    if number % 3 == 0:
        text = "".join(c.choices[0].delta.content or "" for c in client.chat.completions.create(stream=True, **options))
    elif number % 3 == 1:
        text = str(client.chat.completions.create(**options).choices[0].message.content)
    else:
        prompt = f"{number % 8} kolu holds {number % 8}. " * 40
        done = client.completions.create(model="tiny", prompt=prompt, max_tokens=8, temperature=0)
        return "" if done.choices[0].text is not None else "no text"
    return "" if text.strip() == r"\boxed{ 472}" else f"said {text!r}"


def loop(work: Callable[[int], None], until: float, pause: float) -> threading.Thread:
    def run() -> None:
        number = 0
        while time.monotonic() < until:
            work(number)
            number += 1
            time.sleep(pause)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def look(url: str, seconds: float, out: Any) -> None:
    """How long /health took, again and again."""
    until, took = time.monotonic() + seconds, []
    while time.monotonic() < until:
        took.append(health(url, timeout=60))
        time.sleep(0.2)
    out.send(took)


def traffic(server: Served, seconds: float, tally: Tally, attacks: dict[str, Attack]) -> None:
    """All kinds of clients at once."""
    until = time.monotonic() + seconds
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=2, timeout=120)

    def ask(number: int) -> None:
        try:
            problem = good(client, number)
        except openai.OpenAIError as error:
            problem = f"{type(error).__name__}: {error}"
        tally.add("good requests", "wrong" if problem else "answered")
        if problem:
            tally.wrong.append(problem)

    def attack(name: str, rng: random.Random) -> Callable[[int], None]:
        def once(number: int) -> None:
            try:
                tally.add(name, attacks[name](server, rng))
            except (OSError, httpx.TransportError) as error:
                tally.add(name, type(error).__name__)

        return once

    looks, mine = CONTEXT.Pipe(duplex=False)
    looker = CONTEXT.Process(target=look, args=(server.url, seconds, mine))  # this process is busy with attacks
    looker.start()
    threads = [loop(ask, until, 0.05) for _ in range(2)]
    threads += [loop(attack(name, random.Random(name)), until, 0.2) for name in attacks]
    for thread in threads:
        thread.join(seconds + 180)
    assert not any(thread.is_alive() for thread in threads)
    tally.health = looks.recv()
    looker.join()


@pytest.mark.hostile
@pytest.mark.timeout(SECONDS + 600)
def test_good_requests_are_answered_under_attack() -> None:
    with served(env={"RECOLLECT_SERVE_KEY": KEY}) as server:
        traffic(server, WARM_S, Tally(), ATTACKS)  # memory that is used once and kept, such as caches
        time.sleep(2)
        before, tally = server.resident(), Tally()
        traffic(server, SECONDS, tally, ATTACKS)
        time.sleep(2)
        after, log = server.resident(), server.log.stat().st_size
    looks = sorted(tally.health)
    p50, p99 = looks[len(looks) // 2], looks[int(len(looks) * 0.99)]
    print(f"\n{SECONDS:g} s of traffic\n{tally.table()}")
    print(f"/health: {len(looks)} looks, median {p50:.3f} s, p99 {p99:.3f} s, longest {looks[-1]:.3f} s")
    print(f"resident: {before >> 20} MiB before, {after >> 20} MiB after ({after / before - 1:+.1%}); log {log} bytes")
    assert tally.wrong == []
    assert tally.rows["good requests", "answered"] > SECONDS / 10
    assert not [row for row in tally.rows if row[1].startswith("status")]
    assert p99 <= SOON
    assert after <= before * (1 + GROWTH)
    assert log < 100_000
