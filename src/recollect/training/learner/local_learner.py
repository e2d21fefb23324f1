"""The learner of this process: one model, its optimizer, and what the configuration says about both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from recollect.config import Config, Optim
from recollect.engine.attention_check import fit_of
from recollect.models.checksums import write_checksums
from recollect.models.device import pick_dtype
from recollect.models.load import context_window
from recollect.models.lora import ADAPTER, BASE, is_adapted, plain_copy, plain_weights
from recollect.models.text_config import text_config
from recollect.packing.batch import Batch
from recollect.packing.division import BatchPart
from recollect.packing.micro_batch import Packed
from recollect.runs.directory import remove_tree, replace_tree
from recollect.samplers.sampler import TakesWeights
from recollect.training.learner.critic import LocalCritic, make_critic
from recollect.training.learner.free_memory import is_scarce
from recollect.training.learner.imitation_graphs import ImitationGraphs
from recollect.training.learner.imitation_loss import token_losses
from recollect.training.learner.learner import Metrics, ModelFacts, PolicyTargets, ReferencePolicy, Watcher
from recollect.training.learner.policy_update import policy_update, update_cut
from recollect.training.learner.token_budget import Budget, MicroBatching, run_with_budget
from recollect.training.learner.trained_model import TrainedModel, reference_of
from recollect.training.learner.weight_files import OPTIMIZER, load_state, read_weights, write_weights
from recollect.types import Sample

CPU_TOKENS = 4096  # per micro-batch of imitation on a CPU: activations that stay in its caches are worth 1.3× in speed

Warn = Callable[[str], None]


class LocalPolicy:
    """A policy of this process and how batches are cut for it."""

    def __init__(self, trained: TrainedModel, cut: MicroBatching) -> None:
        self.trained, self.cut = trained, cut

    def logprobs(self, batch: Batch) -> np.ndarray:
        """[E] the log-probability of every trained token."""
        work = lambda packs: self.trained.logprobs(packs, batch.entries, batch.temperature)
        return self.cut.run(batch, work).cpu().numpy()

    def load_weights(self, folder: Path) -> None:
        """Take the weights of a checkpoint."""
        read_weights(folder, self.trained.model, self.trained.masters)

    def watch(self, watcher: Watcher | None) -> None:
        """Call ``watcher`` after every micro-batch."""
        self.trained.on_micro_batch = watcher


class LocalLearner(LocalPolicy):
    """The policy that is trained. ``warn`` is told when the GPU's memory runs out."""

    def __init__(self, cfg: Config, trained: TrainedModel, warn: Warn = lambda message: None) -> None:
        rollout, actor = cfg.actor_rollout_ref.rollout, cfg.actor_rollout_ref.actor
        share = cfg.actor_rollout_ref.model.use_remove_padding
        budget = Budget(rollout.log_prob_max_token_len_per_gpu, warn)
        most, part = rollout.log_prob_micro_batch_size_per_gpu, trained.world.part
        super().__init__(trained, MicroBatching(budget, most, share, part))
        self.cfg, self.warn = cfg, warn
        self.lent = False  # a sampler reads these very weights, so none are handed over
        self.update_cut = update_cut(cfg, warn, part)
        tokens = actor.ppo_max_token_len_per_gpu
        self.imitation = Budget(min(tokens, CPU_TOKENS) if trained.device.type == "cpu" else tokens, warn)
        self.graphs = ImitationGraphs.of(trained) if trained.root is None else None

    @property
    def facts(self) -> ModelFacts:
        """What the model is."""
        model = self.trained.model
        count = sum(p.numel() for p in model.parameters() if p.requires_grad)
        return ModelFacts(context_window(model.config), text_config(model).vocab_size, count, fit_of(model.config).note)

    # ---- RL ----

    def divergence(self, batch: Batch, reference: ReferencePolicy) -> np.ndarray:
        """[E] the exact divergence from a reference of this learner."""
        other = _here(reference)
        work = lambda packs: self.trained.divergence(packs, batch.entries, other, batch.temperature)
        return self.cut.run(batch, work).cpu().numpy()

    def update(
        self,
        batch: Batch,
        targets: PolicyTargets,
        reference: ReferencePolicy | None = None,
        seed: Sequence[int] = (0,),
        place: int | None = None,
    ) -> Metrics:
        """All mini-batches and epochs of one RL step."""
        self.trained.place = place
        other = None if reference is None else _here(reference)
        return policy_update(self.cfg, self.trained, batch, targets, other, seed, self.update_cut)

    def keep_reference(self) -> LocalPolicy:
        """A frozen copy of the policy as it is now."""
        ref = self.cfg.actor_rollout_ref.ref
        budget = Budget(ref.log_prob_max_token_len_per_gpu, self.warn)
        cut = MicroBatching(budget, ref.log_prob_micro_batch_size_per_gpu, self.cut.share, self.cut.part)
        return LocalPolicy(reference_of(self.trained, ref.fsdp_config), cut)

    def make_critic(self, updates: int) -> LocalCritic:
        """The critic that the configuration asks for."""
        return make_critic(self.cfg, self.trained, updates, self.warn)

    def short_of_memory(self) -> bool:
        """True when an update may need the memory that sampling holds."""
        return is_scarce(self.trained.device)

    # ---- SFT ----

    def imitate(self, item: Sequence[Sample] | Packed) -> Metrics:
        """One supervised update."""

        def work(packs: Sequence[Packed]) -> Callable[[], Metrics]:
            world, right = self.trained.world, [0.0]
            trained = int(world.total(sum(len(p.entry) for p in packs)))
            computed = world.total(sum(len(p.tokens) for p in packs))
            captured = None if self.graphs is None else self.graphs.accumulate(packs, trained)
            if captured is not None:
                return lambda: imitation_row(float(captured[0]), float(captured[1]), trained, computed)

            def loss(model: Any, part: Packed) -> Tensor:
                losses, first = token_losses(model, part)
                if part.idle:
                    return losses.sum() * 0.0
                right[0] += float(first[part.entry_target].sum())
                return losses[part.entry_target].sum() / trained

            value = self.trained.accumulate(packs, loss)
            made = imitation_row(value, world.total(right[0]) / max(1, trained), trained, computed)
            return lambda: made

        reset = self.trained.optimizer.zero_grad
        row = run_with_budget(
            lambda tokens: packed(item, tokens, self.cut.share, self.cut.part), self.imitation, work, reset
        )
        step = self.trained.step()
        return row() | step

    def imitation_scores(self, batch: Batch) -> tuple[np.ndarray, np.ndarray]:
        """[E] −log p of every trained token, and whether it would have been the first choice."""
        hits = torch.zeros(batch.entries, device=self.trained.device)

        def found(model: Any, part: Packed) -> Tensor:
            losses, right = token_losses(model, part)
            hits[part.entry] = right[part.entry_target].float()
            return losses

        rows, cut = range(len(batch.sequences)), self.cut
        packs = batch.packs(rows, cut.budget.tokens, share=cut.share, part=cut.part)
        measured = self.trained.measure(packs, batch.entries, found)
        return measured.cpu().numpy(), self.trained.world.sum(hits).cpu().numpy()

    def with_optimizer(self, optim: Optim, updates: int) -> LocalLearner:
        """A learner of the same weights with an optimizer and a schedule of its own."""
        mine, clip = self.trained, self.cfg.actor_rollout_ref.actor.grad_clip
        made = TrainedModel(mine.model, optim, updates, mine.dtype, clip, mine.threads, owner=mine)
        return LocalLearner(self.cfg, made, self.warn)

    def set_schedule(self, updates: int) -> None:
        """Set the number of updates of the learning-rate schedule."""
        self.trained.total_updates = updates

    # ---- weights ----

    def save(self, folder: Path, bases: Path) -> None:
        """Write weights and optimizer into a folder."""
        model, masters = self.trained.model, self.trained.masters
        base = keep_base(bases, model, lambda: plain_copy(model, torch.float32, adapters=False))
        write_weights(model if masters is None else self.trained.plain(torch.float32), folder, base)
        torch.save(self.trained.state(), folder / OPTIMIZER)

    def keep(self, folder: Path) -> None:
        """A checkpoint is in its place; this process does not start again by itself."""

    def load(self, folder: Path) -> None:
        """Take what `save` wrote."""
        self.load_weights(folder)
        load_state(self.trained, folder)

    def export(self, folder: Path, dtype: str) -> None:
        """Write the plain model, adapters merged."""
        self.trained.plain(pick_dtype(dtype, "cpu")).save_pretrained(folder)

    def sync(self, sampler: TakesWeights, version: int) -> None:
        """Give a sampler the weights as they are now."""
        if self.lent:
            sampler.take_weights(version, None)
            return
        with self.trained.awake():
            sampler.take_weights(version, plain_weights(self.trained.model))

    def close(self) -> None:
        """There are no other processes."""


def imitation_row(loss: float, right: float, trained: int, computed: float) -> Metrics:
    """The metrics of a supervised update before its step."""
    return {"loss": loss, "token_accuracy": right, "tokens": float(trained), "tokens_computed": computed}


def packed(
    item: Sequence[Sample] | Packed, budget: int, share: bool = True, part: BatchPart | None = None
) -> Sequence[Packed]:
    """Micro-batches of what a source of examples gave: already packed, which one rank computes, or sequences."""
    if isinstance(item, Packed):
        return [item] if part is None or part.rank == 0 else []
    batch = Batch.of(item)
    return batch.packs(range(len(batch.sequences)), budget, share=share, part=part)


def _here(reference: ReferencePolicy) -> TrainedModel:
    """The model behind a reference, which has to be of this process."""
    assert isinstance(reference, LocalPolicy), "a learner compares itself with a reference that it has made"
    return reference.trained


def keep_base(folder: Path, model: Any, plain: Callable[[], Any]) -> str | None:
    """Store the model under an adapter if it cannot be loaded from elsewhere; returns where it is then."""
    if not is_adapted(model) or model.peft_config[ADAPTER].base_model_name_or_path:
        return None
    if not (folder / BASE).is_dir():
        temporary = folder / f".{BASE}.writing"
        remove_tree(temporary)
        plain().save_pretrained(temporary)
        write_checksums(temporary)
        replace_tree(temporary, folder / BASE)
    return str((folder / BASE).absolute())
