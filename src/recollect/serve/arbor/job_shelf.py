"""The jobs of a server: made anew, taken up again after a kill, and found by name."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.config import Config
from recollect.config.compose import compose
from recollect.files.output import refuse_unwritable
from recollect.models.checkpoints import find_checkpoint
from recollect.models.load import load_config
from recollect.models.scratch_models import SCRATCH
from recollect.samplers.bindings import RoleBinder
from recollect.samplers.checkpoint_roles import config_of
from recollect.samplers.sampler import Sampler
from recollect.serve.arbor.grpo_job import GrpoJob
from recollect.serve.arbor.job_files import RUNNING, JobRecord, all_records, slug
from recollect.serve.arbor.job_settings import job_settings, shaping
from recollect.serve.arbor.payloads import JobRequest
from recollect.serve.protocol import BadRequest, clipped
from recollect.types import BadInput

KEPT = 2  # checkpoints of a job, beside those that the client asked for


@dataclass(frozen=True)
class JobShelf:
    """The folder of all jobs, and the settings that every one of them starts from."""

    folder: Path
    settings: Sequence[str] = ()
    only: str | None = None  # the one model that is served; None: any that a client names
    warn: Callable[[str], None] = lambda message: None

    def check(self) -> None:
        """Refuse settings and folders that cannot work, before anything starts."""
        ahead = compose(None, list(self.settings)).trainer.max_staleness
        if ahead:
            raise BadInput(f"trainer.max_staleness={ahead}: clients say when their jobs sample; leave it out")
        refuse_unwritable(self.folder, f"the folder of jobs {self.folder}")

    def records(self) -> dict[str, tuple[JobRecord, Path]]:
        """Every job there is, by id."""
        return all_records(self.folder)

    def path_of(self, name: str) -> str:
        """Where the model of a name is loaded from: a job's newest checkpoint, or a model."""
        if found := self.records().get(name):
            return find_checkpoint(str(found[1]))[0]
        if self.only is not None and name != self.only:
            raise BadRequest(f"there is no model {clipped(name)}; there is {self.only}, and its jobs", "model", 404)
        try:
            path = find_checkpoint(name)[0]
            if path not in SCRATCH:
                load_config(path)
        except (BadInput, OSError, ValueError) as error:
            raise BadRequest(f"there is no model {clipped(name)}: {clipped(error)}", "model", 404) from None
        return path

    def planned(self, request: JobRequest) -> tuple[JobRecord, Config]:
        """The job that a client asks for; refused if it cannot be."""
        path = self.path_of(request.model)
        day, part = time.strftime("%Y%m%d", time.gmtime()), secrets.token_hex(3)
        name = f"{slug(request.name)}-{part}" if request.name else part
        base = request.model.split(":")[1] if request.model.startswith("grpo:") else request.model
        record = JobRecord(
            f"grpo:{base}:{name}:{day}", request.model, path, request.trainer, request.name, request.window
        )
        shaping(request)
        given: list[Any] = [("trainer.save_freq", 1), ("trainer.max_ckpt_to_keep", KEPT), ("trainer.logger", ["jsonl"])]
        given += [*self.settings, *job_settings(request), ("actor_rollout_ref.model.path", path), ("sft.steps", 0)]
        given += [("trainer.default_local_dir", str(self.folder / f"{slug(base)}-{name}-{day}"))]
        try:
            return record, compose(None, given)
        except BadInput as error:
            raise BadRequest(clipped(error)) from None

    def make(self, record: JobRecord, cfg: Config) -> GrpoJob:
        """Begin a job."""
        try:
            return GrpoJob(record, cfg, self.warn)
        except BadInput as error:
            raise BadRequest(str(error)[:300]) from None

    def unfinished(self) -> GrpoJob | None:
        """The newest job that a killed server left, taken up again."""
        left = [(record, path) for record, path in self.records().values() if record.status == RUNNING]
        if not left:
            return None
        record, path = left[-1]
        return GrpoJob(record, config_of(path, []), self.warn)

    def frozen(self, name: str) -> tuple[Sampler, Any]:
        """The sampler and the renderer of a model that is not trained now."""
        path = self.path_of(name)
        try:
            found = RoleBinder(config_of(None, list(self.settings)), None, say=self.warn).loaded(path)
        except BadInput as error:
            raise BadRequest(str(error)[:300], "model") from None
        return found.sampler, found.renderer
