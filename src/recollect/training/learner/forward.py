"""The model's log-probabilities of trained tokens, without keeping [tokens × vocabulary] in memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from recollect.engine.shape import require_ours
from recollect.models.attention import using
from recollect.models.native.blocks import able, logprob_entropy
from recollect.models.plain_rows import body_of, is_plain, row_states
from recollect.models.states import States
from recollect.models.text_config import text_config
from recollect.packing.micro_batch import Packed, pack
from recollect.packing.tree import build_tree
from recollect.training.learner.free_memory import free_bytes
from recollect.types import BadInput

CHUNK_LOGITS = {"cpu": 1 << 25, "cuda": 1 << 28}  # logits computed at a time where they do not all fit
FITTING = 1 / 2  # of a GPU's free memory that all logits may take, their gradients included
LARGE = 8192  # ids of a vocabulary whose logits are worth a compiled function


def hidden_states(model: Any, packed: Packed) -> Tensor:
    """[nodes, width]: the body's output for every node of the trees."""
    if is_plain(model):
        return row_states(model, packed.tokens, packed.positions)
    require_ours(model)
    with using(packed.plan):
        out = body_of(model)(
            input_ids=packed.tokens.unsqueeze(0), position_ids=packed.positions.unsqueeze(0), use_cache=False
        )
    return out.last_hidden_state[0]


class Prediction(NamedTuple):
    """What a model predicts at every target, before the head: its logits are too many to keep."""

    hidden: Tensor  # [targets, width] the body's output where the target is predicted
    head: Callable[[Tensor], Tensor]
    softcap: float | None

    def logits(self, hidden: Tensor, temperature: float = 1.0) -> Tensor:
        """[…, vocabulary] logits in float32 of some of the hidden states."""
        return _scaled(self.head(hidden), self.softcap, temperature)

    def at_once(self, vocabulary: int, models: int = 1) -> int:
        """Targets whose logits, of so many models, are computed at a time.

        In training these are all of them where one pass reads them in half precision and memory is ample: nothing is
        recomputed then.
        """
        device, size = self.hidden.device, self.hidden.element_size()
        if torch.is_grad_enabled() and models == 1 and size == 2 and self.softcap is None and _kernel(device.type):
            needed = 2 * size * len(self.hidden) * vocabulary
            if needed <= FITTING * free_bytes(device):
                return max(1, len(self.hidden))
        return max(1, CHUNK_LOGITS[device.type] // models // vocabulary)


class Statistics(NamedTuple):
    """Of each target, in float32."""

    logprob: Tensor
    entropy: Tensor
    divergence: Tensor | None  # exact KL(policy ‖ reference) over the vocabulary; None without a reference


def predict(model: Any, packed: Packed) -> Prediction:
    """Run the body over a micro-batch."""
    hidden = hidden_states(model, packed)
    if hidden.is_cuda:
        hidden = hidden[packed.parents]
    else:  # where several targets follow one node its gradients are added up, which is to be in float32
        hidden = hidden.float()[packed.parents].to(hidden.dtype)
    if vars(model).get("recollect_whole_head"):
        return Prediction(hidden, partial(whole_head, model), None)
    return Prediction(
        hidden, model.get_output_embeddings(), getattr(text_config(model), "final_logit_softcapping", None)
    )


def whole_head(model: Any, hidden: Tensor) -> Tensor:
    """Logits of hidden states by all that a model does after its body: scaling, or layers before its head."""
    body = body_of(model)
    forward, body.forward = body.forward, lambda *args, **more: States(last_hidden_state=hidden[None])
    try:
        ids = torch.zeros(1, len(hidden), dtype=torch.int64, device=hidden.device)
        return model(input_ids=ids, use_cache=False).logits[0]
    finally:
        body.forward = forward


def _scaled(logits: Tensor, softcap: float | None, temperature: float) -> Tensor:
    logits = logits.float()
    if softcap is not None:
        logits = softcap * torch.tanh(logits / softcap)
    return logits / temperature if temperature != 1.0 else logits


def _figures(
    raw: Tensor,
    expected: Tensor | None,
    targets: Tensor,
    softcaps: tuple[float | None, float | None],
    temperature: float,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Of each row of logits: the target's log-probability, the entropy, and the divergence from expected logits."""
    logits = _scaled(raw, softcaps[0], temperature)
    log_z = logits.logsumexp(-1)
    logprob = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1) - log_z
    probability = torch.exp(logits - log_z.unsqueeze(-1))
    entropy = log_z - (probability * logits).sum(-1)
    if expected is None:
        return logprob, entropy, None
    reference = _scaled(expected, softcaps[1], temperature).log_softmax(-1)
    return logprob, entropy, -entropy - (probability * reference).sum(-1)


@cache
def _kernel(device: str) -> Callable[..., tuple[Tensor, Tensor]] | None:
    """Log-probability and entropy in one pass over logits, where there is triton for it."""
    if device != "cuda":
        return None
    try:
        from recollect.training.learner.logits import logprob_entropy as found
    except ImportError:
        return None
    return found


@cache
def _fused() -> Callable[..., Any]:
    """The same compiled: a few passes over the logits instead of a dozen."""
    return torch.compile(_figures, dynamic=True)


def _piece(
    policy: Prediction,
    reference: Prediction | None,
    hidden: Tensor,
    other: Tensor | None,
    targets: Tensor,
    temperature: float,
) -> Statistics:
    raw, expected, softcap = policy.head(hidden), None, None
    if reference is not None and other is not None:
        with torch.no_grad():
            expected, softcap = reference.head(other), reference.softcap
    if expected is None and policy.softcap is None:
        one_pass = logprob_entropy if able(raw) else _kernel(raw.device.type)
        if one_pass is not None:
            return Statistics(*one_pass(raw, targets, temperature), None)
    found = _fused() if raw.is_cuda and raw.shape[-1] >= LARGE else _figures
    return Statistics(*found(raw, expected, targets, (policy.softcap, softcap), temperature))


@torch.no_grad()
def check_head(model: Any) -> None:
    """Find out whether a model's logits are its head over its hidden states, or whether it does more after its body.

    Where neither gives the model's own logits it is refused.
    """
    ids = np.arange(3, 11)
    packed = pack([build_tree([0], [ids])], [np.arange(8) > 0], [0]).to(next(model.parameters()).device)
    model.eval()
    with nullcontext() if is_plain(model) else using(packed.plan):
        logits = model(input_ids=packed.tokens[None], use_cache=False).logits[0]
    expected = logits[:-1].float().log_softmax(-1).gather(-1, packed.targets[:, None])[:, 0]
    for model.recollect_whole_head in (False, True):
        logprob, _ = logprobs_and_entropy(model, packed)
        if torch.allclose(logprob, expected, atol=1e-3, rtol=1e-4):
            break
    else:
        kind = model.config.model_type
        raise BadInput(f"{kind} models scale their logits in a way that recollect does not know; it cannot train them")


def logprobs_and_entropy(
    model: Any, packed: Packed, temperature: float = 1.0, chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """[targets] log-probability of each target token and entropy of its distribution, in float32."""
    found = statistics(model, packed, temperature, chunk)
    return found.logprob, found.entropy


def statistics(
    model: Any,
    packed: Packed,
    temperature: float = 1.0,
    chunk: int | None = None,
    reference: Prediction | None = None,
) -> Statistics:
    """Log-probability, entropy and, with a reference's prediction, exact divergence from it, of every target.

    The heads run over a few thousand targets at a time, and with gradients each piece is recomputed in the backward
    pass, unless memory holds the logits of all.
    The reference gets no gradient.
    """
    policy = predict(model, packed)
    rows = chunk or policy.at_once(text_config(model).vocab_size, 1 if reference is None else 2)
    return in_pieces(policy, packed.targets, rows, temperature, reference)


def in_pieces(
    policy: Prediction, targets: Tensor, rows: int, temperature: float = 1.0, reference: Prediction | None = None
) -> Statistics:
    """Statistics of targets, so many at a time."""
    if len(policy.hidden) <= rows:
        other = None if reference is None else reference.hidden
        return _piece(policy, reference, policy.hidden, other, targets, temperature)
    hidden = policy.hidden.split(rows)
    others = [None] * len(hidden) if reference is None else reference.hidden.split(rows)
    pieces: list[Statistics] = []
    for h, o, t in zip(hidden, others, targets.split(rows), strict=True):
        if torch.is_grad_enabled():
            made = checkpoint(_piece, policy, reference, h, o, t, temperature, use_reentrant=False)
        else:
            made = _piece(policy, reference, h, o, t, temperature)
        pieces.append(made)
    divergence = None if reference is None else torch.cat([p[2] for p in pieces if p[2] is not None])
    return Statistics(torch.cat([p[0] for p in pieces]), torch.cat([p[1] for p in pieces]), divergence)
