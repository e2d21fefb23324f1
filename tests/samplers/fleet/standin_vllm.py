"""A server with vLLM's routes for training that computes with the engine of this package.

Ids, log-probabilities, prefix cache and weights are real; so are the faults that a test asks for. As a program it takes
vLLM's options: `python -m tests.samplers.fleet.standin_vllm --model FOLDER --port PORT …`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import uvicorn
from safetensors.torch import load_file
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from transformers import AutoModelForCausalLM

from recollect.config import Rollout
from recollect.engine import load_fitted, make_engine
from recollect.models.load import load_config, load_tokenizer
from recollect.models.lora import fill_weights
from recollect.samplers.fleet.inside.recollect_broadcast import BroadcastGroup, Meeting, received
from recollect.types import Sampling

COMPUTING = threading.Lock()  # engines of one process take turns: attention has one plan at a time


@dataclass(frozen=True, slots=True)
class Seeded(Sampling):
    """Sampling whose noise is given as a number, as a server gets it."""

    noise: int = 0

    @property
    def noise_seed(self) -> int:
        return self.noise


class StandIn:
    """One server. Faults are attributes that a test sets."""

    def __init__(self, model: Path, window: int = 4096, dtype: str = "float32", mode: str = "processed_logprobs"):
        self.path, self.window, self.dtype, self.mode = model, window, dtype, mode
        with tempfile.TemporaryDirectory() as folder:  # as with --load-format dummy: no weights until they are sent
            torch.manual_seed(0)
            AutoModelForCausalLM.from_config(load_config(str(model))).save_pretrained(folder)
            load_tokenizer(str(model)).save_pretrained(folder)
            self.model = load_fitted(folder, torch.float32)
            tokenizer = load_tokenizer(folder)
        self.engine = make_engine(self.model, tokenizer.decode, Rollout(), own=False, threads=1)
        step = self.engine.step

        def alone() -> None:
            with COMPUTING:
                step()

        self.engine.step = alone  # type: ignore[method-assign]
        self.label, self.paused, self.updating = "none", False, False
        self.answered = 0  # completions
        self.calls: list[str] = []
        self.hangs = self.keeps_cache = self.blind = self.corrupt = self.sleepless = self.drowsy = False
        self.deaf = False  # takes part in no broadcast
        self.answers: bytes | None = None  # instead of completions
        self.nonsense: dict[str, Any] = {}  # that it says of itself
        self.handover = ""
        self.group: BroadcastGroup | None = None
        self.asleep: set[str] = set()  # what has no memory
        self.backup: dict[str, torch.Tensor] = {}
        self.label_said: str | None = None  # instead of the real one
        self.fails_after: int | None = None  # completions, after which it answers 500
        self.url = ""

    def app(self) -> Starlette:
        post = [
            *("collective_rpc", "pause", "start_weight_update", "update_weights", "finish_weight_update"),
            *("reset_prefix_cache", "resume", "sleep", "wake_up", "init_weight_transfer_engine"),
        ]
        routes = [Route(f"/{name}", self._control, methods=["POST"]) for name in post]
        routes += [Route("/health", lambda r: Response("")), Route("/weight_info", self._weights)]
        routes += [Route("/inference/v1/generate", self._generate, methods=["POST"])]
        return Starlette(routes=routes)

    async def _weights(self, request: Request) -> JSONResponse:
        return JSONResponse({"weight_version": self.label})

    async def _control(self, request: Request) -> JSONResponse:
        name = request.url.path.strip("/")
        body = json.loads(await request.body() or b"{}")
        self.calls.append(body.get("method", name))
        while self.hangs:
            await asyncio.sleep(0.05)
        try:  # in a thread, for what waits for others
            return JSONResponse(await asyncio.to_thread(getattr(self, f"_{name}"), body, request.query_params) or {})
        except (AssertionError, RuntimeError, ValueError) as error:
            return JSONResponse({"error": {"message": str(error)}}, 500)

    def _collective_rpc(self, body: dict[str, Any], query: Any) -> dict[str, Any]:
        return {"results": [getattr(self, body["method"])(**body["kwargs"])]}

    def recollect_about(self, probe: str) -> dict[str, Any]:
        sees = "" if self.blind or not Path(probe).is_file() else Path(probe).read_text()
        about = {"window": self.window, "dtype": self.dtype, "logprobs_mode": self.mode, "rows": 256}
        config = json.loads(json.dumps(self.model.config.to_dict(), default=str))
        return {"protocol": 2, "backend": "recollect", "config": config, "sees": sees, **about, **self.nonsense}

    def recollect_begin(self, handover: str) -> dict[str, str]:
        self.handover, self.updating = handover, False
        return {"handover": handover}

    def recollect_verify(self, manifest: str) -> dict[str, str]:
        import hashlib

        found = json.loads(manifest)
        for name, (_, digest) in found["files"].items():
            data = (Path(found["folder"]) / name).read_bytes()
            if self.corrupt or hashlib.sha256(data).hexdigest() != digest:
                return {"problem": f"{name} is not the file that was written"}
        return {"problem": ""}

    def _pause(self, body: dict[str, Any], query: Any) -> None:
        self.paused = True

    def _start_weight_update(self, body: dict[str, Any], query: Any) -> None:
        assert self.paused
        assert "weights" not in self.asleep
        assert not self.updating
        self.updating = True

    def _init_weight_transfer_engine(self, body: dict[str, Any], query: Any) -> None:
        info = body["init_info"]
        given = {"rank": info.pop("first"), "size": info["size"], "host": info["host"], "limit_s": info["limit_s"]}
        self.group = BroadcastGroup(Meeting(info["address"], info["port"], **given))

    def _update_weights(self, body: dict[str, Any], query: Any) -> None:
        assert self.updating
        info = body["update_info"]
        assert info["handover"] == self.handover
        group = self.group
        while self.deaf:
            time.sleep(0.05)
        weights: dict[str, torch.Tensor] = {}
        for name in info.get("files", []):
            weights |= load_file(Path(info["folder"]) / name)
        for about in info.get("buckets", []):
            assert group is not None
            about = about | ({"checksum": "wrong"} if self.corrupt else {})
            weights |= dict(received(group, about, torch.device("cpu")))
        fill_weights(self.model, weights.items())

    def _finish_weight_update(self, body: dict[str, Any], query: Any) -> None:
        self.label, self.updating = body["weight_version"], False

    def _reset_prefix_cache(self, body: dict[str, Any], query: Any) -> dict[str, bool]:
        if not self.keeps_cache:
            self.engine.new_weights(0)
        return {"success": True}

    def _resume(self, body: dict[str, Any], query: Any) -> None:
        self.paused = False

    def _sleep(self, body: dict[str, Any], query: Any) -> None:
        """Level 1: weights wait elsewhere, and what was cached is lost."""
        assert dict(query) == {"level": "1", "mode": "abort"}
        assert not self.sleepless
        self.backup = {name: weight.clone() for name, weight in self.model.state_dict().items()}
        with torch.no_grad():
            for weight in self.model.parameters():
                weight.zero_()
        self.engine.new_weights(0)
        self.asleep, self.paused = {"weights", "kv_cache"}, True

    def _wake_up(self, body: dict[str, Any], query: Any) -> dict[str, str]:
        self.calls[-1] += f" {query['tags']}"
        if query["tags"] == "weights":
            self.model.load_state_dict(self.backup)
        if not self.drowsy:
            self.asleep.discard(query["tags"])
        self.paused = bool(self.asleep)
        return {"status": "sleeping" if self.asleep else "awake"}

    async def _generate(self, request: Request) -> Response:
        body = await request.json()
        given = body["sampling_params"]
        if self.answers is not None:
            return Response(self.answers, media_type="application/json")
        if self.fails_after is not None and self.answered >= self.fails_after:
            return JSONResponse({"error": {"message": "EngineCore died"}}, 500)
        if max(body["token_ids"]) >= self.engine.vocabulary:
            return JSONResponse({"error": {"message": "Token id is out of vocabulary"}}, 400)
        while self.hangs or self.paused:
            await asyncio.sleep(0.05)
        sampling = Seeded(
            *(given[name] for name in ("temperature", "top_p", "top_k", "max_tokens")),
            *(tuple(given[name]) for name in ("stop", "stop_token_ids")),
            noise=given["seed"],
            keep=True,
        )
        done = await self.engine.generate(body["token_ids"], sampling)
        self.answered += 1
        span = {"version": self.label_said or self.label, "start": 0, "end": len(done.ids)}
        choice = {
            "token_ids": list(done.ids),
            "finish_reason": done.stop,
            "logprobs": {"content": [{"logprob": float(x)} for x in done.logprobs]},
            "weight_versions": [span],
        }
        return JSONResponse({"choices": [choice]})


def python_with_vllm(folder: Path) -> Path:
    """A program that runs this server when it is asked to run vLLM's."""
    program = folder / "python-with-vllm"
    program.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] && exit 0\nshift 2\ncd {Path(__file__).parents[3]} && PYTHONPATH=src '
        f'exec {sys.executable} -m tests.samplers.fleet.standin_vllm "$@"\n'
    )
    program.chmod(0o755)
    return program


@contextmanager
def serving(*servers: StandIn) -> Iterator[list[str]]:
    """Addresses of servers that run in threads of this process."""
    running = []
    for server in servers:
        config = uvicorn.Config(server.app(), host="127.0.0.1", port=0, log_level="critical", lifespan="off")
        web = uvicorn.Server(config)
        thread = threading.Thread(target=web.run, daemon=True)
        thread.start()
        while not web.started:
            thread.join(0.01)
        server.url = f"http://127.0.0.1:{web.servers[0].sockets[0].getsockname()[1]}"
        running.append((web, thread))
    try:
        yield [server.url for server in servers]
    finally:
        for web, thread in running:
            web.force_exit = web.should_exit = True
            thread.join(10)


def main() -> None:
    """A server as a program, with the options of vLLM's."""
    parser = argparse.ArgumentParser()
    for name, kind in (("model", Path), ("port", int), ("max-model-len", int), ("dtype", str)):
        parser.add_argument(f"--{name}", type=kind)
    options = parser.parse_known_args()[0]
    torch.set_num_threads(1)
    server = StandIn(options.model, options.max_model_len, options.dtype)
    uvicorn.run(server.app(), host="127.0.0.1", port=options.port, log_level="critical", lifespan="off")


if __name__ == "__main__":
    main()
