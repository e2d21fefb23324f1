"""How long a step will take here: a random model of the same shape is timed; of a large one, some of its layers.

Weights are not read. What is timed is what a run does: the engine that samples, and a forward and backward pass.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from recollect.config import Config
from recollect.engine.attention_check import fit_of
from recollect.engine.make_engine import make_engine
from recollect.models.attention import register
from recollect.models.device import pick_device, pick_dtype, thread_counts
from recollect.models.kind_check import sees
from recollect.models.load import load_config
from recollect.registries import ESTIMATORS
from recollect.types import Sampling
from recollect.workflows.dry_run.predict import TokenEstimate, shape

PREFILLED, TRAINED = (4, 64), (2, 128)  # rows and tokens of prompts, and of a batch that is trained
SAMPLED = 32  # tokens of each of those rows that are trained; the others are prompt
NEW, ROWS = 6, 64  # tokens of a completion; rows that decode, at most
TIMED = 300_000_000  # parameters of the models that are timed, so that weights come from memory as in a run
LARGEST = 1_500_000_000  # parameters that are still timed where two layers are more
MEMORY_TAILS = {"plain": 4, "instruct": 56}  # tokens behind the memory in a prompt, which samples do not share
MOMENTS = 1 << 22  # weights whose optimizer is timed


@dataclass(frozen=True)
class Pace:
    """Seconds of single things."""

    prefill: float  # a prompt's token
    decode: float  # a step of the rows that decode
    rows: int  # how many those are
    forward: float  # a token of a batch that is measured
    train: float  # a token of a batch that is trained
    optimizer: float  # an update of the weights


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step, if every turn is as long as it may be."""

    rollout: float
    update: float

    @property
    def total(self) -> float:
        return self.rollout + self.update


def pace_here(cfg: Config) -> Pace | None:
    """How fast this machine computes the model; None where a small model of the kind cannot tell."""
    path = cfg.actor_rollout_ref.model.path
    config = load_config(path)
    count = cfg.data.train_batch_size * cfg.actor_rollout_ref.rollout.n
    if cfg.data.offline_files or sees(config) or not fit_of(config).fast or not _layers(config):
        return None
    try:
        return measure(cfg, config, min(count, cfg.actor_rollout_ref.rollout.max_num_seqs))
    except (RuntimeError, ValueError, AttributeError, TypeError):  # a kind that is not like others, too little memory
        return None


def counted(cfg: Config, made: TokenEstimate, pace: Pace) -> StepTime:
    """The time of a step whose single things take so long."""
    tasks, n, actor = cfg.data.train_batch_size, cfg.actor_rollout_ref.rollout.n, cfg.actor_rollout_ref.actor
    prompts, sampled = computed(cfg, made, tasks, n)
    rollout = sampling_time(prompts, sampled, pace)
    updates = tasks // (actor.ppo_mini_batch_size or tasks) * actor.ppo_epochs
    measured = (updates > 1) + (actor.use_kl_loss or cfg.algorithm.use_kl_in_reward)
    tokens = prompts + sampled
    learnt = actor.ppo_epochs * tokens * pace.train + updates * pace.optimizer
    if ESTIMATORS.knows(cfg.algorithm.adv_estimator, "needs_critic"):
        learnt, measured = 2 * learnt, measured + 1
    return StepTime(rollout, learnt + measured * tokens * pace.forward)


def computed(cfg: Config, made: TokenEstimate, tasks: int, n: int) -> tuple[float, float]:
    """Prompt tokens that are computed for n samples of each task, and sampled tokens."""
    tail = MEMORY_TAILS[cfg.recurrent.memory.config.style] * made.turns if cfg.recurrent.enable else 0
    own = min(made.prompt, made.response + tail)  # what a sample's prompts do not share with its siblings'
    return tasks * (made.prompt + (n - 1) * own), tasks * n * made.response


def sampling_time(prompts: float, sampled: float, pace: Pace) -> float:
    """Seconds of so many prompt and sampled tokens."""
    return prompts * pace.prefill + sampled / pace.rows * pace.decode


def measure(cfg: Config, config: Any, rows: int) -> Pace | None:
    """Time a model of this configuration, or two with some of its layers, and count up to all of them."""
    policy, found = cfg.actor_rollout_ref, shape(cfg.actor_rollout_ref.model.path)
    timed_rows, threads = min(rows, ROWS), thread_counts(cfg.trainer.threads, found.parameters)
    before, times, counts = torch.get_num_threads(), [], _timed_layers(config)
    if counts is None:
        return None
    try:
        for layers in counts:
            few = _with_layers(config, layers)
            torch.set_num_threads(threads[0])
            sampled = _sampling(few, cfg, timed_rows, threads[0])
            torch.set_num_threads(threads[1])
            times.append((*sampled, *_training(few, cfg)))
        optimizer = _optimizer(pick_device(cfg.trainer.device)) * (
            shape(policy.model.path, policy.model.lora_rank, policy.model.target_modules).adapter or found.parameters
        )
    finally:
        torch.set_num_threads(before)
    prefill, decode, forward, train = (_line(counts, list(y), _layers(config)) for y in zip(*times, strict=True))
    prompts, tokens = PREFILLED[0] * PREFILLED[1], TRAINED[0] * TRAINED[1]
    return Pace(prefill / prompts, decode, timed_rows, forward / tokens, train / tokens, optimizer)


def _timed_layers(config: Any) -> list[int] | None:
    """How many layers the timed models have: all, or two numbers for a line through both; None if one is too large."""
    layers, whole, one = _layers(config), _size(config), _size(_with_layers(config, 1))
    if whole <= TIMED:
        return [layers]
    most = max(2, 1 + int((TIMED - one) // max(1, (whole - one) // (layers - 1)))) if layers > 1 else 1
    if most < 2 or _size(_with_layers(config, most)) > LARGEST:
        return None
    return [most // 2, most]


def _line(counts: list[int], seconds: list[float], layers: int) -> float:
    """Seconds of all layers, from those of some."""
    if len(counts) == 1:
        return seconds[0]
    each = max(0.0, seconds[1] - seconds[0]) / (counts[1] - counts[0])
    return seconds[1] + each * (layers - counts[1])


def _layers(config: Any) -> int:
    return int(getattr(config, "num_hidden_layers", 0) or 0)


def _with_layers(config: Any, layers: int) -> Any:
    """The same configuration with fewer or more layers; what it says of each layer is said of those."""
    few, all_layers = copy.deepcopy(config), _layers(config)
    few.num_hidden_layers = layers
    for name in ("layer_types", "no_rope_layers", "mlp_layer_types"):
        if isinstance(value := getattr(few, name, None), list) and len(value) == all_layers:
            setattr(few, name, [value[i % all_layers] for i in range(layers)])
    return few


def _size(config: Any) -> int:
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return sum(p.numel() for p in AutoModelForCausalLM.from_config(copy.deepcopy(config)).parameters())


def _model(config: Any, dtype: torch.dtype, device: str, attention: str) -> Any:
    """A model with random weights: numbers that are all alike would make gradients too small to be fast."""
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        made = AutoModelForCausalLM.from_config(copy.deepcopy(config), dtype=dtype, attn_implementation=attention)
    made = made.to_empty(device=device)
    draw = torch.Generator(device).manual_seed(0)
    for tensor in (*made.parameters(), *made.buffers()):
        if tensor.is_floating_point():
            tensor.data.uniform_(-0.1, 0.1, generator=draw)
    made.tie_weights()
    return made


def _sampling(config: Any, cfg: Config, rows: int, threads: int) -> tuple[float, float]:
    """Seconds of the prompts of all rows, and of a decoding step of all."""
    device, rollout = pick_device(cfg.trainer.device), cfg.actor_rollout_ref.rollout
    model = _model(config, pick_dtype(rollout.dtype, device), device, register()).requires_grad_(False).eval()
    engine = make_engine(model, lambda *_: "", rollout, own=True, threads=threads)
    vocabulary = int(config.vocab_size)

    async def generate(number: int, count: int, length: int, new: int) -> None:
        prompts = [[(7 * r + 13 * i + 101 * number) % vocabulary for i in range(length)] for r in range(count)]
        asked = [Sampling(max_tokens=new, key=f"{number} {row}") for row in range(count)]
        await asyncio.gather(*(engine.generate(p, s) for p, s in zip(prompts, asked, strict=True)))

    def timed(first: int, *what: int) -> float:
        runs = [partial(lambda n: asyncio.run(generate(n, *what)), first + again) for again in range(2)]
        return min(_seconds(act, device) for act in runs)

    prefill = timed(0, *PREFILLED, 1)
    return prefill, max(0.0, timed(20, rows, 4, 1 + NEW) - timed(10, rows, 4, 1)) / NEW


def _training(config: Any, cfg: Config) -> tuple[float, float]:
    """Seconds of a forward pass, and of one with its backward pass, over a batch."""
    device, policy = pick_device(cfg.trainer.device), cfg.actor_rollout_ref
    half = pick_dtype(policy.actor.dtype, device) == torch.bfloat16
    model = _model(config, torch.float32, device, "sdpa")
    if policy.model.lora_rank:  # the weights themselves get no gradients
        model.requires_grad_(False)
    ids = torch.arange(TRAINED[0] * TRAINED[1], device=device).view(TRAINED) % int(config.vocab_size)

    def forward() -> torch.Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=half):
            states = model.get_input_embeddings()(ids).detach().requires_grad_()
            logits = model(inputs_embeds=states, use_cache=False, logits_to_keep=SAMPLED).logits
            return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, -SAMPLED:].flatten())

    def measured() -> None:
        with torch.no_grad():
            forward()

    return _best(measured, device), _best(lambda: forward().backward(), device)


def _optimizer(device: str) -> float:
    """Seconds of an update, for a weight."""
    weight = torch.zeros(MOMENTS, device=device, requires_grad=True)
    weight.grad = torch.ones_like(weight)
    return _best(torch.optim.AdamW([weight], fused=True).step, device) / MOMENTS


def _best(act: Callable[[], Any], device: str) -> float:
    return min(_seconds(act, device) for _ in range(2))


def _seconds(act: Callable[[], Any], device: str) -> float:
    start = time.perf_counter()
    act()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start
