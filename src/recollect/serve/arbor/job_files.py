"""The files of a job beside those of its run directory: what it is, the round that is open, what was posted to it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from recollect.files.output import write_atomic
from recollect.serve.arbor.job_settings import idle_settings
from recollect.serve.arbor.payloads import JobRequest

JOB, ROUND, POSTED = "job.json", "round.json", "posted.jsonl"
RUNNING, SUCCEEDED, CANCELLED, FAILED = "running", "succeeded", "cancelled", "failed"


@dataclass
class JobRecord:
    """What is known of a job without its weights."""

    id: str
    model: str  # what the client asked to train
    path: str  # where that was loaded from
    trainer: Mapping[str, Any]
    name: str = ""
    window: int | None = None
    status: str = RUNNING
    reason: str = ""  # why it ended, where it was not the client's wish
    checkpoints: dict[str, dict[str, Any]] = field(default_factory=dict)  # that the client asked for, by name
    last_checkpoint: str | None = None
    step: int = 0  # updates so far
    fidelity: Mapping[str, Any] = field(default_factory=dict)
    folder: str = ""

    @property
    def request(self) -> JobRequest:
        """What the client asked for."""
        return JobRequest(self.model, self.trainer, self.name, self.window)

    def answer(self) -> dict[str, Any]:
        """What a call about the job is answered with; of one whose model is loaded, some of it is newer."""
        return {
            "job_id": self.id,
            "status": self.status,
            "current_model": self.id,
            "checkpoints": self.checkpoints,
            "last_checkpoint": self.last_checkpoint,
            "pending_batch_ids": [],
            "step": self.step,
            "fidelity": self.fidelity,
            "settings_without_effect": idle_settings(self.request),
            "folder": self.folder,
        }


@dataclass(frozen=True)
class JobFiles:
    """The folder of a job."""

    folder: Path

    def write(self, record: JobRecord) -> None:
        """Keep what is known of the job."""
        write_atomic(self.folder / JOB, json.dumps(asdict(record), indent=2) + "\n")

    def write_round(self, state: Mapping[str, Any]) -> None:
        """Keep the state of the open round."""
        write_atomic(self.folder / ROUND, json.dumps(state) + "\n")

    def read_round(self) -> dict[str, Any] | None:
        """The state of the round that was open."""
        try:
            return dict(json.loads((self.folder / ROUND).read_text()))
        except (OSError, ValueError):
            return None

    def add_posted(self, number: int, batch: int | None, body: Mapping[str, Any]) -> None:
        """Keep a posted group of a round."""
        row = {"round": number, "batch_id": batch, "batch": body["batch"], "metrics": body.get("metrics")}
        with (self.folder / POSTED).open("a") as file:
            file.write(json.dumps(row) + "\n")

    def keep_posted(self, number: int) -> None:
        """Forget what was posted before a round."""
        rows = [row for row in self.posted() if row["round"] >= number]
        write_atomic(self.folder / POSTED, "".join(json.dumps(row) + "\n" for row in rows))

    def posted(self) -> Iterator[dict[str, Any]]:
        """What was posted; the last line of a killed server may be cut."""
        path = self.folder / POSTED
        for line in path.read_text().splitlines() if path.is_file() else []:
            try:
                yield dict(json.loads(line))
            except ValueError:
                return


def read_record(folder: Path) -> JobRecord | None:
    """The job of a folder; None where there is none that can be read."""
    try:
        row = json.loads((folder / JOB).read_text())
        return JobRecord(**row)
    except (OSError, ValueError, TypeError):
        return None


def all_records(folder: Path) -> dict[str, tuple[JobRecord, Path]]:
    """Every job below a folder, by id, the oldest first."""
    found = sorted(folder.glob(f"*/{JOB}"), key=lambda path: path.stat().st_mtime)
    read = [(record, path.parent) for path in found if (record := read_record(path.parent)) is not None]
    return {record.id: (record, path) for record, path in read}


def slug(text: str) -> str:
    """A text as a part of a folder's name."""
    return re.sub(r"[^A-Za-z0-9.-]+", "-", text).strip("-.")[-60:] or "model"
