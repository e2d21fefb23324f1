"""`recollect serve`: load a checkpoint and answer until told to stop."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import sys
import threading
from dataclasses import replace
from pathlib import Path

from recollect.files.locks import lock_folder
from recollect.models.checkpoints import find_checkpoint
from recollect.runtime.console import Console
from recollect.runtime.secrets import key_of
from recollect.samplers.bindings import RoleBinder
from recollect.samplers.checkpoint_roles import config_of
from recollect.serve.arbor.arbor_config import ArborConfig, choose_gpu, has_gpu, read_arbor_config
from recollect.serve.arbor.job_shelf import JobShelf
from recollect.serve.arbor.trainable_server import TrainableServer
from recollect.serve.connections import Http, affordable
from recollect.serve.opening import opening_of
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
    opening = opening_of(cfg, any("agent.prompts=" in word for word in settings))
    key = checked_key(host)
    sock = listening(host, port)
    found = RoleBinder(cfg, None, say=lambda text: None if child else console.say(text)).loaded(path)
    limits, at_once = afforded(limits)
    server = Server(found.sampler, found.renderer, checkpoint, limits, "" if child else key)
    server.opening = opening
    http = Http(server.app(), limits.connections, at_once)
    gc.freeze()  # the model stays: looking for garbage in it takes time that requests wait for
    what = f"serving {checkpoint}" + ("" if path == checkpoint else f" ({path})")
    asyncio.run(_answer(server, http, sock, address(host, sock), child, console, what))


def start_trainable(
    checkpoint: str | None,
    settings: list[str],
    config: Path | None,
    jobs: Path | None,
    host: str,
    port: int,
    limits: ServeLimits,
    console: Console,
) -> None:
    """Serve models that clients train, with what `arbor.yaml` says; without a checkpoint any that they name."""
    arbor = ArborConfig() if config is None else read_arbor_config(config)
    if arbor.storage is not None and jobs is not None:
        raise BadInput(f"{config} has storage_path and --jobs names another folder; give one of them")
    choose_gpu(arbor, has_gpu(), console.say)
    folder = jobs or arbor.storage or Path("runs") / "arbor"
    shelf = JobShelf(folder.expanduser(), settings, checkpoint, console.warn)
    serve_trainable(shelf, host, port, limits, console)


def serve_trainable(shelf: JobShelf, host: str, port: int, limits: ServeLimits, console: Console) -> None:
    """Serve models that clients train; a job that an earlier server left goes on."""
    shelf.check()
    key = checked_key(host)
    sock = listening(host, port)
    with lock_folder(shelf.folder, f"the folder of jobs {shelf.folder}"):
        limits, at_once = afforded(limits)
        server = TrainableServer(shelf, limits, key)
        name = server.take_up()
        if server.job is not None:
            console.say(f"going on with job {name} at step {server.job.progress.step}")
        what = f"training and serving {name or 'the models that clients name'}, jobs in {shelf.folder},"
        http = Http(server.app(), limits.connections, at_once)
        asyncio.run(_answer(server, http, sock, address(host, sock), False, console, what))


def checked_key(host: str) -> str:
    """The key that clients must show; one is needed where others than this machine can ask."""
    key = key_of(KEY)
    if host not in LOCAL and not key:
        raise BadInput(
            f"--host {host} is open to others: set the environment variable {KEY} to a key that they must show"
        )
    return key


def afforded(limits: ServeLimits) -> tuple[ServeLimits, int]:
    """The limits with as many connections as there can be, and how many are taken in one go."""
    connections, at_once = affordable(limits.connections)
    return replace(limits, connections=connections), at_once


def address(host: str, sock: socket.socket) -> str:
    """Where clients find the server."""
    where = f"[{host}]" if ":" in host else host
    return f"http://{where}:{sock.getsockname()[1]}/v1"


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
        console.say(f"{what} at {url} (Ctrl-C stops)")
    await serving


def _until_input_ends(http: Http) -> None:
    sys.stdin.buffer.read()
    http.stop()
