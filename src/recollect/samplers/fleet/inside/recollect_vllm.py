"""Loaded by vLLM's workers (`--worker-extension-cls recollect_vllm.WorkerExtension`): weights and facts.

vLLM may run from an environment without recollect, so this file needs vLLM, torch and safetensors alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

PROTOCOL = 1  # of what the trainer asks of this file
BACKEND = "recollect"
KEEPER = "RECOLLECT_KEEPER"  # the process that keeps this server; the server ends with it
LOOK_S = 1.0
READ = 1 << 22  # bytes that are hashed at once


@dataclass
class NothingToAgree(WeightTransferInitInfo):
    """Files need no rendezvous."""


@dataclass
class WeightFiles(WeightTransferUpdateInfo):
    """Where the weights are."""

    folder: str
    files: list[str]


class FileTransfer(WeightTransferEngine[NothingToAgree, WeightFiles]):
    """Loads weights from safetensors files that the trainer has written and this worker has verified."""

    init_info_cls = NothingToAgree
    update_info_cls = WeightFiles

    def init_transfer_engine(self, init_info: NothingToAgree) -> None:
        """Nothing to do."""

    def start_weight_update(self) -> None:
        """Let layers take weights in the form of a checkpoint."""
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        self.loaded: set[str] = set()
        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: WeightFiles) -> None:
        """Load every tensor of the files."""
        for name in update_info.files:
            found = self.model.load_weights(self._tensors(Path(update_info.folder) / name))
            self.loaded |= set(found or ())

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Load, and wait for the device where there is one."""
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def finish_weight_update(self) -> None:
        """Bring the layers into the form that they compute with; refuse to go on with any old weight."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)
        head, words = self._head()
        if (head is not None and head.weight is words.weight) or self._tied():
            self._prepare(head)
        missing = {name for name, _ in self.model.named_parameters()} - self.loaded
        missing = {name for name in missing if not (self._tied() and name.startswith("lm_head."))}
        if self.loaded and missing:
            raise RuntimeError(f"{len(missing)} weights were not in the files, {min(missing)} among them")

    def shutdown(self) -> None:
        """Nothing is held."""

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


WeightTransferEngineFactory.register_engine(BACKEND, FileTransfer)


class WorkerExtension:
    """What the trainer may ask of a worker by `/collective_rpc`, beside vLLM's own methods."""

    vllm_config: Any

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
