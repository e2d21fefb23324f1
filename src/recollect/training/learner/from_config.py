"""From a configuration to a learner of this process and the engine that samples with its weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace

import torch

from recollect.config import Config, Optim
from recollect.engine import load_fitted, make_engine
from recollect.models.attention import is_ours
from recollect.models.compiled import compile_layers, worth_compiling
from recollect.models.device import pick_device, pick_dtype, thread_counts
from recollect.models.gpu_plan import take_gpu
from recollect.models.lora import halve_base, is_adapted
from recollect.models.scratch_models import SCRATCH
from recollect.models.shared_weights import is_shared, see_same, twin
from recollect.models.starting_model import starting_model
from recollect.models.vision import freeze_tower
from recollect.runs.directory import RunDirectory
from recollect.samplers.sampler import Sampler
from recollect.training.learner.adapt import adapt
from recollect.training.learner.forward import check_head
from recollect.training.learner.learner import Learner
from recollect.training.learner.local_learner import LocalLearner
from recollect.training.learner.ranks.learner_ranks import LearnerRanks
from recollect.training.learner.ranks.place_of import place_of
from recollect.training.learner.ranks.rank_settings import RankSettings
from recollect.training.learner.ranks.ranks_learner import RanksLearner
from recollect.training.learner.trained_model import TrainedModel
from recollect.training.run_nodes import RunNodes


def make_learner(
    cfg: Config,
    path: str,
    optim: Optim,
    updates: int,
    warn: Callable[[str], None] = lambda message: None,
    nodes: RunNodes | None = None,
) -> Learner:
    """The learner of a model folder; ``updates`` is the length of its schedule. Its ranks may be on ``nodes``."""
    take_gpu(cfg)
    if (place := place_of(cfg)) is not None:
        where = None if nodes is None else nodes.ranks
        shared = RunDirectory.of(cfg).path.absolute().parent if where is not None else None
        new = cfg.actor_rollout_ref.model.path in SCRATCH
        opened = starting_model(cfg, within=shared) if new else nullcontext(path)
        return RanksLearner(cfg, LearnerRanks(RankSettings(cfg, optim, updates), place, opened, warn, where))
    device, actor = pick_device(cfg.trainer.device), cfg.actor_rollout_ref.actor
    model = load_fitted(path, torch.float32, device)
    check_head(model)
    threads = thread_counts(cfg.trainer.threads, sum(p.numel() for p in model.parameters()))
    chosen = cfg.actor_rollout_ref.model
    adapt(model, chosen, chosen.path, cfg.trainer.seed, actor.freeze_vision_tower)
    dtype, sampled = (pick_dtype(name, device) for name in (actor.dtype, cfg.actor_rollout_ref.rollout.dtype))
    half = dtype == sampled == torch.bfloat16
    if half and is_adapted(model):
        halve_base(model)
        half = False
    offload, seed = actor.fsdp_config, cfg.trainer.seed
    trained = TrainedModel(
        model, optim, updates, dtype, actor.grad_clip, threads[1], offload=offload, seed=seed, half=half
    )
    if is_ours(model) and worth_compiling(model):
        compile_layers(model, trained=True)
    return LocalLearner(cfg, trained, warn)


def make_sampler(cfg: Config, learner: Learner, path: str, decode: Callable[[Sequence[int]], str]) -> Sampler:
    """The engine that samples for a learner: over the learner's own weights where this process has them in its type."""
    if not isinstance(learner, LocalLearner):
        return _apart(cfg, path, decode)
    trained, rollout, device = learner.trained, cfg.actor_rollout_ref.rollout, pick_device(cfg.trainer.device)
    dtype = pick_dtype(rollout.dtype, device)
    if trained.half:
        model = twin(trained.model)
    else:
        model = trained.model if dtype == torch.float32 else load_fitted(path, dtype, device)
        if cfg.actor_rollout_ref.actor.freeze_vision_tower:
            freeze_tower(model)
    learner.lent = is_shared(trained.model, model)
    if learner.lent:  # weights that the engine samples with are always in use
        trained.offload = replace(trained.offload, param_offload=False)
    threads = thread_counts(cfg.trainer.threads, sum(p.numel() for p in model.parameters()))[0]
    sampler = make_engine(model, decode, rollout, own=model is not trained.model, threads=threads)
    if trained.half:
        see_same(trained.model, model)  # the engine may have laid the weights out anew
    return sampler


def _apart(cfg: Config, path: str, decode: Callable[[Sequence[int]], str]) -> Sampler:
    """An engine with weights of its own, which a learner elsewhere hands over."""
    rollout, device = cfg.actor_rollout_ref.rollout, pick_device(cfg.trainer.device)
    model = load_fitted(path, pick_dtype(rollout.dtype, device), device)
    threads = thread_counts(cfg.trainer.threads, sum(p.numel() for p in model.parameters()))[0]
    return make_engine(model, decode, rollout, own=True, threads=threads)
