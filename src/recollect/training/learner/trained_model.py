"""A model of this process and its optimizer: it measures tokens and makes updates.

What is measured is a function of model and micro-batch, so actor and critic are the same over different models.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from recollect.config import Offload, Optim, RefOffload
from recollect.models.attention import focus, using
from recollect.models.lora import adapters_off, is_adapted, plain_copy
from recollect.models.native.modules import replace_modules
from recollect.models.shared_weights import whole
from recollect.packing.micro_batch import Packed
from recollect.training.learner import recompute
from recollect.training.learner.forward import Prediction, predict, statistics
from recollect.training.learner.host_offload import park, park_optimizer, wake, wake_optimizer
from recollect.training.learner.master_weights import Masters, to_half
from recollect.training.learner.optimizers import Optimizers, build_optimizer, learning_rate
from recollect.training.learner.world import ALONE, World

Measure = Callable[..., Tensor]  # (model, micro-batch) → a number for each of its targets
# (micro-batch, entries' logprobs, entries' entropies, with a reference also entries' divergences) → scalar
Loss = Callable[..., Tensor]


class TrainedModel:
    """A model in float32, computed in ``dtype``, and its optimizer.

    With ``half`` the model's own weights are bfloat16, which an engine can share, with float32 masters behind them.
    ``adapters`` False computes with a LoRA model's base. ``offload`` says what waits in host memory between uses; a
    stretch of work over several calls can be put inside `awake`, so that the weights move once. An ``owner`` is the
    one whose weights these are, if they are another's; it alone moves them.
    """

    def __init__(
        self,
        model: Any,
        optim: Optim,
        total_updates: int,
        dtype: torch.dtype,
        grad_clip: float = 1.0,
        threads: int = 0,
        frozen: bool = False,
        offload: Offload | None = None,
        adapters: bool = True,
        seed: int = 0,
        owner: TrainedModel | None = None,
        half: bool = False,
        world: World = ALONE,
    ) -> None:
        self.world: World = world if owner is None else owner.world
        self.half: bool = half if owner is None else owner.half
        self.masters: Masters | None = None if owner is None else owner.masters
        if half and owner is None and not frozen:
            self.masters = Masters(model)
        elif half:
            to_half(model)
        elif not self.half and not is_adapted(model) and (owner is None or owner.root is None):
            model.float()
        self.model = model
        focus(self.model)
        placed = self.world.device or next(model.parameters()).device
        self.device: torch.device = placed if owner is None else owner.device
        if self.device.type == "cpu" and owner is None:  # an owner has done it, and weights may be shared since
            replace_modules(model)
        self.root: nn.Module | None = (
            self.world.shard(model) if owner is None else owner.root
        )  # None: passes go through the model itself
        self.world.settle(self.root)  # an optimizer moves what this process holds
        self.dtype = dtype
        self.optim = optim
        self.optimizer = Optimizers([]) if frozen else build_optimizer(model, optim, self.masters)
        self.total_updates = total_updates
        self.updates = 0
        self.place: int | None = None  # in the learning rate's schedule; None: it goes on with every update
        self.grad_clip = grad_clip
        self.threads = threads  # CPU threads to compute with; 0: leave them as they are
        self.offload = offload or Offload()
        self.adapters = adapters
        self.seed = seed  # of dropout
        self.owner = owner
        self.on_micro_batch: Callable[[int, int], None] | None = None  # told (done, all) after each one
        self._users = 0  # nested uses of the weights

    # ---- contexts ----

    def compute(self) -> AbstractContextManager[Any]:
        """The context in which the model computes in its compute type."""
        if self.threads and torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        if self.dtype == torch.float32 or self.root is not None:  # sharded weights are cast as they are put together
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)

    @contextmanager
    def awake(self) -> Iterator[None]:
        """The weights are on the device; with param_offload they go back to host memory after the outermost use."""
        if self.owner is not None:
            with self.owner.awake():
                yield
            return
        if self._users == 0:
            self._move(self.device)
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0 and self.offload.param_offload:
                self._move(torch.device("cpu"))

    def _move(self, device: torch.device) -> None:
        """Move the weights to the device or to host memory."""
        if self.root is not None:  # weights that are spread over ranks are moved by what has spread them
            if self.offload.param_offload and self.device.type == "cuda":
                self.root.to(device)
        elif not self.offload.param_offload:
            return
        elif device == self.device:
            wake(self.model, device)
        else:
            park(self.model)

    @contextmanager
    def policy(self) -> Iterator[None]:
        """The context of a pass: the compute type, and the base alone where adapters are off."""
        with self.compute(), nullcontext() if self.adapters else adapters_off(self.model):
            yield

    @contextmanager
    def _noise(self) -> Iterator[None]:
        """Dropout depends on the seed and the update alone, so that a resumed run draws the same."""
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(((self.seed << 32) + (self.world.rank << 24) + self.updates) % (1 << 63))
            yield

    def _one_by_one(self, packs: Sequence[Packed]) -> Iterator[Packed]:
        """Micro-batches on the device, one by one; the watcher is called after each."""
        packs = self.world.even(packs)
        for done, packed in enumerate(packs, 1):
            yield packed.to(self.device)
            if self.on_micro_batch is not None:
                self.on_micro_batch(done, len(packs))

    def apply(self, what: Callable[..., Any], packed: Packed, *more: Any) -> Any:
        """Measure a micro-batch, through whatever puts the weights together."""
        return what(self.model, packed, *more) if self.root is None else self.root(what, self.model, packed, *more)

    # ---- measuring ----

    @torch.no_grad()
    def measure(
        self, packs: Sequence[Packed], entries: int, what: Measure, reference: TrainedModel | None = None
    ) -> Tensor:
        """[entries] a measure of every trained token under the current weights, without gradient.

        With a reference ``what`` gets its prediction as a third argument.
        """
        out = torch.zeros(entries, device=self.device)
        with self.awake():
            self.model.eval()
            for packed in self._one_by_one(packs):
                other = () if reference is None else (reference.prediction(packed),)
                with self.policy():
                    found = self.apply(what, packed, *other)
                out[packed.entry] = found[packed.entry_target]
        return self.world.sum(out)

    def logprobs(self, packs: Sequence[Packed], entries: int, temperature: float = 1.0) -> Tensor:
        """[entries] log-probabilities of all trained tokens."""
        return self.measure(packs, entries, lambda model, packed: statistics(model, packed, temperature).logprob)

    def divergence(
        self, packs: Sequence[Packed], entries: int, reference: TrainedModel, temperature: float = 1.0
    ) -> Tensor:
        """[entries] exact divergence from a reference at every trained token, over the whole vocabulary."""

        def found(model: Any, packed: Packed, other: Prediction) -> Tensor:
            value = statistics(model, packed, temperature, reference=other).divergence
            assert value is not None
            return value

        with reference.awake():
            return self.measure(packs, entries, found, reference)

    @torch.no_grad()
    def prediction(self, packed: Packed) -> Prediction:
        """What this model predicts at every target of a micro-batch, for others to compare with."""
        training = self.model.training
        self.model.eval()
        with self.awake(), self.policy():
            found = self.apply(predict, packed)
        self.model.train(training)

        def head(hidden: Tensor) -> Tensor:
            with self.policy():
                return found.head(hidden)

        return found._replace(head=head)

    # ---- updating ----

    def accumulate(self, packs: Sequence[Packed], loss: Measure, reference: TrainedModel | None = None) -> float:
        """Add up the gradients of micro-batches' losses and return the summed loss.

        The loss of an entry must already carry its share of the whole mini-batch, so that the sum over micro-batches
        is the loss whatever the split. With a reference ``loss`` gets its prediction as a third argument.
        """
        total = torch.zeros((), device=self.device)
        with self.awake(), self._noise():
            self.model.train()
            for packed in self._one_by_one(packs):
                recompute.choose(self.model, len(packed.tokens), self.optimizer.owed())
                other = () if reference is None else (reference.prediction(packed),)
                with self.policy():
                    value = self.apply(loss, packed, *other)
                with using(packed.plan):  # recomputed activations attend again
                    value.backward()
                total += value.detach()
        return float(self.world.sum(total))

    def backward(
        self, packs: Sequence[Packed], loss: Loss, temperature: float = 1.0, reference: TrainedModel | None = None
    ) -> float:
        """Accumulate the gradients of a loss of log-probabilities and entropies; returns the summed loss.

        With a reference the loss also gets the exact divergence from it, as a fourth argument.
        """

        def value(model: Any, packed: Packed, other: Prediction | None = None) -> Tensor:
            found = statistics(model, packed, temperature, reference=other)
            if packed.idle:
                return found.logprob.sum() * 0.0
            with torch.autocast(self.device.type, enabled=False):
                return loss(packed, *(x[packed.entry_target] for x in found if x is not None))

        with nullcontext() if reference is None else reference.awake():
            return self.accumulate(packs, value, reference)

    def step(self) -> dict[str, float]:
        """Apply the accumulated gradients; a non-finite gradient is dropped and reported."""
        place = self.updates if self.place is None else self.place
        lr = learning_rate(self.optim, place, self.total_updates)
        self.optimizer.set_lr(lr)
        with self.awake():
            if self._optimizer_waits():
                wake_optimizer(self.optimizer, self.device)
            norm = float(whole(torch.nn.utils.clip_grad_norm_(self.optimizer.gradients(), self.grad_clip)))
            finite = norm == norm and norm != float("inf")
            if finite:
                self.optimizer.step()
            self.optimizer.zero_grad()
            if self.offload.optimizer_offload:
                park_optimizer(self.optimizer)
        self.updates += 1
        return {"grad_norm": norm if finite else 0.0, "lr": lr, "skipped_updates": float(not finite)}

    def _optimizer_waits(self) -> bool:
        """Whether the optimizer's state, or the masters that it moves, may be in host memory."""
        return any(t.offload.optimizer_offload for t in (self, self.owner) if t is not None)

    def skip(self) -> None:
        """Pass over an update that has no gradient; the learning rate's schedule goes on."""
        self.updates += 1

    # ---- state ----

    def plain(self, dtype: torch.dtype) -> Any:
        """The trained model by itself in host memory, adapters merged, with the exact weights."""
        if self.masters is None:
            return plain_copy(self.model, dtype)
        made = plain_copy(self.model, torch.float32)
        for name, parameter in made.named_parameters():
            if name in self.masters.weights:
                parameter.data.copy_(self.masters.weights[name].data)
        return made.to(dtype)

    def state(self) -> dict[str, Any]:
        """Everything but the weights that a resumed run needs."""
        return {"optimizer": self.optimizer.state_dict(), "updates": self.updates}

    def load_state(self, state: dict[str, Any]) -> None:
        with self.awake():  # an optimizer puts its state where its parameters are
            self.optimizer.load_state_dict(state["optimizer"])
        self.updates = int(state["updates"])
        self.parked()

    def settle(self) -> None:
        """Weights are to be read or written from outside: hold them as the optimizer does."""
        self.world.settle(self.root)

    def parked(self) -> None:
        """The optimizer's state was read: it waits in host memory if it is to."""
        if self.offload.optimizer_offload:
            park_optimizer(self.optimizer)


def reference_of(trained: TrainedModel, offload: RefOffload | None = None) -> TrainedModel:
    """A frozen copy of the policy as it is now; for a LoRA model, its base with adapters off, without a copy."""
    if is_adapted(trained.model):
        return TrainedModel(
            trained.model,
            trained.optim,
            1,
            trained.dtype,
            threads=trained.threads,
            frozen=True,
            adapters=False,
            owner=trained,
        )
    with trained.awake():
        model = copy.deepcopy(trained.model).requires_grad_(False)
    parked = Offload(param_offload=offload is not None and offload.param_offload)
    return TrainedModel(
        model,
        trained.optim,
        1,
        trained.dtype,
        threads=trained.threads,
        frozen=True,
        offload=parked,
        half=trained.half,
    )
