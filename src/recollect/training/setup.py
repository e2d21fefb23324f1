"""From a configuration to the parts that train: model, tokenizer, learner, engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from recollect.agents.session import Binding
from recollect.agents.window import check_window, longest_completion
from recollect.chat import Renderer
from recollect.config import Config, CriticModel, Model, Optim
from recollect.config import Critic as CriticConfig
from recollect.config.roles import roles_of
from recollect.engine import Loop, load_fitted, make_engine
from recollect.engine.attention_check import fit_of
from recollect.models.attention import is_ours
from recollect.models.compiled import compile_layers, worth_compiling
from recollect.models.device import pick_device, pick_dtype, thread_counts
from recollect.models.load import EMBEDDED, context_window, load_config, load_tokenizer
from recollect.models.lora import add_adapter, copy_weights, halve_base, is_adapted
from recollect.models.shared_weights import is_shared, see_same, twin
from recollect.models.starting_model import starting_model
from recollect.models.tiny import SCRATCH
from recollect.training.learner import recompute
from recollect.training.learner.critic import Critic, ValueModel
from recollect.training.learner.forward import check_head
from recollect.training.learner.learner import Learner
from recollect.types import BadInput


@dataclass
class Parts:
    """What a run works with."""

    device: str
    tokenizer: Any
    renderer: Renderer
    learner: Learner
    engine: Loop

    def sync(self, version: int) -> None:
        """Give the engine the learner's weights, as the given version."""
        if not is_shared(self.learner.model, self.engine.model):
            with self.learner.awake():
                copy_weights(self.learner.model, self.engine.model)
        self.engine.model.eval()
        self.engine.new_weights(version)

    @property
    def note(self) -> str:
        """How the model is computed, where that is not the fast way."""
        return fit_of(self.learner.model.config).note

    @property
    def trained(self) -> Binding:
        """The trained policy, for whichever roles it plays."""
        return Binding(self.engine, self.renderer)

    def roles(self) -> dict[str, Binding]:
        """Every role played by the trained policy."""
        return {"*": self.trained}


def build_learner(cfg: Config, optim: Optim, updates: int) -> tuple[Learner, Any]:
    """The learner alone, for training without sampling, and the tokenizer."""
    with starting_model(cfg) as path:
        return _learner(cfg, path, optim, updates), load_tokenizer(path, cfg.agent.template)


def _learner(cfg: Config, path: str, optim: Optim, updates: int) -> Learner:
    device, actor = pick_device(cfg.trainer.device), cfg.actor_rollout_ref.actor
    model = load_fitted(path, torch.float32, device)
    check_head(model)
    threads = thread_counts(cfg.trainer.threads, sum(p.numel() for p in model.parameters()))
    adapt(model, cfg.actor_rollout_ref.model, cfg.actor_rollout_ref.model.path, cfg.trainer.seed)
    dtype, sampled = (pick_dtype(name, device) for name in (actor.dtype, cfg.actor_rollout_ref.rollout.dtype))
    half = dtype == sampled == torch.bfloat16
    if half and is_adapted(model):
        halve_base(model)
        half = False
    offload, seed = actor.fsdp_config, cfg.trainer.seed
    learner = Learner(model, optim, updates, dtype, actor.grad_clip, threads[1], offload=offload, seed=seed, half=half)
    if is_ours(model) and worth_compiling(model):
        compile_layers(model, trained=True)
    return learner


def _sampler(learner: Learner, path: str, dtype: torch.dtype, device: str) -> Any:
    """The model that the engine samples with: over the learner's own weights where they have its type."""
    if learner.half:
        return twin(learner.model)
    return learner.model if dtype == torch.float32 else load_fitted(path, dtype, device)


def build(cfg: Config, optim: Optim, updates: int, longest_question: str = "") -> Parts:
    """Load the model that the configuration names and make its learner and engine."""
    with starting_model(cfg) as path:
        return _build(cfg, path, optim, updates, longest_question)


def _build(cfg: Config, path: str, optim: Optim, updates: int, longest_question: str) -> Parts:
    device = pick_device(cfg.trainer.device)
    rollout = cfg.actor_rollout_ref.rollout
    tokenizer = load_tokenizer(path, cfg.agent.template)
    renderer = Renderer(tokenizer)
    trained = [role for role in roles_of(cfg) or () if cfg.roles.get(role, "trainable") == "trainable"]
    only = trained[0] if len(trained) == 1 else ""
    check_window(cfg, renderer, context_window(load_config(path)), longest_question, only)
    learner = _learner(cfg, path, optim, updates)
    sampler = _sampler(learner, path, pick_dtype(rollout.dtype, device), device)
    if is_shared(learner.model, sampler):  # weights that the engine samples with are always in use
        learner.offload = replace(learner.offload, param_offload=False)
    engine = make_engine(sampler, renderer.decode, rollout, own=sampler is not learner.model)
    if learner.half:
        see_same(learner.model, sampler)  # the engine may have laid the weights out anew
    engine.threads = thread_counts(cfg.trainer.threads, sum(p.numel() for p in sampler.parameters()))[0]
    return Parts(device, tokenizer, renderer, learner, engine)


def adapt(model: Any, cfg: Model | CriticModel, path: str, seed: int) -> Any:
    """Put in what the configuration asks for: gradient checkpointing, a LoRA adapter."""
    if cfg.enable_gradient_checkpointing:
        recompute.allow(model)
    if cfg.lora_rank > 0:
        base = "" if path in SCRATCH else path
        if base not in ("", EMBEDDED) and Path(base).expanduser().is_dir():
            base = str(Path(base).expanduser().absolute())
        add_adapter(model, cfg.lora_rank, cfg.lora_alpha, cfg.target_modules, cfg.lora_dropout, base, seed)
    return model


def build_critic(
    cfg: Config, actor: Learner, updates: int, warn: Callable[[str], None] = lambda message: None
) -> Critic:
    """The critic that the configuration asks for, beside an actor; ``updates`` is the length of its schedule."""
    critic, name = cfg.critic, cfg.critic.model.path or cfg.actor_rollout_ref.model.path
    if critic.model.share_actor:
        _check_shared(critic)
        body, owner = actor.model.base_model, actor
    else:
        with starting_model(cfg, name) as path:
            whole = load_fitted(path, torch.float32, actor.device.type)
        check_head(whole)
        if whole.config.vocab_size < actor.model.config.vocab_size:
            raise BadInput(
                f"critic.model.path={name} knows {whole.config.vocab_size} tokens and the actor "
                f"{actor.model.config.vocab_size}; the critic has to read the actor's tokens"
            )
        body, owner = adapt(whole.base_model, critic.model, name, cfg.trainer.seed), None
    learner = Learner(
        ValueModel(body),
        critic.optim,
        updates,
        actor.dtype,
        critic.grad_clip,
        actor.threads,
        offload=critic.fsdp_config,
        seed=cfg.trainer.seed,
        owner=owner,
    )
    if owner is None and is_ours(body) and worth_compiling(learner.model):
        compile_layers(learner.model, trained=True)
    ppo, prefixes = cfg.actor_rollout_ref.actor, cfg.actor_rollout_ref.model.use_remove_padding
    mini_batch = critic.ppo_mini_batch_size or ppo.ppo_mini_batch_size
    epochs = ppo.ppo_epochs if critic.ppo_epochs is None else critic.ppo_epochs
    return Critic(learner, critic, mini_batch, epochs, prefixes, ppo.loss_scale_factor or longest_completion(cfg), warn)


def _check_shared(critic: CriticConfig) -> None:
    """Refuse what a critic without a body of its own cannot have."""
    for key, asked in (
        ("model.path", critic.model.path),
        ("model.lora_rank", critic.model.lora_rank),
        ("fsdp_config.param_offload", critic.fsdp_config.param_offload),
    ):
        if asked:
            raise BadInput(
                f"critic.{key}={asked} is for a critic with a body of its own, and critic.model.share_actor=True "
                "takes the actor's; leave one of them out"
            )
