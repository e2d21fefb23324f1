"""What training clients post, read and checked: the settings of a job, and groups of rewarded completions.

Clients differ in shape: newer ones put the trainer's settings under ``trainer_config``, older ones beside ``model``.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from recollect.chat import Renderer
from recollect.serve.protocol import BadRequest, clipped, integer, plain_name, read_messages
from recollect.types import Message

AROUND = {"model", "trainer_config", "inference_config", "gpu_config", "run_name", "suffix"}  # of an initialize body
MOST_GENERATIONS = 1024
MOST_METRICS = 256  # names of numbers that come with a group


@dataclass(frozen=True)
class JobRequest:
    """The body of an initialize call."""

    model: str
    trainer: Mapping[str, Any]  # the trainer's settings by the client's names
    name: str = ""  # what the client calls the job
    window: int | None = None  # tokens of the longest sequence

    @property
    def generations(self) -> int:
        """Completions of one group."""
        return int(self.trainer["num_generations"])


@dataclass(frozen=True)
class PostedCompletion:
    """A completion with its reward, as a client tells it; its text need not be what was sampled."""

    messages: tuple[Message, ...]
    text: str
    reward: float


@dataclass(frozen=True)
class PostedGroup:
    """The completions that are compared with each other."""

    completions: tuple[PostedCompletion, ...]
    metrics: Mapping[str, float] = field(default_factory=dict)
    digest: str = ""  # of what was posted


def job_request(body: Mapping[str, Any]) -> JobRequest:
    """An initialize call of any client."""
    model = plain_name(body.get("model"))
    if not model:
        raise BadRequest("model must name the model to train", "model")
    nested = body.get("trainer_config")
    given = {key: value for key, value in body.items() if key not in AROUND} if nested is None else nested
    if not isinstance(given, Mapping):
        raise BadRequest("trainer_config must be an object", "trainer_config")
    if nested is not None and (unknown := sorted(set(body) - AROUND)):
        raise BadRequest(f"{clipped(unknown[0])} is no part of an initialize call", clipped(unknown[0]))
    trainer = {key: value for key, value in given.items() if value is not None}
    if "num_generations" not in trainer:
        raise BadRequest("num_generations is missing: the completions of one group", "num_generations")
    integer(trainer, "num_generations", 2, 2, MOST_GENERATIONS)
    inference = body.get("inference_config") or {}
    if not isinstance(inference, Mapping):
        raise BadRequest("inference_config must be an object", "inference_config")
    windows = [integer(trainer, key, 0, 1, 1 << 30) for key in ("max_seq_len", "max_context_length") if key in trainer]
    windows += [integer(inference, "max_seq_len", 0, 1, 1 << 30)] if inference.get("max_seq_len") else []
    name = body.get("run_name") or body.get("suffix") or ""
    if not isinstance(name, str):
        raise BadRequest("run_name must be a text", "run_name")
    return JobRequest(model, trainer, name, min(windows, default=None))


def job_name(body: Mapping[str, Any]) -> str | None:
    """The job that a call is about; older clients name none."""
    given = body.get("job_id")
    if given is not None and not isinstance(given, str):
        raise BadRequest("job_id must be a text", "job_id")
    return plain_name(given) or None


def posted_group(body: Mapping[str, Any], size: int, renderer: Renderer) -> PostedGroup:
    """The group of a step call, which has ``size`` completions."""
    rows = body.get("batch")
    if not isinstance(rows, list) or not rows:
        raise BadRequest("batch must be a list of completions with rewards", "batch")
    if len(rows) != size:
        raise BadRequest(f"batch has {len(rows)} completions, and the job has num_generations={size}", "batch")
    made = tuple(_completion(row, f"batch[{i}]", renderer) for i, row in enumerate(rows))
    digest = hashlib.blake2b(json.dumps(rows, sort_keys=True).encode(), digest_size=16).hexdigest()
    return PostedGroup(made, _metrics(body.get("metrics")), digest)


def batch_number(body: Mapping[str, Any]) -> int | None:
    """The pending id that a group fills; older clients name none."""
    return None if body.get("batch_id") is None else integer(body, "batch_id", 0, 0, 1 << 62)


def _completion(row: Any, where: str, renderer: Renderer) -> PostedCompletion:
    if not isinstance(row, Mapping):
        raise BadRequest(f"{where} must be an object with messages, completion and reward", "batch")
    messages, said, reward = (row.get(key) for key in ("messages", "completion", "reward"))
    if not isinstance(messages, list) or not messages:
        raise BadRequest(f"{where}.messages must be a list with at least one message", "batch")
    if not isinstance(said, Mapping) or not isinstance(said.get("content"), str):
        raise BadRequest(f"{where}.completion must be {{role, content}} with a text", "batch")
    if not _is_number(reward):
        raise BadRequest(f"{where}.reward must be a finite number", "batch")
    read = read_messages(messages, renderer)
    if any(message.images for message in read):
        raise BadRequest(f"{where}.messages hold images, which are not trained through this server", "batch")
    return PostedCompletion(tuple(read), said["content"], float(reward))


def _metrics(given: Any) -> dict[str, float]:
    """What a client reports beside a group; only numbers are kept."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise BadRequest("metrics must be an object", "metrics")
    if len(given) > MOST_METRICS:
        raise BadRequest(f"metrics must have at most {MOST_METRICS} names", "metrics")
    return {str(k)[:64]: float(v) for k, v in given.items() if _is_number(v)}


def _is_number(value: Any) -> TypeGuard[float]:
    """Whether a value is a finite number; JSON has whole numbers that no floating-point number can be."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max
