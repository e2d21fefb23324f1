"""Compiling ahead: while a run loads its model on a GPU, other processes compile what its first step will need.

Each makes a model with the widths of the run's and a few of its layers, and samples or updates with it for a moment, by
the code that the run will use. What torch and triton compile stays in their caches on the disk, where the run finds it;
a note beside it says that this was done. Whatever goes wrong there costs nothing but the time that it would have saved.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import hashlib
import importlib.util
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

import recollect
from recollect.config import Config
from recollect.dist.process_keeper import die_with_parent
from recollect.models.compiled import COMPILED_FROM
from recollect.models.device import pick_device
from recollect.models.kind_check import sees
from recollect.models.load import load_config
from recollect.models.small_copy import with_layers
from recollect.packing.batch import Batch
from recollect.samplers.sampler import Sampler
from recollect.training.learner.from_config import make_learner, make_sampler
from recollect.training.learner.learner import Learner, PolicyTargets
from recollect.types import Sample, Sampling

PARTS = ("prompts", "many rows", "few rows", "updates")  # each by a process
FEW = 64  # rows up to which other kernels decode
STEPS = 48  # of a moment
LAYERS = 4  # kernels are compiled for the first layer, the second, and any other; the last one of an update differs
LARGEST = 4e9  # parameters; the processes of a larger model would need memory that the run may need
SHARE = 0.03  # of the GPU's memory, for keys and values
ROOM = 0.1  # share of the GPU's memory that a run's engine takes at least where there is room for these processes
CORES = 8  # with fewer the run would wait for what helps it
SECONDS = 150  # after which a process ends itself
SOURCES = ("engine/cuda", "training/learner", "models", "packing")  # what is compiled comes from here


class CompilingAhead:
    """The processes, which end by themselves when they are done, and with their run."""

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]] = ()) -> None:
        self.processes = processes

    def close(self) -> None:
        """End those that are not done."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


def compile_ahead(cfg: Config, path: str, stops: Sequence[int]) -> CompilingAhead:
    """Start the processes where they help: a GPU with room, cores to spare, nothing compiled before."""
    rollout = cfg.actor_rollout_ref.rollout
    if pick_device(cfg.trainer.device) != "cuda" or rollout.enforce_eager or (os.cpu_count() or 1) < CORES:
        return CompilingAhead()
    if rollout.gpu_memory_utilization < ROOM:  # others have the rest of the GPU
        return CompilingAhead()
    config = load_config(path)
    if sees(config) or not COMPILED_FROM <= parameters(config) <= LARGEST:
        return CompilingAhead()
    parts = PARTS if rows_of(cfg) > FEW else [part for part in PARTS if part != "many rows"]
    todo = [part for part in parts if not note(cfg, config, part).exists()]
    return CompilingAhead([start(part, cfg, path, stops) for part in todo])


def start(part: str, cfg: Config, path: str, stops: Sequence[int]) -> subprocess.Popen[bytes]:
    """One process, for a part of what a step needs."""
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "4", "HF_HUB_OFFLINE": "1"}
    made = subprocess.Popen(
        [sys.executable, "-m", __name__],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment,
    )  # fmt: skip
    assert made.stdin is not None
    with suppress(BrokenPipeError):
        made.stdin.write(pickle.dumps((part, cfg, path, tuple(stops))))
        made.stdin.close()
    return made


def rows_of(cfg: Config) -> int:
    """How many attempts a step samples side by side."""
    rollout = cfg.actor_rollout_ref.rollout
    return min(rollout.max_num_seqs, cfg.data.train_batch_size * rollout.n)


def parameters(config: Any) -> float:
    """About how many a model has."""
    text = config.get_text_config(decoder=True)
    width, layers = getattr(text, "hidden_size", 0), getattr(text, "num_hidden_layers", 0)
    inner = getattr(text, "intermediate_size", 0) or 4 * width
    return float(layers * width * (4 * width + 3 * inner) + getattr(text, "vocab_size", 0) * width)


def note(cfg: Config, config: Any, part: str) -> Path:
    """The file that says that a part was compiled, in the folder of what was."""
    folder = Path(os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache")
    own = Path(recollect.__file__).parent
    sources = [p.read_text() for where in SOURCES for p in sorted((own / where).rglob("*.py"))]
    packages = [f"{name} {version(name)}" for name in ("torch", "triton", "transformers")]
    rollout, actor = cfg.actor_rollout_ref.rollout, cfg.actor_rollout_ref.actor
    model = dataclasses.replace(cfg.actor_rollout_ref.model, path="")  # its shape counts
    rows = 1 << (rows_of(cfg) - 1).bit_length()
    asked = repr((model, rollout.dtype, actor.dtype, actor.use_kl_loss, cfg.sft.steps > 0, rows))
    shape = json.dumps(config.to_dict(), sort_keys=True, default=str)
    key = "\0".join([torch.cuda.get_device_name(), shape, asked, *packages, *sources])
    return folder / f"recollect-{part}-{hashlib.sha256(key.encode()).hexdigest()[:24]}"


# ---- in a process ----


def compile_part(part: str, cfg: Config, path: str, stops: tuple[int, ...]) -> None:
    """Do for a moment what a run does, with a few layers."""
    cfg, config = copy.deepcopy(cfg), load_config(path)
    cfg.actor_rollout_ref.rollout.gpu_memory_utilization = SHARE
    with tempfile.TemporaryDirectory(prefix="recollect-ahead-") as folder:
        save_few_layers(config, Path(folder), pick_device(cfg.trainer.device))
        learner = make_learner(cfg, folder, cfg.actor_rollout_ref.actor.optim, 1)
        if part == "updates":
            update_for_a_moment(cfg, learner)
            return
        sampler = make_sampler(cfg, learner, folder, lambda ids: "")
        learner.sync(sampler, 0)
        asyncio.run(sample_for_a_moment(cfg, sampler, stops, part))


def save_few_layers(config: Any, folder: Path, device: str) -> None:
    """A model with random weights, as wide as another and less deep."""
    from transformers import AutoModelForCausalLM

    text = config.get_text_config(decoder=True)
    small = type(text).from_dict(with_layers(text, LAYERS))
    with torch.device(device):
        AutoModelForCausalLM.from_config(small, dtype=torch.bfloat16).save_pretrained(folder)


async def sample_for_a_moment(cfg: Config, sampler: Sampler, stops: tuple[int, ...], part: str) -> None:
    """Rows that end one after the other, as in a step; prompts that are the same, alike, and long."""
    rollout, rows = cfg.actor_rollout_ref.rollout, rows_of(cfg)
    rows = min(rows, FEW) if part == "few rows" else rows
    how = rollout.temperature, rollout.top_p, rollout.top_k
    most = min(1000, sampler.vocabulary)
    ids = lambda count, seed: np.random.default_rng(seed).integers(3, most, size=(count,)).tolist()
    beginnings = [ids(200, task) for task in range(-(-rows // rollout.n))]
    for own in (0, 40):
        asked = [
            (beginnings[i // rollout.n] + ids(own, rows + i), Sampling(*how, tokens, (), stops, 0, str(i)))
            for i, tokens in enumerate(lengths(part, rows))
        ]
        await asyncio.gather(*(sampler.generate(prompt, sampling) for prompt, sampling in asked))
    if part == "prompts":
        long = ids(min(1500, sampler.window - 8), 2 * rows)
        await sampler.generate(long, Sampling(*how, 4, (), stops, 0, "long"))


def lengths(part: str, rows: int) -> list[int]:
    """How many tokens each row samples: two where prompts are what counts, else fewer and fewer rows are left."""
    if part == "prompts":
        return [2] * rows
    last = FEW if part == "many rows" else 0  # rows that end together
    return [STEPS if i < last else 2 + (STEPS - 2) * (rows - 1 - i) // rows for i in range(rows)]


def update_for_a_moment(cfg: Config, learner: Learner) -> None:
    """An update of SFT, if the run has any, and one of RL on a few groups."""
    actor, draw = cfg.actor_rollout_ref.actor, np.random.default_rng(0)
    ids = lambda count: draw.integers(3, min(1000, learner.facts.vocabulary), size=(count,))
    samples = []
    for group in range(max(4, actor.ppo_mini_batch_size)):
        beginning = ids(200)
        for attempt in range(cfg.actor_rollout_ref.rollout.n):
            row = np.concatenate([beginning, ids(int(draw.integers(10, 60)))])
            trained = np.arange(len(row)) >= len(beginning)
            place = group * cfg.actor_rollout_ref.rollout.n + attempt
            samples.append(Sample(row, trained, np.where(trained, -1.0, 0.0).astype(np.float32), place, group))
    if cfg.sft.steps > 0:
        apart = samples[:: cfg.actor_rollout_ref.rollout.n][: cfg.sft.batch_size]
        learner.with_optimizer(cfg.sft.optim, 1).imitate(apart)
    batch = Batch.of(samples)
    reference = learner.keep_reference() if actor.use_kl_loss else None
    known = learner.logprobs(batch) if actor.use_kl_loss or actor.ppo_epochs > 1 else None
    advantages = np.where(batch.trajectories_E % 2 > 0, 1.0, -1.0).astype(np.float32)
    learner.update(batch, PolicyTargets(advantages, known, known if actor.use_kl_loss else None), reference)


def main() -> None:
    """A process: read what is asked, compile it, and leave the note."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the run's business
    signal.alarm(SECONDS)
    die_with_parent()
    os.nice(5)
    part, cfg, path, stops = pickle.load(sys.stdin.buffer)
    compile_part(part, cfg, path, stops)
    if importlib.util.find_spec("triton") is not None:
        place = note(cfg, load_config(path), part)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()


if __name__ == "__main__":
    main()
