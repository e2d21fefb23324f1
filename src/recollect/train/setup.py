"""From a configuration to the parts that train: model, tokenizer, learner, engine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from recollect.agents.prompts import answer_prompt, update_prompt
from recollect.chat import Renderer
from recollect.config import Config, Optim
from recollect.models.load import context_window, load_config, load_model, load_tokenizer
from recollect.models.tiny import SCRATCH, save_scratch
from recollect.policies.engine import Engine
from recollect.session import Binding
from recollect.train.device import pick_device, pick_dtype, thread_counts
from recollect.train.forward import check_head
from recollect.train.learner import Learner
from recollect.types import BadInput, Message


@dataclass
class Parts:
    """What a run works with."""

    device: str
    tokenizer: Any
    renderer: Renderer
    learner: Learner
    engine: Engine

    def sync(self, version: int) -> None:
        """Give the engine the learner's weights, as the given version."""
        mine, theirs = self.learner.model, self.engine.model
        if mine is not theirs:
            with torch.no_grad():
                for target, source in zip(theirs.parameters(), mine.parameters(), strict=True):
                    target.copy_(source)
        self.engine.model.eval()
        self.engine.new_weights(version)

    def roles(self) -> dict[str, Binding]:
        """Every role played by the trained policy."""
        return {"*": Binding(self.engine, self.renderer)}


@contextmanager
def starting_model(cfg: Config) -> Iterator[str]:
    """The model that the run starts from; ``scratch`` and ``scratch_small`` are made anew from the seed."""
    path = cfg.actor_rollout_ref.model.path
    if path not in SCRATCH:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="recollect-scratch-") as folder:
        save_scratch(Path(folder), cfg.trainer.seed, *SCRATCH[path])
        yield folder


def check_window(cfg: Config, renderer: Renderer, window: int, longest_question: str) -> None:
    """Refuse limits that cannot fit the model's window, with the numbers."""
    if cfg.agent.agent_type != "recurrent":
        return
    limits = cfg.recurrent.memory.config
    key, memory = "recurrent.memory.config", limits.max_memorization_length
    asked = len(renderer.encode(longest_question))
    if asked > limits.max_prompt_length:
        raise BadInput(f"a question has {asked} tokens, more than {key}.max_prompt_length={limits.max_prompt_length}")
    text = update_prompt(limits.style, limits.layout, longest_question, "", "")
    frame = len(renderer.prompt([Message("user", text)]))
    need = frame + limits.chunk_size + 2 * memory
    if need > window:
        raise BadInput(
            f"the model's window of {window} tokens is too small: question and frame {frame} + chunk_size "
            f"{limits.chunk_size} + memory {memory} + new memory {memory} = {need}; "
            f"lower {key}.chunk_size or max_memorization_length"
        )
    frame = len(renderer.prompt([Message("user", answer_prompt(limits.style, longest_question, ""))]))
    need = frame + memory + limits.max_final_response_length
    if need > window:
        raise BadInput(
            f"the model's window of {window} tokens is too small for the answer turn: question and frame {frame} + "
            f"memory {memory} + answer {limits.max_final_response_length} = {need}"
        )


def build(cfg: Config, optim: Optim, updates: int, longest_question: str = "") -> Parts:
    """Load the model that the configuration names and make its learner and engine."""
    with starting_model(cfg) as path:
        return _build(cfg, path, optim, updates, longest_question)


def _build(cfg: Config, path: str, optim: Optim, updates: int, longest_question: str) -> Parts:
    device = pick_device(cfg.trainer.device)
    actor, rollout = cfg.actor_rollout_ref.actor, cfg.actor_rollout_ref.rollout
    tokenizer = load_tokenizer(path)
    renderer = Renderer(tokenizer)
    check_window(cfg, renderer, context_window(load_config(path)), longest_question)
    model = load_model(path, torch.float32, device)
    check_head(model)
    threads = thread_counts(cfg.trainer.threads, sum(p.numel() for p in model.parameters()))
    if cfg.actor_rollout_ref.model.enable_gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    learner = Learner(model, optim, updates, pick_dtype(actor.dtype, device), actor.grad_clip, threads[1])
    dtype = pick_dtype(rollout.dtype, device)
    sampler = model if dtype == torch.float32 else load_model(path, dtype, device)
    engine = Engine(
        sampler,
        renderer.decode,
        rollout.max_num_seqs,
        rollout.max_num_batched_tokens,
        rollout.prefix_cache_tokens,
    )
    engine.threads = threads[0]
    return Parts(device, tokenizer, renderer, learner, engine)
