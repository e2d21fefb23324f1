"""A client's trainer settings as settings of a run. What has no meaning here is named in the answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recollect.serve.arbor.payloads import JobRequest
from recollect.serve.protocol import BadRequest, clipped, integer, number

JobSettings = list[tuple[str, Any]]

ACTOR, ROLLOUT, MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.model"
SCHEDULES = {
    "constant": "constant",
    "constant_with_warmup": "constant",
    "linear": "linear",
    "cosine": "cosine",
}
LOSS_MEANS = {
    "dapo": "token-mean",
    "bnpo": "token-mean",
    "grpo": "seq-mean-token-mean",
    "dr_grpo": "seq-mean-token-sum-norm",
}
IDLE = {  # settings without effect here
    *("report_to", "log_completions", "logging_steps", "num_training_gpus", "num_inference_gpus", "update_interval"),
    *("gradient_checkpointing_kwargs", "generation_batch_size", "async_generation_timeout", "fp16"),
}
READ = {  # settings that something below, or the job itself, reads
    *("num_generations", "temperature", "beta", "num_iterations", "per_device_train_batch_size", "learning_rate"),
    *("gradient_accumulation_steps", "gradient_checkpointing", "lr_scheduler_type", "warmup_steps", "weight_decay"),
    *("max_prompt_length", "max_completion_length", "soft_completion_penalty_length", "mask_truncated_completions"),
    *("bf16", "scale_rewards", "max_grad_norm", "max_seq_len", "max_context_length", "max_steps", "loss_type"),
    *("lora", "lora_config"),
}
OLD_LORA = {"r": 16, "lora_alpha": 64, "lora_dropout": 0.05}  # of clients that only say lora: true


@dataclass(frozen=True)
class Shaping:
    """What happens to a posted completion before it is trained on."""

    mask_truncated: bool  # completions that were cut at their limit are not trained
    penalty_from: int | None  # tokens from which a positive reward shrinks …
    longest: int | None  # … to nothing here; longer completions are left out
    longest_prompt: int | None

    def reward(self, reward: float, tokens: int) -> float:
        """A reward after the penalty of a long completion."""
        if self.penalty_from is None or tokens <= self.penalty_from or reward <= 0:
            return reward
        assert self.longest is not None
        return reward * max(0.0, 1 - (tokens - self.penalty_from) / (self.longest - self.penalty_from))


def idle_settings(request: JobRequest) -> list[str]:
    """The settings of a request that have no effect here."""
    return sorted(key for key, value in request.trainer.items() if key in IDLE and value not in (False, "none"))


def shaping(request: JobRequest) -> Shaping:
    """How the job's completions are shaped."""
    given = request.trainer
    limits = [
        integer(given, key, 0, 1, 1 << 30) if key in given else None
        for key in ("soft_completion_penalty_length", "max_completion_length", "max_prompt_length")
    ]
    if limits[0] is not None and (limits[1] is None or limits[1] <= limits[0]):
        key = "soft_completion_penalty_length"
        raise BadRequest(f"{key} needs a larger max_completion_length", key)
    return Shaping(_flag(given, "mask_truncated_completions", False), limits[0], limits[1], limits[2])


def job_settings(request: JobRequest) -> JobSettings:
    """The settings of the run that does what a request asks for."""
    given = request.trainer
    if unknown := sorted(set(given) - READ - IDLE):
        raise BadRequest(f"{clipped(unknown[0])} is no setting of this trainer", clipped(unknown[0]))
    steps = integer(given, "max_steps", 500, 1, 1 << 30)
    return [
        ("trainer.total_training_steps", steps),
        ("algorithm.adv_estimator", "grpo"),
        ("algorithm.norm_adv_by_std_in_grpo", _scaled(given)),
        (f"{ROLLOUT}.n", request.generations),
        (f"{ROLLOUT}.temperature", number(given, "temperature", 1.0, 1e-6, 2)),
        *_optimizer(given),
        *_batches(given, request.generations),
        *_loss(given),
        *_types(given),
        *_lora(given),
    ]


def _optimizer(given: Mapping[str, Any]) -> JobSettings:
    schedule = given.get("lr_scheduler_type", "constant_with_warmup")
    if not isinstance(schedule, str) or schedule not in SCHEDULES:
        raise BadRequest(f"lr_scheduler_type must be one of {', '.join(SCHEDULES)}", "lr_scheduler_type")
    warm = 0 if schedule == "constant" else integer(given, "warmup_steps", 10, 0, 1 << 30)
    clip = number(given, "max_grad_norm", 1.0, 0, 1e30)
    optim = f"{ACTOR}.optim"
    return [
        (f"{optim}.lr", number(given, "learning_rate", 1e-6, 0, 1)),
        (f"{optim}.weight_decay", number(given, "weight_decay", 0.0, 0, 1)),
        (f"{optim}.lr_scheduler_type", SCHEDULES[schedule]),
        (f"{optim}.lr_warmup_steps", warm),
        (f"{ACTOR}.grad_clip", clip or math.inf),
    ]


def _batches(given: Mapping[str, Any], generations: int) -> JobSettings:
    """An update takes as many completions as a device takes at once, times the accumulation, in whole groups."""
    at_once = integer(given, "per_device_train_batch_size", 8, 1, 1 << 20)
    completions = at_once * integer(given, "gradient_accumulation_steps", 1, 1, 1 << 20)
    return [
        (f"{ACTOR}.ppo_micro_batch_size_per_gpu", at_once),
        (f"{ACTOR}.ppo_mini_batch_size", max(1, completions // generations)),
        (f"{ACTOR}.ppo_epochs", integer(given, "num_iterations", 1, 1, 1000)),
    ]


def _loss(given: Mapping[str, Any]) -> JobSettings:
    kind, beta = given.get("loss_type", "dapo"), number(given, "beta", 0.0, 0, 1e6)
    if not isinstance(kind, str) or kind not in LOSS_MEANS:
        raise BadRequest(f"loss_type must be one of {', '.join(LOSS_MEANS)}", "loss_type")
    longest = integer(given, "max_completion_length", 0, 1, 1 << 30)
    made: JobSettings = [(f"{ACTOR}.loss_agg_mode", LOSS_MEANS[kind]), (f"{ACTOR}.use_kl_loss", beta > 0)]
    made += [(f"{ACTOR}.kl_loss_coef", beta), (f"{ACTOR}.kl_loss_type", "low_var_kl")] if beta else []
    if kind == "dr_grpo" and longest:
        made.append((f"{ACTOR}.loss_scale_factor", float(longest)))
    return made


def _types(given: Mapping[str, Any]) -> JobSettings:
    dtype = "bfloat16" if _flag(given, "bf16", False) else "float32"
    again = _flag(given, "gradient_checkpointing", True)
    return [
        (f"{ACTOR}.dtype", dtype),
        (f"{ROLLOUT}.dtype", dtype),
        (f"{MODEL}.enable_gradient_checkpointing", again),
    ]


def _lora(given: Mapping[str, Any]) -> JobSettings:
    config = given.get("lora_config", OLD_LORA if _flag(given, "lora", False) else None)
    if config is None:
        return [(f"{MODEL}.lora_rank", 0)]
    if not isinstance(config, Mapping) or set(config) - {"r", "lora_alpha", "target_modules", "lora_dropout"}:
        raise BadRequest("lora_config must be {r, lora_alpha, target_modules, lora_dropout}", "lora_config")
    modules = config.get("target_modules") or ["all-linear"]
    modules = [modules] if isinstance(modules, str) else modules
    if not isinstance(modules, list) or not all(isinstance(name, str) and name for name in modules):
        raise BadRequest("lora_config.target_modules must be a list of names", "lora_config")
    return [
        (f"{MODEL}.lora_rank", integer(config, "r", 8, 1, 65536)),
        (f"{MODEL}.lora_alpha", number(config, "lora_alpha", 16, 1e-6, 1e6)),
        (f"{MODEL}.lora_dropout", number(config, "lora_dropout", 0.0, 0, 0.999)),
        (f"{MODEL}.target_modules", modules),
    ]


def _flag(given: Mapping[str, Any], key: str, default: bool) -> bool:
    value = given.get(key, default)
    if not isinstance(value, bool):
        raise BadRequest(f"{key} must be true or false", key)
    return value


def _scaled(given: Mapping[str, Any]) -> bool:
    """Whether advantages are divided by the deviation; newer trainers name what it is taken over."""
    value = given.get("scale_rewards", True)
    if value in ("group", "none"):
        return bool(value == "group")
    if not isinstance(value, bool):
        raise BadRequest("scale_rewards must be true, false, group or none", "scale_rewards")
    return value
