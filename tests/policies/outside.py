"""A stand-in for an outside model server: HTTP, one reply for the same messages always, and faults where asked for."""

from __future__ import annotations

import hashlib
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[[dict[str, Any]], dict[str, Any] | str]  # the body of a call → a message, or its text
FAULTS = ("drop", "stall", "500", "half", "empty")


class Outside:
    """A running server: what it was asked, and how it misbehaves."""

    def __init__(
        self, reply: Reply, faults: float = 0.0, kinds: tuple[str, ...] = FAULTS, stall_s: float = 2.0
    ) -> None:
        self.reply, self.faults, self.kinds, self.stall_s = reply, faults, kinds, stall_s
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.seen: dict[str, int] = {}
        self.failed: list[str] = []
        self.limit = 0  # answer so many calls and no more; 0: all
        self.models = ["outside"]
        self.lock = threading.Lock()
        self.url = ""

    def fault(self, body: dict[str, Any]) -> str | None:
        """Which fault this call gets: drawn from its body and how often it came, so that runs are repeatable."""
        text = json.dumps(body, sort_keys=True)
        with self.lock:
            self.bodies.append(body)
            count = self.seen[text] = self.seen.get(text, 0) + 1
            if self.limit and len(self.bodies) > self.limit:
                return "drop"
        rng = random.Random(hashlib.sha256(f"{text}{count}".encode()).hexdigest())
        kind = rng.choice(self.kinds) if rng.random() < self.faults else None
        if kind:
            self.failed.append(kind)
        return kind


def _handler(outside: Outside) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: Any) -> None:
            pass

        def drop(self) -> None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)

        def send(self, code: int, value: Any, cut: bool = False, **headers: str) -> None:
            data = json.dumps(value).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data) // 2 if cut else len(data)))
            for name, text in headers.items():
                self.send_header(name.replace("_", "-"), text)
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if cut else data)

        def do_GET(self) -> None:
            if outside.limit and len(outside.bodies) > outside.limit:
                self.drop()
                return
            self.send(200, {"data": [{"id": name} for name in outside.models]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            outside.headers.append(dict(self.headers))
            kind = outside.fault(body)
            if kind == "drop":
                self.drop()
                return
            if kind == "stall":
                time.sleep(outside.stall_s)
                self.drop()
                return
            if kind in ("500", "429", "400"):
                self.send(int(kind), {"error": {"message": "not now"}}, Retry_After="0.01")
                return
            said = outside.reply(body)
            message = {"role": "assistant", "content": said} if isinstance(said, str) else said
            if kind == "empty":
                message = {"role": "assistant", "content": ""}
            choice = {
                "index": 0,
                "message": message,
                "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
            }
            self.send(200, {"choices": [choice]}, cut=kind == "half")

    return Handler


@contextmanager
def running(outside: Outside, port: int = 0) -> Iterator[Outside]:
    """The server, up while this is open."""
    server = ThreadingHTTPServer(("127.0.0.1", port), _handler(outside))
    server.daemon_threads = True
    server.handle_error = lambda *args: None  # type: ignore[method-assign]
    outside.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield outside
    finally:
        server.shutdown()
        server.server_close()
