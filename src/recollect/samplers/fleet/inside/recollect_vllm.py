"""Loaded by vLLM's workers (`--worker-extension-cls recollect_vllm.WorkerExtension`): weights and facts.

vLLM may run from an environment without recollect, so this file needs vLLM, torch, safetensors and the file beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from recollect_broadcast import BroadcastGroup, Meeting, received
from safetensors import safe_open
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

PROTOCOL = 2  # of what the trainer asks of this file
BACKEND = "recollect"
KEEPER = "RECOLLECT_KEEPER"  # the process that keeps this server; the server ends with it
LOOK_S = 1.0
READ = 1 << 22  # bytes that are hashed at once


@dataclass
class GroupToJoin(WeightTransferInitInfo):
    """Where the sender of broadcasts is met; files need no rendezvous."""

    address: str
    port: int
    first: int  # the rank of this server's first worker
    size: int
    host: str
    limit_s: float


@dataclass
class NewWeights(WeightTransferUpdateInfo):
    """Where the weights are: in files, or in buckets that are broadcast now."""

    handover: str
    folder: str = ""
    files: list[str] = field(default_factory=list)
    buckets: list[dict[str, Any]] = field(default_factory=list)


class WeightTransfer(WeightTransferEngine[GroupToJoin, NewWeights]):
    """Loads weights that are what the trainer has sent: files that this worker has verified, or buckets."""

    init_info_cls = GroupToJoin
    update_info_cls = NewWeights
    handover = ""  # what the trainer calls the present one; it ends with the next
    group: BroadcastGroup | None = None

    def init_transfer_engine(self, init_info: GroupToJoin) -> None:
        """Join the sender of broadcasts; the group before is left."""
        self.shutdown()
        self.group = BroadcastGroup(
            Meeting(
                init_info.address,
                init_info.port,
                init_info.first + int(self.parallel_config.rank),
                init_info.size,
                init_info.host,
                init_info.limit_s,
                str(self.device),
            )
        )

    def start_weight_update(self) -> None:
        """Let layers take weights in the form of a checkpoint."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        self.loaded: set[str] = set()
        self.given = 0
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: NewWeights) -> None:
        """Load every tensor."""
        if update_info.handover != self.handover:
            raise RuntimeError("another hand-over of weights has begun since")
        for tensors in self._sources(update_info):
            found = self.model.load_weights(self._counted(tensors))
            self.loaded |= set(found or ())

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load, and wait for the device where there is one."""
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def finish_weight_update(self) -> None:
        """Bring the layers into the form that they compute with; refuse to go on with any old weight."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        if not self.given:
            raise RuntimeError("another hand-over of weights has begun since")
        finalize_layerwise_reload(self.model, self.model_config)
        head, words = self._head()
        if (head is not None and head.weight is words.weight) or self._tied():
            self._prepare(head)
        missing = {name for name, _ in self.model.named_parameters()} - self.loaded
        missing = {name for name in missing if not (self._tied() and name.startswith("lm_head."))}
        if self.loaded and missing:
            raise RuntimeError(f"{len(missing)} weights were not handed over, {min(missing)} among them")

    def shutdown(self) -> None:
        """Leave the group."""
        group, self.group = self.group, None
        if group is not None:
            group.close()

    def _sources(self, info: NewWeights) -> Iterator[Iterator[tuple[str, torch.Tensor]]]:
        """The tensors of every file and bucket."""
        for name in info.files:
            yield self._tensors(Path(info.folder) / name)
        for about in info.buckets:
            if self.group is None:
                raise RuntimeError("this worker has joined no group")
            yield received(self.group, about, self.device)

    def _counted(self, tensors: Iterator[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        for named in tensors:
            self.given += 1
            yield named

    def _tensors(self, path: Path) -> Iterator[tuple[str, torch.Tensor]]:
        with safe_open(str(path), framework="pt") as file:
            for name in file.keys():  # noqa: SIM118
                yield name, file.get_tensor(name).to(self.device)

    def _head(self) -> tuple[Any, Any]:
        inner = getattr(self.model, "model", None)
        return getattr(self.model, "lm_head", None), getattr(inner, "embed_tokens", None)

    def _tied(self) -> bool:
        return bool(getattr(self.model_config.hf_text_config, "tie_word_embeddings", False))

    def _prepare(self, head: Any) -> None:
        """A head that shares the embedding keeps a packed copy on some devices: make it anew."""
        method = getattr(head, "quant_method", None)
        if method is not None:
            method.process_weights_after_loading(head)


WeightTransferEngineFactory.register_engine(BACKEND, WeightTransfer)


class WorkerExtension:
    """What the trainer may ask of a worker by `/collective_rpc`, beside vLLM's own methods."""

    vllm_config: Any
    weight_transfer_engine: Any
    _weight_update_active: bool

    def recollect_about(self, probe: str = "") -> dict[str, Any]:
        """What this server computes, and whether it sees a file that the trainer has written."""
        model = self.vllm_config.model_config
        return {
            "protocol": PROTOCOL,
            "config": json.loads(json.dumps(model.hf_text_config.to_dict(), default=str)),
            "dtype": str(model.dtype).removeprefix("torch."),
            "window": int(model.max_model_len),
            "logprobs_mode": str(model.logprobs_mode),
            "rows": int(self.vllm_config.scheduler_config.max_num_seqs),
            "backend": getattr(self.vllm_config.weight_transfer_config, "backend", ""),
            "sees": _text(probe),
        }

    def recollect_begin(self, handover: str) -> dict[str, str]:
        """A hand-over of weights begins. One that was left in the middle, as by a trainer that was killed, is over."""
        if self._weight_update_active:
            self._weight_update_active = False
            self.weight_transfer_engine.reset_weight_update_target()
        self.weight_transfer_engine.handover = handover
        return {"handover": handover}

    def recollect_verify(self, manifest: str) -> dict[str, str]:
        """Read the files of a version and compare their digests; a problem is said, not raised."""
        try:
            folder, files = (found := json.loads(manifest))["folder"], found["files"]
            for name, (size, digest) in files.items():
                _compare(Path(folder) / name, size, digest)
        except (OSError, ValueError, KeyError) as error:
            return {"problem": f"{type(error).__name__}: {error}"}
        return {"problem": ""}


def _text(path: str) -> str:
    try:
        return Path(path).read_text()[:100] if path else ""
    except (OSError, UnicodeDecodeError):
        return ""


def _compare(path: Path, size: int, digest: str) -> None:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(READ):
            found.update(part)
    if path.stat().st_size != size or found.hexdigest() != digest:
        raise ValueError(f"{path} is not the file that was written")


def _end_with(keeper: int) -> None:
    """End this server's processes when its keeper is gone."""
    while _alive(keeper):
        time.sleep(LOOK_S)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _alive(process: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked about since is a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return not Path("/proc/self").exists()


if (_keeper := os.environ.get(KEEPER, "")).isdigit():
    threading.Thread(target=_end_with, args=(int(_keeper),), daemon=True).start()
