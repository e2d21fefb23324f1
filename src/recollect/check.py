"""Values that cannot work are refused before anything starts, each with one line that says what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recollect.config import Config
from recollect.types import BadInput


def checked(cfg: Config) -> Config:
    """The configuration, if every value in it can work."""
    for problem in _problems(cfg):
        raise BadInput(problem)
    return cfg


def _problems(cfg: Config) -> Iterator[str]:
    actor, rollout, needle = cfg.actor_rollout_ref.actor, cfg.actor_rollout_ref.rollout, cfg.data.needle
    limits = cfg.recurrent.memory.config
    memory, policy, engine = "recurrent.memory.config", "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
    yield from _known("recurrent.enable", cfg.recurrent.enable or "null", ["memory", "null"])
    yield from _known(f"{memory}.split", limits.split, ["token", "sentence"])
    yield from _known(f"{memory}.layout", limits.layout, ["chunk_first", "memory_first"])
    yield from _known(f"{memory}.style", limits.style, ["instruct", "plain"])
    yield from _known("algorithm.adv_estimator", cfg.algorithm.adv_estimator, ["grpo"])
    yield from _known(f"{policy}.loss_agg_mode", actor.loss_agg_mode, ["token-mean", "trajectory-mean"])
    yield from _known(f"{policy}.kl_loss_type", actor.kl_loss_type, ["low_var_kl", "kl", "mse", "abs"])
    yield from _known(f"{policy}.dtype", actor.dtype, ["auto", "float32", "bfloat16"])
    yield from _known(f"{engine}.name", rollout.name, ["engine"])
    yield from _known(f"{engine}.dtype", rollout.dtype, ["auto", "float32", "bfloat16"])
    yield from _known("trainer.resume_mode", cfg.trainer.resume_mode, ["auto", "disable", "resume_path"])
    yield from _known("trainer.device", cfg.trainer.device, ["auto", "cpu", "cuda"])
    yield from _known("sft.export_dtype", cfg.sft.export_dtype, ["float32", "bfloat16"])
    for place, optim in ((f"{policy}.optim", actor.optim), ("sft.optim", cfg.sft.optim)):
        yield from _known(f"{place}.name", optim.name, ["adamw", "muon"])
        yield from _known(f"{place}.lr_scheduler_type", optim.lr_scheduler_type, ["constant", "linear", "cosine"])
        if not optim.lr >= 0:
            yield f"{place}.lr={optim.lr} must not be negative"
        if len(optim.betas) != 2 or not all(0 <= b < 1 for b in optim.betas):
            yield f"{place}.betas={list(optim.betas)} must be two numbers in [0, 1)"
    for place, sampling in ((engine, rollout), (f"{engine}.val_kwargs", rollout.val_kwargs)):
        if not 0 < sampling.top_p <= 1:
            yield f"{place}.top_p={sampling.top_p} must be in (0, 1]"
    positive = {
        f"{memory}.chunk_size": limits.chunk_size,
        f"{memory}.max_prompt_length": limits.max_prompt_length,
        f"{memory}.max_memorization_length": limits.max_memorization_length,
        f"{memory}.max_final_response_length": limits.max_final_response_length,
        f"{engine}.n": rollout.n,
        f"{engine}.max_num_seqs": rollout.max_num_seqs,
        f"{engine}.max_num_batched_tokens": rollout.max_num_batched_tokens,
        f"{engine}.temperature": rollout.temperature,
        f"{engine}.val_kwargs.n": rollout.val_kwargs.n,
        f"{policy}.ppo_max_token_len_per_gpu": actor.ppo_max_token_len_per_gpu,
        f"{policy}.ppo_epochs": actor.ppo_epochs,
        f"{policy}.grad_clip": actor.grad_clip,
        f"{engine}.val_kwargs.temperature": rollout.val_kwargs.temperature,
        **{f"evaluation.lengths[{i}]": n for i, n in enumerate(cfg.evaluation.lengths)},
        **{f"evaluation.tasks[{i}]": n for i, n in enumerate(cfg.evaluation.tasks)},
        "actor_rollout_ref.ref.log_prob_max_token_len_per_gpu": (
            cfg.actor_rollout_ref.ref.log_prob_max_token_len_per_gpu
        ),
        "data.train_batch_size": cfg.data.train_batch_size,
        "data.max_response_length": cfg.data.max_response_length,
        "data.needle.chunks": needle.chunks,
        "data.needle.start_chunks": needle.start_chunks,
        "agent.max_concurrency": cfg.agent.max_concurrency,
        "agent.timeout_s": cfg.agent.timeout_s,
        "agent.reward_timeout_s": cfg.agent.reward_timeout_s,
        "sft.batch_size": cfg.sft.batch_size,
        "trainer.max_ckpt_to_keep": cfg.trainer.max_ckpt_to_keep,
    }
    for key, value in positive.items():
        if not value > 0:
            yield f"{key}={value} must be positive"
    not_negative = {
        f"{memory}.max_chunks": limits.max_chunks,
        f"{policy}.clip_ratio": actor.clip_ratio,
        f"{policy}.ppo_mini_batch_size": actor.ppo_mini_batch_size,
        f"{policy}.entropy_coeff": actor.entropy_coeff,
        f"{policy}.kl_loss_coef": actor.kl_loss_coef,
        "trainer.total_training_steps": cfg.trainer.total_training_steps or 0,
        "trainer.threads": cfg.trainer.threads,
        "sft.steps": cfg.sft.steps,
        "sft.workers": cfg.sft.workers,
    }
    for key, value in not_negative.items():
        if not value >= 0:
            yield f"{key}={value} must not be negative"
    shares = {
        "data.needle.similar": needle.similar,
        "data.needle.val_similar": needle.val_similar,
        "data.needle.recall": needle.recall,
        "agent.max_failure_rate": cfg.agent.max_failure_rate,
    }
    for key, value in shares.items():
        if not 0 <= value <= 1:
            yield f"{key}={value} must be between 0 and 1"
    if needle.facts_per_chunk < needle.hops:
        yield f"data.needle.facts_per_chunk={needle.facts_per_chunk} must be at least {needle.hops}"
    if needle.hops not in (1, 2):
        yield f"data.needle.hops={needle.hops} must be 1 or 2"
    mini, batch = actor.ppo_mini_batch_size, cfg.data.train_batch_size
    if mini > batch:
        yield f"{policy}.ppo_mini_batch_size={mini} is larger than data.train_batch_size={batch}"
    if mini and batch % mini:
        yield f"data.train_batch_size={batch} is not a multiple of {policy}.ppo_mini_batch_size={mini}"
    if len(cfg.evaluation.lengths) != len(cfg.evaluation.tasks) or not cfg.evaluation.lengths:
        yield "evaluation.lengths and evaluation.tasks must have one entry for each length"


def _known(key: str, value: str, choices: Sequence[str]) -> Iterator[str]:
    if value not in choices:
        yield f"{key}={value} is unknown; known: {', '.join(choices)}"
