"""`recollect serve`: load a checkpoint and answer until told to stop."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import sys
import threading
from dataclasses import replace

from recollect.models.checkpoints import find_checkpoint
from recollect.runtime.console import Console
from recollect.runtime.secrets import key_of
from recollect.samplers.bindings import RoleBinder
from recollect.samplers.checkpoint_roles import config_of
from recollect.serve.connections import Http, affordable
from recollect.serve.server import ServeLimits, Server
from recollect.types import BadInput

KEY = "RECOLLECT_SERVE_KEY"  # the environment variable with the key that clients must show
LOCAL = ("127.0.0.1", "localhost", "::1")


def serve(
    checkpoint: str, host: str, port: int, settings: list[str], limits: ServeLimits, child: bool, console: Console
) -> None:
    """Serve a checkpoint. As the child of another process it ends when its standard input does."""
    path, run = find_checkpoint(checkpoint)
    cfg = config_of(run, settings)
    key = key_of(KEY)
    if host not in LOCAL and not key:
        raise BadInput(
            f"--host {host} is open to others: set the environment variable {KEY} to a key that they must show"
        )
    sock = listening(host, port)
    found = RoleBinder(cfg, None, say=lambda text: None if child else console.say(text)).loaded(path)
    connections, at_once = affordable(limits.connections)
    limits = replace(limits, connections=connections)
    server = Server(found.sampler, found.renderer, checkpoint, limits, "" if child else key)
    http = Http(server.app(), connections, at_once)
    gc.freeze()  # the model stays: looking for garbage in it takes time that requests wait for
    where = f"[{host}]" if ":" in host else host
    url = f"http://{where}:{sock.getsockname()[1]}/v1"
    what = "" if path == checkpoint else f" ({path})"
    asyncio.run(_answer(server, http, sock, url, child, console, what))


def listening(host: str, port: int) -> socket.socket:
    """A socket bound to an address that must be free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        raise BadInput(f"cannot listen at {host}:{port}: {error.strerror}; name another with --port") from None
    return sock


async def _answer(
    server: Server, http: Http, sock: socket.socket, url: str, child: bool, console: Console, what: str
) -> None:
    serving = asyncio.ensure_future(http.serve(sock))
    while not http.started and not serving.done():
        await asyncio.sleep(0.02)
    if child:
        print(json.dumps({"url": url, "model": server.name}), flush=True)
        threading.Thread(target=_until_input_ends, args=(http,), daemon=True).start()
    else:
        console.say(f"serving {server.name}{what} at {url} (Ctrl-C stops)")
    await serving


def _until_input_ends(http: Http) -> None:
    sys.stdin.buffer.read()
    http.stop()
