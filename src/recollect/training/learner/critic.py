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
from torch import Tensor, nn

from recollect.algos.aggregation import token_weights
from recollect.config import Critic as CriticConfig
from recollect.packing.batch import Batch
from recollect.packing.micro_batch import Packed
from recollect.training.learner.forward import hidden_states
from recollect.training.learner.learner import Learner
from recollect.training.learner.token_budget import Budget, run_with_budget
from recollect.training.learner.weight_files import read_weights, write_weights

HEAD = "value_head.safetensors"


class ValueModel(nn.Module):
    """A body and the head that reads a value off its hidden states."""

    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body, self.config = body, body.config
        self.value_head = nn.Linear(body.config.hidden_size, 1, device=next(body.parameters()).device)
        nn.init.zeros_(self.value_head.weight)
        nn.init.zeros_(self.value_head.bias)

    def values(self, packed: Packed, head_only: bool = False) -> Tensor:
        """[targets] the value of the state before each target token, in float32."""
        hidden = hidden_states(self.body, packed)[packed.parents]
        with torch.autocast(hidden.device.type, enabled=False):
            return self.value_head((hidden.detach() if head_only else hidden).float()).squeeze(-1)


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


class Critic:
    """The value function and its updates.

    ``mini_batch`` (prompts per update; 0: all) and ``epochs`` are what the configuration resolves to.
    """

    def __init__(
        self,
        learner: Learner,
        cfg: CriticConfig,
        mini_batch: int = 0,
        epochs: int = 1,
        share_prefixes: bool = True,
        scale: float | None = None,
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        self.learner, self.cfg, self.mini_batch, self.epochs = learner, cfg, mini_batch, epochs
        self.share_prefixes = share_prefixes
        self.scale = scale  # the divisor of seq-mean-token-sum-norm
        self.budget = Budget(cfg.ppo_max_token_len_per_gpu, warn)

    def packs(self, batch: Batch, rows: Sequence[int], tokens: int) -> list[Packed]:
        """The critic's micro-batches over some sequences."""
        most = self.cfg.ppo_micro_batch_size_per_gpu
        return batch.packs(rows, tokens, max_sequences=most, share=self.share_prefixes)

    def values(self, packs: Sequence[Packed], entries: int) -> Tensor:
        """[entries] the value of the state before every trained token, without gradient."""
        return self.learner.measure(packs, entries, lambda model, packed: model.values(packed))

    def batch_values(self, batch: Batch) -> Tensor:
        """[entries] the values of a whole batch, in the critic's own micro-batches."""
        rows = range(len(batch.sequences))
        work = lambda packs: self.values(packs, batch.entries)
        return run_with_budget(lambda tokens: self.packs(batch, rows, tokens), self.budget, work)

    def passes(self, batch: Batch) -> int:
        """How many updates a batch gives it."""
        return batch.updates(self.mini_batch, self.epochs)

    def update(
        self,
        batch: Batch,
        returns_E: Tensor | np.ndarray,
        old_values_E: Tensor | np.ndarray,
        seed: Sequence[int] = (0,),
        head_only: bool = False,
    ) -> dict[str, float]:
        """All mini-batches and epochs of one step; returns metrics averaged over the updates.

        ``head_only`` leaves the body alone: with a shared body the policy then does not change.
        """
        on_device = lambda a: torch.as_tensor(a, dtype=torch.float32, device=self.learner.device)
        returns, old = on_device(returns_E), on_device(old_values_E)
        rows: list[dict[str, float]] = []
        with self.learner.awake():
            for members, entries in batch.mini_batches(
                self.mini_batch, self.epochs, seed, self.cfg.shuffle is not False
            ):
                weight = np.zeros(batch.entries)
                of = batch.trajectories_E[entries], batch.sequences_E[entries]
                weight[entries] = token_weights(self.cfg.loss_agg_mode, *of, self.scale)
                rows.append(self._one_update(batch, members, on_device(weight), returns, old, head_only))
        means = {k: float(np.mean([r[k] for r in rows])) for k in (rows[0] if rows else ())}
        return means | {"vf_explained_var": explained_variance(old, returns), "updates": float(len(rows))}

    def _one_update(
        self, batch: Batch, members: list[int], weight: Tensor, returns: Tensor, old: Tensor, head_only: bool
    ) -> dict[str, float]:
        def work(packs: list[Packed]) -> dict[str, float]:
            clipped = torch.zeros((), device=self.learner.device)

            def loss(model: ValueModel, packed: Packed) -> Tensor:
                e = packed.entry
                values = model.values(packed, head_only)[packed.entry_target]
                each, bound = value_loss(values, old[e], returns[e], self.cfg.cliprange_value)
                clipped.add_((weight[e] * bound).sum())
                return self.cfg.loss_coef * (weight[e] * each).sum()

            total = self.learner.accumulate(packs, loss) / self.cfg.loss_coef
            share = float(weight.sum())
            return {"value_loss": total, "value_clip_fraction": float(clipped) / share if share else 0.0}

        reset = self.learner.optimizer.zero_grad
        made = run_with_budget(lambda tokens: self.packs(batch, members, tokens), self.budget, work, reset)
        return made | self.learner.step()

    # ---- checkpoints ----

    def save_weights(self, folder: Path) -> None:
        """Write the head, and the body unless it is the actor's."""
        from safetensors.torch import save_file

        model = self.learner.model
        if self.learner.owner is None:
            write_weights(model.body, folder)
        save_file({k: v.detach().cpu() for k, v in model.value_head.state_dict().items()}, folder / HEAD)

    def load_weights(self, folder: Path) -> None:
        """Read what `save_weights` wrote."""
        from safetensors.torch import load_file

        model = self.learner.model
        if self.learner.owner is None:
            read_weights(folder, model.body)
        model.value_head.load_state_dict(load_file(folder / HEAD))
