"""A server whose model clients can train: Arbor's routes beside those of the OpenAI protocol.

One model is loaded at a time. While a job is open the server samples with its newest weights; an update waits until
nobody samples, and requests that come meanwhile wait for it.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from recollect.runtime.threads import in_thread
from recollect.serve.arbor.gate import Gate
from recollect.serve.arbor.grpo_job import GrpoJob
from recollect.serve.arbor.job_files import CANCELLED, RUNNING, JobRecord
from recollect.serve.arbor.job_shelf import JobShelf
from recollect.serve.arbor.no_model import NoModel
from recollect.serve.arbor.payloads import job_name, job_request
from recollect.serve.bodies import parsed
from recollect.serve.limits import ServeLimits
from recollect.serve.protocol import BadRequest, CompletionRequest, clipped, plain_name
from recollect.serve.server import Server
from recollect.types import Completion

GRPO = "/v1/fine_tuning/grpo"


class TrainableServer(Server):
    """The routes over a model that jobs train."""

    def __init__(self, shelf: JobShelf, limits: ServeLimits = ServeLimits(), key: str = "") -> None:
        nothing: Any = None
        super().__init__(NoModel(), nothing, "", limits, key)
        self.shelf, self.gate, self.busy = shelf, Gate(), asyncio.Lock()
        self.job: GrpoJob | None = None
        self.under_way: set[asyncio.Task[Any]] = set()

    def take_up(self) -> str:
        """Go on with the job that a killed server left, or load the model that is served; returns its name."""
        if (job := self.shelf.unfinished()) is not None:
            if job.rounds.complete:
                job.train()
            self._serve_job(job)
        elif self.shelf.only is not None:
            sampler, renderer = self.shelf.frozen(self.shelf.only)
            self.use(sampler, renderer, self.shelf.only)
        return self.name

    def routes(self) -> list[Route]:
        """What may be asked for."""
        added = {
            f"{GRPO}/initialize": self.initialize,
            f"{GRPO}/status": self.status,
            f"{GRPO}/step": self.step,
            f"{GRPO}/update_model": self.status,
            f"{GRPO}/checkpoint": self.checkpoint,
            f"{GRPO}/cancel": self.cancel,
            f"{GRPO}/terminate": self.terminate,
            "/v1/chat/launch": self.launch,
            "/v1/chat/kill": self.kill,
        }
        return [*super().routes(), *(Route(path, self._guarded(f), methods=["POST"]) for path, f in added.items())]

    # ---- models ----

    async def models(self, request: Request) -> Response:
        known = dict.fromkeys([*filter(None, [self.name, self.shelf.only]), *self.shelf.records()])
        return JSONResponse({"object": "list", "data": [self._card() | {"id": name} for name in known]})

    async def model(self, request: Request) -> Response:
        name = plain_name(request.path_params["name"])
        if name != self.name:
            await in_thread(self.shelf.path_of, {"name": name})
        return JSONResponse(self._card() | {"id": name})

    async def launch(self, request: Request) -> Response:
        await self._ready((await self._body(request)).get("model"))
        return JSONResponse({"message": f"{self.name} is loaded"})

    async def kill(self, request: Request) -> Response:
        await self._body(request)
        async with self.busy:
            self._refuse_open("the model cannot be unloaded")
            async with self.gate.alone():
                self._unload()
        return JSONResponse({"message": "no model is loaded"})

    async def _ready(self, given: Any) -> None:
        """Have the model loaded that a request names."""
        if given is not None and not isinstance(given, str):
            raise BadRequest("model must be a text", "model")
        name = self._meant(given)
        if name == self.name:
            return
        async with self.busy:
            if name == self.name:
                return
            await in_thread(self.shelf.path_of, {"name": name})
            self._refuse_open(f"{clipped(name)} cannot be served meanwhile")
            async with self.gate.alone():
                self._unload()
                sampler, renderer = await in_thread(self.shelf.frozen, {"name": name})
                self.use(sampler, renderer, name)

    def _meant(self, given: str | None) -> str:
        name = self.name or self.shelf.only if given is None else given
        if not name:
            raise BadRequest("model must name a model", "model")
        return name if name in (self.name, self.shelf.only) else plain_name(name)

    def _refuse_open(self, what: str) -> None:
        if self.job is not None and self.job.record.status == RUNNING:
            raise BadRequest(f"job {self.job.record.id} is open: {what}; end it first", "model", 409)

    def _unload(self) -> None:
        nothing: Any = None
        self.job = None
        self.use(NoModel(), nothing, "")
        gc.collect()

    def _serve_job(self, job: GrpoJob) -> None:
        self.job = job
        self.use(job.policy.sampler, job.policy.renderer, job.record.id, job.record.window)

    # ---- sampling ----

    async def _asked(self, request: Request, read: Callable[..., CompletionRequest]) -> CompletionRequest:
        body = await self._body(request)
        await self._ready(body.get("model"))
        owner = self.sampler
        asked = await in_thread(partial(self._read, body, read), {})
        self._refuse_other(owner)
        return replace(asked, owner=owner)

    @asynccontextmanager
    async def _turn(self, asked: CompletionRequest) -> AsyncIterator[None]:
        async with self.gate.shared():
            self._refuse_other(asked.owner)
            yield

    def _refuse_other(self, owner: object) -> None:
        if self.sampler is not owner:
            raise BadRequest("another model was loaded meanwhile; ask again", "model", 503)

    def _sampled(self, asked: CompletionRequest, done: Sequence[Completion]) -> None:
        if self.job is None or self.job.record.status != RUNNING or not asked.chat:
            return
        for i, completion in enumerate(done):
            self.job.note(asked.messages, asked.prompts[i // asked.n], asked.sampling, completion)

    # ---- jobs ----

    async def initialize(self, request: Request) -> Response:
        asked = job_request(await self._body(request))
        async with self.busy:
            record, cfg = await in_thread(self.shelf.planned, {"request": asked})
            async with self.gate.alone():
                if self.job is not None:
                    await in_thread(self.job.end, {"status": CANCELLED, "reason": f"{record.id} began"})
                self._unload()
                self._serve_job(await in_thread(self.shelf.make, {"record": record, "cfg": cfg}))
        return self._answer()

    async def status(self, request: Request) -> Response:
        found = self._found(await self._body(request))
        if isinstance(found, GrpoJob) and found.record.status == RUNNING and not found.training:
            async with self.busy:
                found.ask()
        return self._answer(found)

    async def step(self, request: Request) -> Response:
        body = await self._body(request)
        async with self.busy:
            job = self._open_job(body)
            if await in_thread(job.post, {"body": body}):
                await self._trained(job)
        return self._answer(job)

    async def checkpoint(self, request: Request) -> Response:
        body = await self._body(request)
        async with self.busy:
            job = self._open_job(body)
            given = {"name": body.get("checkpoint_name"), "metadata": body.get("metadata")}
            async with self.gate.alone():
                await in_thread(job.keep_checkpoint, given)
        return self._answer(job)

    async def cancel(self, request: Request) -> Response:
        return await self._close(request, CANCELLED)

    async def terminate(self, request: Request) -> Response:
        return await self._close(request)

    async def _close(self, request: Request, *status: str) -> Response:
        """End a job; groups of a round that is not complete are trained first, unless it is cancelled."""
        body = await self._body(request)
        async with self.busy:
            found = self._found(body)
            if isinstance(found, GrpoJob) and found.record.status == RUNNING:
                if found.rounds.posted and not status:
                    await self._trained(found)
                async with self.gate.alone():
                    await in_thread(partial(found.end, *status), {})
        return self._answer(found)

    async def _trained(self, job: GrpoJob) -> None:
        """Train on the posted round; a client that goes away does not stop it."""
        task = asyncio.ensure_future(self._train(job))
        self.under_way.add(task)
        task.add_done_callback(self.under_way.discard)
        await asyncio.shield(task)

    async def _train(self, job: GrpoJob) -> None:
        job.training = True  # from now on nothing is pending
        try:
            async with self.gate.alone():
                await in_thread(job.train, {})
        finally:
            job.training = False

    def _found(self, body: dict[str, Any]) -> GrpoJob | JobRecord:
        """The job that a call is about: loaded, or what is known of it."""
        name = job_name(body)
        if self.job is not None and name in (None, self.job.record.id):
            return self.job
        if name is None:
            raise BadRequest("there is no open job; initialize one first", "job_id", 404)
        if (known := self.shelf.records().get(name)) is None:
            raise BadRequest(f"there is no job {clipped(name)}", "job_id", 404)
        return known[0]

    def _open_job(self, body: dict[str, Any]) -> GrpoJob:
        found = self._found(body)
        if isinstance(found, GrpoJob):
            return found
        why = f" ({found.reason})" if found.reason else ""
        raise BadRequest(f"job {clipped(found.id)} has {found.status}{why}", "job_id", 409)

    def _answer(self, found: GrpoJob | JobRecord | None = None) -> Response:
        found = found or self.job
        assert found is not None
        return JSONResponse(found.answer())

    async def _body(self, request: Request) -> dict[str, Any]:
        return await self._in_lane(request, partial(_read_body, marks=self.bounds.marks))


def _read_body(data: bytearray, marks: int) -> dict[str, Any]:
    """The object of a body; an empty body is an empty object."""
    return parsed(data, marks) if data.strip() else {}
