"""The learner as each rank has it: the one of a single process, over weights that are spread over all of them.

All ranks are called alike, with whole batches. The first one writes the weights, all of them their moments.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from recollect.config import Config, Optim
from recollect.engine import load_fitted
from recollect.models.checkpoints import is_model
from recollect.models.device import pick_dtype
from recollect.models.lora import ADAPTER, adapter_weights, is_adapted, plain_weights, save_adapter
from recollect.models.scratch_models import SCRATCH
from recollect.training.learner.critic import HEAD, LocalCritic, make_critic
from recollect.training.learner.local_learner import LocalLearner, LocalPolicy, keep_base
from recollect.training.learner.optimizer_files import FOLDER, load_optimizer, save_optimizer
from recollect.training.learner.ranks.place_of import CRITIC_SIZE, shards_of
from recollect.training.learner.ranks.rank_world import RankWorld
from recollect.training.learner.ranks.sharded_weights import (
    copy_parts,
    gathered,
    local,
    mine_of,
    plain_stream,
    read_sharded,
)
from recollect.training.learner.token_budget import Budget, MicroBatching
from recollect.training.learner.trained_model import TrainedModel, reference_of
from recollect.training.learner.weight_files import OPTIMIZER
from recollect.training.learner.world import World
from recollect.types import BadInput


class RankPolicy(LocalPolicy):
    """A policy that all ranks hold together."""

    def load_weights(self, folder: Path) -> None:
        """Take the weights of a checkpoint."""
        self.trained.settle()
        read_sharded(folder, self.trained.model)


class RankLearner(RankPolicy, LocalLearner):
    """The policy that the ranks train.

    ``path`` is the folder that its model was loaded from, ``head`` the value head on its body if a critic shares it.
    """

    def __init__(self, cfg: Config, trained: TrainedModel, path: str, head: nn.Linear | None = None) -> None:
        LocalLearner.__init__(self, cfg, trained)
        self.path, self.head = path, head
        for budget in (self.cut.budget, self.update_cut.budget, self.imitation):
            budget.floor = budget.tokens  # one rank alone cannot try again: the driver starts all of them anew

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes files."""
        return self.trained.world.rank == 0

    def keep_frozen(self) -> RankPolicy:
        """A frozen copy of the policy as it is now."""
        ref = self.cfg.actor_rollout_ref.ref
        budget = Budget(ref.log_prob_max_token_len_per_gpu)
        cut = MicroBatching(budget, ref.log_prob_micro_batch_size_per_gpu, self.cut.share, self.cut.part)
        mine = self.trained
        if is_adapted(mine.model):
            return RankPolicy(reference_of(mine), cut)
        model = load_fitted(self.path, torch.float32, "cpu").requires_grad_(False)
        vars(model).update({k: v for k, v in vars(mine.model).items() if k == "recollect_whole_head"})
        frozen = TrainedModel(model, mine.optim, 1, mine.dtype, threads=mine.threads, frozen=True, world=mine.world)
        mine.settle()
        copy_parts(frozen.model, mine.model)
        return RankPolicy(frozen, cut)

    def make_critic(self, updates: int) -> RankCritic:
        """The critic that the configuration asks for."""
        head = self.head if self.cfg.critic.model.share_actor else None
        cfg, asked = self.cfg, self.cfg.critic.model.path or self.cfg.actor_rollout_ref.model.path
        if asked in SCRATCH:  # made anew by the driver, once, and not by each rank
            cfg = copy.deepcopy(cfg)
            cfg.critic.model.path = self.path
        made = make_critic(cfg, self.trained, updates, head=head, kind=RankCritic, world=self._world_of_critic())
        assert isinstance(made, RankCritic)
        return made

    def _world_of_critic(self) -> World:
        """The ranks that share the weights of a critic with a model of its own."""
        mine, fsdp = self.trained.world, self.cfg.critic.fsdp_config
        assert isinstance(mine, RankWorld)
        shards = shards_of(fsdp.fsdp_size, mine.size, CRITIC_SIZE)
        if (shards, fsdp.reshard_after_forward) == (mine.shards, mine.reshard):
            return mine
        place = replace(mine.place, shards=shards)
        return RankWorld(place, mine.dtype, self.trained.model.config.hidden_size, fsdp.reshard_after_forward)

    def with_optimizer(self, optim: Optim, updates: int) -> RankLearner:
        """A learner of the same weights with an optimizer and a schedule of its own."""
        mine, clip = self.trained, self.cfg.actor_rollout_ref.actor.grad_clip
        refuse_optimizer(optim)
        made = TrainedModel(mine.model, optim, updates, mine.dtype, clip, mine.threads, owner=mine)
        return RankLearner(self.cfg, made, self.path)

    # ---- weights ----

    def save(self, folder: Path, bases: Path) -> None:
        """Write weights and optimizer into a folder."""
        self.trained.settle()
        model = self.trained.model
        if is_adapted(model):
            base = self._keep_base(bases)
            weights = gathered(adapter_weights(model).items(), self.first)
            if self.first:
                save_adapter(model, folder, base, weights)
        else:
            write_plain(model, gathered(model.named_parameters(), self.first), folder, self.first)
        save_optimizer(self.trained.optimizer, self.trained.updates, folder)

    def _keep_base(self, bases: Path) -> str | None:
        model = self.trained.model
        if model.peft_config[ADAPTER].base_model_name_or_path:
            return None
        state = gathered(plain_weights(model, adapters=False), self.first)
        return keep_base(bases, model, lambda: plain_of(model, state)) if self.first else None

    def load(self, folder: Path) -> None:
        """Take what `save` wrote, in one process or in any number of ranks."""
        self.load_weights(folder)
        load_state(self.trained, folder)

    def export(self, folder: Path, dtype: str) -> None:
        """Write the plain model, adapters merged."""
        self.trained.settle()
        kind = pick_dtype(dtype, "cpu")
        state = gathered(((n, t.to(kind)) for n, t in plain_weights(self.trained.model)), self.first)
        write_plain(self.trained.model, state, folder, self.first)

    def weights(self, dtype: str) -> Iterator[tuple[str, Tensor]]:
        """The plain model's weights as they are now, one at a time, in a type."""
        self.trained.settle()
        for name, weight in plain_stream(self.trained.model):
            yield name, weight.to(getattr(torch, dtype)) if self.first else torch.empty(0)


class RankCritic(LocalCritic):
    """The critic that the ranks train."""

    def save(self, folder: Path) -> None:
        """Write the optimizer, the head, and the body unless it is the actor's."""
        self.trained.settle()
        model, first = self.trained.model, self.trained.world.rank == 0
        if self.trained.owner is None:
            if is_adapted(model.body):
                weights = gathered(adapter_weights(model.body).items(), first)
                if first:
                    save_adapter(model.body, folder, None, weights)
            else:
                write_plain(model.body, gathered(model.body.named_parameters(), first), folder, first)
        head = gathered(model.value_head.named_parameters(), first)
        if first:
            save_file({k: v.contiguous() for k, v in head.items()}, folder / HEAD)
        save_optimizer(self.trained.optimizer, self.trained.updates, folder)

    def load(self, folder: Path) -> None:
        """Take what `save` wrote."""
        from safetensors.torch import load_file

        self.trained.settle()
        model = self.trained.model
        if self.trained.owner is None:
            read_sharded(folder, model.body)
        stored = load_file(folder / HEAD)
        with torch.no_grad():
            for name, parameter in model.value_head.named_parameters():
                local(parameter).copy_(mine_of(parameter, stored[name]))
        load_state(self.trained, folder)


def load_state(trained: TrainedModel, folder: Path) -> None:
    """Put a stored optimizer back: one of ranks, or that of a single process, of which each rank takes its part."""
    if (folder / FOLDER).is_dir():
        trained.updates = load_optimizer(trained.optimizer, folder, alone=False)
        return
    saved = torch.load(folder / OPTIMIZER, weights_only=True, map_location="cpu")
    for number, part in enumerate(trained.optimizer.parts):
        moved = [p for group in part.param_groups for p in group["params"]]
        for index, state in saved["optimizer"][str(number)]["state"].items():
            part.state[moved[index]] = {k: _part_of(moved[index], v) for k, v in state.items()}
    trained.updates = int(saved["updates"])


def _part_of(parameter: Tensor, value: Any) -> Any:
    """This rank's part of a moment, spread like its parameter; counters stay as they are."""
    if not isinstance(value, Tensor) or value.shape != parameter.shape:
        return value
    made = torch.zeros_like(parameter)
    local(made).copy_(mine_of(parameter, value))
    return made


def plain_of(model: Any, state: Mapping[str, Tensor]) -> Any:
    """A plain model in host memory with some weights."""
    with torch.device("meta"):
        plain = type(model)(model.config)
    plain.load_state_dict(state, strict=False, assign=True)
    plain.tie_weights()
    plain.generation_config = getattr(model, "generation_config", None)
    return plain


def write_plain(model: Any, state: Mapping[str, Tensor], folder: Path, first: bool) -> None:
    """Write a plain model; the others have taken part in putting its weights together."""
    if first:
        plain_of(model, state).save_pretrained(folder)
        assert is_model(folder), "what was written is a model"


def refuse_optimizer(optim: Optim) -> None:
    """Refuse an optimizer that needs whole matrices."""
    if optim.name == "muon":
        raise BadInput("optim.name=muon needs whole matrices, which ranks do not hold: use adamw, or n_gpus_per_node=1")
