"""What a run says to an Arbor server about its training, and which settings that server would never hear of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from recollect.config import Config
from recollect.config.compose import parsed
from recollect.types import BadInput

ACTOR, MODEL, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.model", "actor_rollout_ref.rollout"
LOSS_TYPES = {"token-mean": "dapo", "seq-mean-token-mean": "grpo", "seq-mean-token-sum-norm": "dr_grpo"}
SCHEDULES = {"constant": "constant_with_warmup"}  # others have the same name there
ONLY = {  # settings that have one value there
    "algorithm.adv_estimator": "grpo",
    "algorithm.group_by": "question",
    f"{ACTOR}.kl_loss_type": "low_var_kl",
    f"{ACTOR}.optim.name": "adamw",
}
HEARD = {  # settings that take effect, here or there
    *("agent", "conversation", "data", "judge", "memory", "search"),
    *(f"trainer.{key}" for key in ("total_training_steps", "total_epochs", "experiment_name", "seed")),
    *("trainer.default_local_dir", "algorithm.norm_adv_by_std_in_grpo", "algorithm.grpo_use_adv"),
    *(f"{MODEL}.{key}" for key in ("path", "lora_rank", "lora_alpha", "lora_dropout", "target_modules")),
    f"{MODEL}.enable_gradient_checkpointing",
    *(f"{ROLLOUT}.{key}" for key in ("n", "temperature", "top_p", "top_k", "seed", "response_length")),
    f"{ROLLOUT}.fixed_model_wait_s",
    *(f"{ACTOR}.optim.{key}" for key in ("lr", "weight_decay", "lr_warmup_steps", "lr_scheduler_type")),
    *(f"{ACTOR}.{key}" for key in ("use_kl_loss", "kl_loss_coef", "grad_clip", "loss_agg_mode", "dtype")),
    *(f"{ACTOR}.{key}" for key in ("ppo_epochs", "ppo_mini_batch_size", "ppo_micro_batch_size_per_gpu")),
}


def refuse_unheard(settings: Sequence[str], cfg: Config) -> None:
    """Refuse what the user set and no Arbor server is told."""
    for key, wanted in ONLY.items():
        value: Any = cfg
        for name in key.split("."):
            value = getattr(value, name)
        if value != wanted:
            raise BadInput(f"--arbor: {key}={value} cannot be asked for there; only {wanted} can")
    for key, _ in parsed(settings):
        known = any(key == name or key.startswith(f"{name}.") for name in HEARD)
        if "." in key and not known and key not in ONLY:
            how = "the server decides it (recollect serve --trainable takes settings)"
            raise BadInput(f"--arbor: {key} has no effect through a server; leave it out, {how}")


def initialize_body(cfg: Config, steps: int) -> dict[str, Any]:
    """The settings of a run as a client of Arbor says them."""
    ref = cfg.actor_rollout_ref
    actor, optim, model, n = ref.actor, ref.actor.optim, ref.model, ref.rollout.n
    if actor.loss_agg_mode not in LOSS_TYPES:
        raise BadInput(f"{ACTOR}.loss_agg_mode={actor.loss_agg_mode} has no name on an Arbor server")
    at_once = actor.ppo_micro_batch_size_per_gpu or n
    completions = (actor.ppo_mini_batch_size or cfg.data.train_batch_size) * n
    lora = {"r": model.lora_rank, "lora_alpha": model.lora_alpha, "target_modules": list(model.target_modules)}
    window = cfg.data.max_prompt_length + cfg.data.max_response_length
    trainer = {
        "num_generations": n,
        "temperature": ref.rollout.temperature,
        "beta": actor.kl_loss_coef if actor.use_kl_loss else 0.0,
        "per_device_train_batch_size": at_once,
        "gradient_accumulation_steps": max(1, -(-completions // at_once)),
        "gradient_checkpointing": model.enable_gradient_checkpointing,
        "learning_rate": optim.lr,
        "lr_scheduler_type": SCHEDULES.get(optim.lr_scheduler_type, optim.lr_scheduler_type),
        "warmup_steps": max(0, optim.lr_warmup_steps),
        "weight_decay": optim.weight_decay,
        "max_grad_norm": 0.0 if math.isinf(actor.grad_clip) else actor.grad_clip,  # 0: no limit
        "max_prompt_length": cfg.data.max_prompt_length,
        "max_completion_length": cfg.data.max_response_length,
        "bf16": actor.dtype == "bfloat16",
        "scale_rewards": cfg.algorithm.norm_adv_by_std_in_grpo and cfg.algorithm.grpo_use_adv,
        "loss_type": LOSS_TYPES[actor.loss_agg_mode],
        "max_steps": steps,
        "lora_config": lora | {"lora_dropout": model.lora_dropout} if model.lora_rank else None,
    }
    passes = {"num_iterations": actor.ppo_epochs} if actor.ppo_epochs > 1 else {}  # Arbor knows no such setting
    return {
        "model": model.path,
        "run_name": cfg.trainer.experiment_name,
        "trainer_config": trainer | passes,
        "inference_config": {"model": model.path, "max_seq_len": window},
        "gpu_config": {"type": "multi", "multi": {"num_inference_gpus": 1, "num_training_gpus": 1}},
    }
