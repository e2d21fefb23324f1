"""What a run will need, estimated before it starts: tokens per step from the data, memory from the model's shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import torch

from recollect.agents.window import trajectory_tokens
from recollect.chat import Renderer
from recollect.config import Config
from recollect.config.servers import served
from recollect.models.device import pick_device, pick_dtype
from recollect.models.kind_check import loader_of
from recollect.models.load import load_config
from recollect.models.small_copy import token_shape
from recollect.registries import ESTIMATORS
from recollect.training.learner.ranks.place_of import place_of
from recollect.types import Task

LOOKED_AT = 16  # tasks whose tokens are counted
FLOAT, HALF = 4, 2  # bytes of a weight, a gradient or a moment


@dataclass(frozen=True)
class Shape:
    """The numbers of a model that decide its memory."""

    parameters: int
    adapter: int  # parameters of its LoRA adapter; 0: all weights are trained
    cached: int  # numbers that a token keeps in the cache


@dataclass(frozen=True)
class TokenEstimate:
    """Means over tasks; what is sampled is counted up to its limits."""

    turns: float
    prompt: float  # per trajectory, over all turns
    response: float
    longest: int  # tokens of the longest turn, prompt and completion

    def per_step(self, cfg: Config) -> dict[str, int]:
        """Prompt and sampled tokens of a step."""
        count = cfg.data.train_batch_size * cfg.actor_rollout_ref.rollout.n
        return {"trajectories": count, "prompt": round(count * self.prompt), "sampled": round(count * self.response)}


@dataclass(frozen=True)
class Need:
    """Bytes that a part of the run needs."""

    part: str
    bound_to: str
    weights: int = 0
    gradients: int = 0
    moments: int = 0
    cache: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.moments + self.cache


def shape(path: str, lora_rank: int = 0, targets: Sequence[str] = ()) -> Shape:
    """A model's shape, from its configuration alone; no weights are read."""
    config = load_config(path)
    with torch.device("meta"):
        model = loader_of(config).from_config(config)
    layers, heads, dim = token_shape(config)
    linear = [
        (name, m)
        for name, m in model.named_modules()
        if isinstance(m, torch.nn.Linear) and m is not model.get_output_embeddings() and ".visual." not in f".{name}."
    ]
    chosen = [m for name, m in linear if "all-linear" in targets or name.rsplit(".", 1)[-1] in targets]
    adapter = sum(lora_rank * (m.in_features + m.out_features) for m in chosen)
    return Shape(sum(p.numel() for p in model.parameters()), adapter, 2 * layers * heads * dim)


def tokens(cfg: Config, tasks: Sequence[Task], renderer: Renderer) -> TokenEstimate:
    """Tokens of a trajectory, from the first tasks of the data."""
    found = [trajectory_tokens(cfg, task, renderer) for task in tasks[:LOOKED_AT]]
    turns, prompt, response = (mean(row[i] for row in found) for i in range(3))
    return TokenEstimate(turns, prompt, response, max(row[3] for row in found))


def memory(cfg: Config, made: TokenEstimate) -> list[Need]:
    """Each part of the run with its device and the most bytes it needs, without activations."""
    policy, path = cfg.actor_rollout_ref, cfg.actor_rollout_ref.model.path
    device = pick_device(cfg.trainer.device)
    rank = policy.model.lora_rank
    actor = shape(path, rank, policy.model.target_modules)
    dtype = pick_dtype(policy.rollout.dtype, device)
    apart = place_of(cfg) is not None  # ranks train, and what samples has weights of its own
    half = pick_dtype(policy.actor.dtype, device) == torch.bfloat16 and (dtype == torch.bfloat16 or apart)
    base = HALF if half and rank else FLOAT
    kind = "bfloat16" if base == HALF else "float32"
    needs = [_trained("actor", f"{path}, {kind} on {device}" + (f", LoRA rank {rank}" if rank else ""), actor, base)]
    copied = 0 if dtype == torch.float32 and not apart else actor.parameters * dtype.itemsize
    rows = min(policy.rollout.max_num_seqs, cfg.data.train_batch_size * policy.rollout.n)
    held = rows * made.longest + min(policy.rollout.prefix_cache_tokens, made.per_step(cfg)["prompt"])
    what = f"{'a copy' if copied else 'the weights'} of the actor, {str(dtype).removeprefix('torch.')} on {device}"
    what += ", which the actor computes with too" if half and not rank and not apart else ""
    if not served(policy.rollout):  # servers have memory of their own
        needs.append(Need("rollout", what, copied, cache=held * actor.cached * dtype.itemsize))
    if policy.actor.use_kl_loss or cfg.algorithm.use_kl_in_reward:
        frozen = "the actor with its adapter off" if rank else f"{path}, frozen"
        needs.append(
            Need("reference", frozen, 0 if rank else actor.parameters * (HALF if half and not apart else FLOAT))
        )
    if ESTIMATORS.knows(cfg.algorithm.adv_estimator, "needs_critic"):
        needs.append(_critic(cfg, device))
    return needs


def _critic(cfg: Config, device: str) -> Need:
    model = cfg.critic.model
    if model.share_actor:
        return Need("critic", "a value head on the actor")
    found = shape(model.path, model.lora_rank, model.target_modules)
    return _trained("critic", f"{model.path}, float32 on {device}, with a value head", found)


def _trained(part: str, bound_to: str, found: Shape, base: int = FLOAT) -> Need:
    trained = found.adapter or found.parameters
    weights = found.parameters * base + found.adapter * FLOAT
    return Need(part, bound_to, weights, trained * FLOAT, trained * 2 * FLOAT)
