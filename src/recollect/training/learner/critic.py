"""The critic: what return to expect from each state, by a body with a head of one number.

The body is a model of its own, or the actor's (``critic.model.share_actor``). A shared body is trained by both: the
actor's optimizer steps on the policy's gradients, the critic's on the value's, each with its own moments and learning
rate, one after the other. Nothing of one update is left in the other, and a checkpoint holds both optimizers.

The head is linear, computed in float32, and starts at zero: the first values are 0 and no random number is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from recollect.algos.aggregation import token_weights
from recollect.config import Config
from recollect.config import Critic as CriticConfig
from recollect.engine import load_fitted
from recollect.models.attention import is_ours
from recollect.models.compiled import compile_layers, worth_compiling
from recollect.models.starting_model import starting_model
from recollect.models.text_config import text_config
from recollect.packing.batch import Batch
from recollect.packing.micro_batch import Packed
from recollect.training.learner.adapt import adapt
from recollect.training.learner.forward import check_head, hidden_states
from recollect.training.learner.learner import Watcher
from recollect.training.learner.loss_scale import loss_scale
from recollect.training.learner.token_budget import Budget, MicroBatching
from recollect.training.learner.trained_model import TrainedModel
from recollect.training.learner.weight_files import OPTIMIZER, load_state, read_weights, write_weights
from recollect.training.learner.world import World
from recollect.types import BadInput

HEAD = "value_head.safetensors"


class ValueModel(nn.Module):
    """A body and the head that reads a value off its hidden states."""

    def __init__(self, body: Any, head: nn.Linear | None = None) -> None:
        super().__init__()
        self.body, self.config = body, body.config
        self.value_head = value_head(body) if head is None else head

    def values(self, packed: Packed, head_only: bool = False) -> Tensor:
        """[targets] the value of the state before each target token, in float32."""
        hidden = hidden_states(self.body, packed)[packed.parents]
        with torch.autocast(hidden.device.type, enabled=False):
            head, states = self.value_head, (hidden.detach() if head_only else hidden).float()
            return F.linear(states, head.weight.float(), head.bias.float()).squeeze(-1)


def value_head(body: Any) -> nn.Linear:
    """A new head for a body, beside its weights."""
    head = nn.Linear(text_config(body).hidden_size, 1, device=next(body.parameters()).device)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def value_loss(values: Tensor, old: Tensor, returns: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """Half the squared error, or that of the clipped value where it is larger; and 0/1 where the clip binds."""
    near = torch.clamp(values, old - clip, old + clip)
    plain, clipped = (values - returns).square(), (near - returns).square()
    return 0.5 * torch.maximum(plain, clipped), (clipped > plain).float()


def explained_variance(values: Tensor, returns: Tensor) -> float:
    """The share of the returns' variance that the values account for: 1 at best, 0 if returns do not vary."""
    if len(returns) < 2:
        return 0.0
    spread = float(returns.double().var())
    return 1.0 - float((returns - values).double().var()) / spread if spread > 0 else 0.0


class LocalCritic:
    """The value function of this process and its updates.

    ``mini_batch`` (prompts per update; 0: all) and ``epochs`` are what the configuration resolves to.
    """

    def __init__(
        self,
        trained: TrainedModel,
        cfg: CriticConfig,
        mini_batch: int = 0,
        epochs: int = 1,
        share_prefixes: bool = True,
        scale: float | None = None,
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        self.trained, self.cfg, self.mini_batch, self.epochs = trained, cfg, mini_batch, epochs
        self.scale = scale  # the divisor of seq-mean-token-sum-norm
        budget = Budget(cfg.ppo_max_token_len_per_gpu, warn)
        self.cut = MicroBatching(budget, cfg.ppo_micro_batch_size_per_gpu, share_prefixes, trained.world.part)

    def packed_values(self, packs: Sequence[Packed], entries: int) -> Tensor:
        """[entries] the value of the state before every trained token of micro-batches, without gradient."""
        return self.trained.measure(packs, entries, lambda model, packed: model.values(packed))

    def values(self, batch: Batch) -> np.ndarray:
        """[E] the values of a whole batch, in the critic's own micro-batches."""
        return self.cut.run(batch, lambda packs: self.packed_values(packs, batch.entries)).cpu().numpy()

    def watch(self, watcher: Watcher | None) -> None:
        """Call ``watcher`` after every micro-batch."""
        self.trained.on_micro_batch = watcher

    def updates(self, batch: Batch) -> int:
        """How many updates it makes from a batch."""
        return batch.updates(self.mini_batch, self.epochs)

    def update(
        self,
        batch: Batch,
        returns: np.ndarray,
        old_values: np.ndarray,
        seed: Sequence[int] = (0,),
        head_only: bool = False,
        place: int | None = None,
    ) -> dict[str, float]:
        """All mini-batches and epochs of one step; returns metrics averaged over the updates.

        ``head_only`` leaves the body alone: with a shared body the policy then does not change.
        """
        on_device = lambda a: torch.as_tensor(a, dtype=torch.float32, device=self.trained.device)
        aims, old = on_device(returns), on_device(old_values)
        self.trained.place = place
        rows: list[dict[str, float]] = []
        with self.trained.awake():
            for members, entries in batch.mini_batches(
                self.mini_batch, self.epochs, seed, self.cfg.shuffle is not False
            ):
                weight = np.zeros(batch.entries)
                of = batch.trajectories_E[entries], batch.sequences_E[entries]
                weight[entries] = token_weights(self.cfg.loss_agg_mode, *of, self.scale)
                rows.append(self._one_update(batch, members, on_device(weight), aims, old, head_only))
        means = {k: float(np.mean([r[k] for r in rows])) for k in (rows[0] if rows else ())}
        return means | {"vf_explained_var": explained_variance(old, aims), "updates": float(len(rows))}

    def _one_update(
        self, batch: Batch, members: list[int], weight: Tensor, returns: Tensor, old: Tensor, head_only: bool
    ) -> dict[str, float]:
        def work(packs: Sequence[Packed]) -> dict[str, float]:
            clipped = torch.zeros((), device=self.trained.device)

            def loss(model: ValueModel, packed: Packed) -> Tensor:
                e = packed.entry
                values = model.values(packed, head_only)[packed.entry_target]
                if packed.idle:
                    return values.sum()
                each, bound = value_loss(values, old[e], returns[e], self.cfg.cliprange_value)
                clipped.add_((weight[e] * bound).sum())
                return self.cfg.loss_coef * (weight[e] * each).sum()

            total = self.trained.accumulate(packs, loss) / self.cfg.loss_coef
            share = float(weight.sum())
            return {
                "value_loss": total,
                "value_clip_fraction": float(self.trained.world.sum(clipped)) / share if share else 0.0,
            }

        made = self.cut.run(batch, work, members, self.trained.optimizer.zero_grad)
        return made | self.trained.step()

    # ---- checkpoints ----

    def save(self, folder: Path) -> None:
        """Write the optimizer, the head, and the body unless it is the actor's."""
        from safetensors.torch import save_file

        model = self.trained.model
        if self.trained.owner is None:
            write_weights(model.body, folder)
        save_file({k: v.detach().cpu() for k, v in model.value_head.state_dict().items()}, folder / HEAD)
        torch.save(self.trained.state(), folder / OPTIMIZER)

    def load(self, folder: Path) -> None:
        """Take what `save` wrote."""
        from safetensors.torch import load_file

        model = self.trained.model
        if self.trained.owner is None:
            read_weights(folder, model.body)
        model.value_head.load_state_dict(load_file(folder / HEAD))
        load_state(self.trained, folder)


def make_critic(
    cfg: Config,
    actor: TrainedModel,
    updates: int,
    warn: Callable[[str], None] = lambda message: None,
    head: nn.Linear | None = None,
    kind: type[LocalCritic] = LocalCritic,
    world: World | None = None,
) -> LocalCritic:
    """The critic that the configuration asks for, beside an actor; ``updates`` is the length of its schedule.

    ``head`` is a value head that there is already, ``world`` what a model of its own is spread over.
    """
    critic = cfg.critic
    body, owner = (actor.model.base_model, actor) if critic.model.share_actor else (_own_body(cfg, actor), None)
    trained = TrainedModel(
        ValueModel(body, head),
        critic.optim,
        updates,
        actor.dtype,
        critic.grad_clip,
        actor.threads,
        offload=critic.fsdp_config,
        seed=cfg.trainer.seed,
        owner=owner,
        world=world or actor.world,
    )
    if owner is None and trained.root is None and is_ours(body) and worth_compiling(trained.model):
        compile_layers(trained.model, trained=True)
    ppo, prefixes = cfg.actor_rollout_ref.actor, cfg.actor_rollout_ref.model.use_remove_padding
    mini_batch = critic.ppo_mini_batch_size or ppo.ppo_mini_batch_size
    epochs = ppo.ppo_epochs if critic.ppo_epochs is None else critic.ppo_epochs
    return kind(trained, critic, mini_batch, epochs, prefixes, loss_scale(cfg), warn)


def _own_body(cfg: Config, actor: TrainedModel) -> Any:
    """The body of a model of the critic's own, which has to read the actor's tokens."""
    name = cfg.critic.model.path or cfg.actor_rollout_ref.model.path
    with starting_model(cfg, name) as path:
        whole = load_fitted(path, torch.float32, "cpu" if actor.root is not None else actor.device.type)
    check_head(whole)
    if text_config(whole).vocab_size < text_config(actor.model).vocab_size:
        raise BadInput(
            f"critic.model.path={name} knows {text_config(whole).vocab_size} tokens and the actor "
            f"{text_config(actor.model).vocab_size}; the critic has to read the actor's tokens"
        )
    return adapt(whole.base_model, cfg.critic.model, name, cfg.trainer.seed)
