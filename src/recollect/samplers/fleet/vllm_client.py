"""What is asked of one vLLM server: completions of token ids, new weights, what it computes. Every call has a deadline.

Two kinds of trouble are told apart. `RequestRefused` is about the request: another server would say the same.
`ServerFailed` is about the server: another one can be asked.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import httpx

from recollect.policies.http_replies import Reply, TooLarge, fetch
from recollect.runtime.error_text import error_text
from recollect.samplers.fleet.weight_store import BYTES_PER_S
from recollect.samplers.fleet.weight_version import WeightVersion
from recollect.types import Sampling

LOOK_S = 10.0  # deadline of a look at a server
CONTROL_S = 60.0  # deadline of a call that moves no weights
PAUSE = "/pause?mode=abort"  # nobody waits for what may still be under way
SLEEP = "/sleep?level=1&mode=abort"  # level 2 drops the weights, and some models come back wrong from it
PROTOCOL = 2  # of inside/recollect_vllm.py
ROUNDED = 1e-3  # what a log-probability may be above 0 in a half precision
START_HINT = "start it as docs/cluster.md says"


class RequestRefused(RuntimeError):
    """The server will not do what it was asked."""


class ServerFailed(RuntimeError):
    """The server did not answer properly or in time."""


@dataclass(frozen=True)
class ServedTokens:
    """What a server sampled for one request."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop: Literal["stop", "length"]


class VllmClient:
    """One server. Its methods run in one event loop."""

    def __init__(self, url: str, http: Any, timeout_s: float) -> None:
        self.url, self.http, self.timeout_s = url.rstrip("/"), http, timeout_s
        self.workers = 1  # as it said when it was looked at

    # ---- completions ----

    async def complete(self, prompt: Sequence[int], sampling: Sampling, expected: str) -> ServedTokens:
        """Sample one completion with weights of the expected version."""
        body = {"token_ids": list(prompt), "sampling_params": parameters(sampling)}
        answer = await self._call("POST", "/inference/v1/generate", body, self.timeout_s)
        return sampled(answer, expected, sampling.max_tokens)

    # ---- weights ----

    async def begin(self) -> str:
        """Stop sampling and make ready for new weights; the name of this hand-over is sent with them."""
        await self._control(PAUSE)
        handover = secrets.token_hex(8)
        await self.ask_workers("recollect_begin", {"handover": handover}, CONTROL_S)
        await self._control("/start_weight_update")
        return handover

    async def update(self, handover: str, about: Mapping[str, Any], seconds: float) -> None:
        """Load the weights that ``about`` describes."""
        await self._control("/update_weights", {"update_info": {"handover": handover, **about}}, seconds)

    async def finish(self, weights: WeightVersion) -> None:
        """Compute with the new weights from now on, and forget what was computed with others."""
        await self._control("/finish_weight_update", {"weight_version": weights.label}, moving(weights))
        await self._forget()
        await self._control("/resume")
        await self._has(weights)

    async def verify(self, manifest: str, weights: WeightVersion) -> None:
        """Have every worker compare files with their digests."""
        for found in await self.ask_workers("recollect_verify", {"manifest": manifest}, moving(weights)):
            if problem := found.get("problem", "it did not verify the weights"):
                raise ServerFailed(f"the weights of version {weights.version} are not whole there: {problem}")

    async def join(self, group: Mapping[str, Any]) -> None:
        """Have every worker join a group in which weights are broadcast."""
        await self._control("/init_weight_transfer_engine", {"init_info": dict(group)})

    async def _forget(self) -> None:
        cleared = await self._control("/reset_prefix_cache?reset_running_requests=true")
        if cleared.get("success") is not True:
            raise ServerFailed("it kept prefixes that were computed with old weights")

    async def _has(self, weights: WeightVersion) -> None:
        if (there := await self.weights()) != weights.label:
            raise ServerFailed(f"its weights are {there}, not {weights.label}")

    async def weights(self) -> str:
        """The label of the weights that it samples with."""
        return str((await self._call("GET", "/weight_info", None, LOOK_S)).get("weight_version"))

    # ---- its memory ----

    async def sleep(self, weights: WeightVersion) -> None:
        """Move the weights to host memory and drop keys and values, so that the GPUs' memory is free."""
        await self._control(SLEEP, seconds=moving(weights))

    async def wake(self, weights: WeightVersion) -> None:
        """Take the memory back, with the weights that it had before."""
        for tag in ("weights", "kv_cache"):
            said = await self._control(f"/wake_up?tags={tag}", seconds=moving(weights))
        if said.get("status") != "awake":
            raise ServerFailed(f"it is {said.get('status')}, not awake")
        await self._forget()
        await self._has(weights)

    # ---- what it is ----

    async def healthy(self) -> bool:
        """True when it answers now."""
        try:
            return (await self._reply("GET", "/health", None, LOOK_S)).status == 200
        except ServerFailed:
            return False

    async def about(self, probe: str = "") -> dict[str, Any]:
        """What its first worker says of the model, and whether it sees a file."""
        workers = await self.ask_workers("recollect_about", {"probe": probe}, CONTROL_S)
        if workers[0].get("protocol") != PROTOCOL:
            raise RequestRefused(f"its recollect_vllm.py is of another version than this package: {START_HINT}")
        self.workers = len(workers)
        return workers[0]

    async def ask_workers(self, method: str, given: Mapping[str, str], seconds: float) -> list[dict[str, Any]]:
        """Call a method of every worker."""
        reply = await self._reply("POST", "/collective_rpc", {"method": method, "kwargs": dict(given)}, seconds)
        if reply.status == 404:
            raise RequestRefused(f"it has no route /collective_rpc: {START_HINT}, with VLLM_SERVER_DEV_MODE=1")
        if reply.status != 200:
            raise RequestRefused(f"its workers have no method {method}: {START_HINT}, with --worker-extension-cls")
        found = _object(reply).get("results")
        if not isinstance(found, list) or not found or not all(isinstance(row, dict) for row in found):
            raise ServerFailed(f"its workers gave no proper answer to {method}")
        return found

    # ---- calls ----

    async def _control(self, path: str, body: Any = None, seconds: float | None = None) -> dict[str, Any]:
        reply = await self._reply("POST", path, body, CONTROL_S if seconds is None else seconds)
        if reply.status != 200:  # whatever was refused, this server is not as it should be
            raise ServerFailed(f"{path.partition('?')[0]} was answered with {reply.status}: {reply.reason()}")
        return _object(reply)

    async def _call(self, method: str, path: str, body: Any, seconds: float) -> dict[str, Any]:
        reply = await self._reply(method, path, body, seconds)
        if reply.status == 404:
            raise RequestRefused(f"it has no route {path}: {START_HINT}")
        if 400 <= reply.status < 500 and reply.status not in (408, 425, 429):
            raise RequestRefused(f"it refused a call with {reply.status}: {reply.reason()}")
        if reply.status != 200:
            raise ServerFailed(f"it answered {reply.status}: {reply.reason()}")
        return _object(reply)

    async def _reply(self, method: str, path: str, body: Any, seconds: float) -> Reply:
        try:
            async with asyncio.timeout(seconds):
                return await fetch(self.http, method, self.url + path, body)
        except TimeoutError:
            raise ServerFailed(f"no answer to {path.partition('?')[0]} within {seconds:g} s") from None
        except (httpx.TransportError, httpx.DecodingError, TooLarge) as error:
            raise ServerFailed(f"{type(error).__name__} {error_text(error)}".strip()) from None


def moving(weights: WeightVersion) -> float:
    """The deadline of a call that moves the weights."""
    return CONTROL_S + weights.size / BYTES_PER_S


def parameters(sampling: Sampling) -> dict[str, Any]:
    """vLLM's name for how to sample; noise depends on the request's key alone, whichever server it goes to."""
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k if sampling.top_k > 0 else 0,
        "max_tokens": sampling.max_tokens,
        "seed": sampling.noise_seed,
        "logprobs": 0,  # those of the sampled ids alone
        "stop": list(sampling.stop),
        "stop_token_ids": list(sampling.stop_ids),
        "ignore_eos": True,  # only the ids of the request end a turn
        "detokenize": bool(sampling.stop),
        "skip_special_tokens": True,
        "include_stop_str_in_output": True,
    }


def sampled(answer: Mapping[str, Any], expected: str, most: int) -> ServedTokens:
    """A server's completion, if it is whole and all of it was sampled with the expected weights.

    ``most`` is the number of tokens that were asked for.
    """
    try:
        choice = answer["choices"][0]
        ids = tuple(choice["token_ids"])
        logprobs = tuple(row["logprob"] for row in choice["logprobs"]["content"])
        spans = [(span["version"], span["start"], span["end"]) for span in choice["weight_versions"] or ()]
        stop = choice["finish_reason"]
        whole = all(type(i) is int and i >= 0 for i in ids) and all(type(x) is float for x in logprobs)
    except (KeyError, IndexError, TypeError):
        raise ServerFailed("its answer is not a whole completion") from None
    if stop not in ("stop", "length"):
        raise ServerFailed(f"it ended a completion with {stop}")
    if not whole or len(ids) != len(logprobs) or not all(math.isfinite(x) and x < ROUNDED for x in logprobs):
        raise ServerFailed("its answer is not a whole completion with log-probabilities")
    if not 0 < len(ids) <= most:
        raise ServerFailed(f"it gave {len(ids)} tokens, and {most} were asked for")
    if spans != [(expected, 0, len(ids))]:
        said = ", ".join(sorted({str(version) for version, _, _ in spans})) or "no weights that it names"
        raise ServerFailed(f"it sampled with {said}, not with {expected}")
    return ServedTokens(ids, logprobs, stop)


def _object(reply: Reply) -> dict[str, Any]:
    try:
        found = reply.json() if reply.text.strip() else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ServerFailed("its answer is no JSON object")
    return found
