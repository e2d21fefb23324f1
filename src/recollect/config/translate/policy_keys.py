"""Answers to `actor_rollout_ref.actor`, `.ref` and `.model`, and to what critics have in common with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.config.translate.data_keys import FOREIGN_CODE
from recollect.config.translate.key_answer import Alias, Answer, Given, Refused, Same

ACTOR, REF, MODEL = (f"actor_rollout_ref.{part}" for part in ("actor", "ref", "model"))
GPUS = "it takes several GPUs in a way that is not there: ranks share weights (trainer.n_gpus_per_node)"
STRATEGY = "several GPUs train by FSDP2 here (trainer.n_gpus_per_node): fsdp or fsdp2"
SHARDS = "ranks share the weights of whole layers, as FSDP2 does; fsdp_size says how many of them"
CUT = "it says how a batch is cut into micro-batches, and results do not depend on the cut"
SPARING = "it saves memory or time by another way to the same numbers; recollect chooses its own"
MADE_FOR = "the {} trainers of verl are not there; several ranks train by FSDP2 (trainer.n_gpus_per_node)"
DTYPES = {"bf16": "bfloat16", "fp32": "float32", "torch.bfloat16": "bfloat16", "torch.float32": "float32"}
KL_WORDS = {"k1": "kl", "k2": "mse", "k3": "low_var_kl"}
STEPS = "the run's number of steps takes its place, as in verl"


def _at_least_a_run(key: str, value: Any, given: Given) -> bool:
    """A checkpoint here holds weights as transformers reads them, the optimizer and the run's state."""
    return isinstance(value, list) and {"optimizer", "extra"} <= set(value) and bool({"model", "hf_model"} & set(value))


def fsdp(place: str, own: str | None, dtype: Answer) -> dict[str, Answer]:
    """Answers to a section of FSDP settings; ``own`` is our section for those that take effect."""
    out: dict[str, Answer] = {
        f"{place}.wrap_policy.*": Same(SHARDS),
        f"{place}.forward_prefetch": Same(SHARDS),
        f"{place}.use_orig_params": Same(SHARDS),
        f"{place}.offload_policy": Same("it says where weights wait; param_offload does that here"),
        f"{place}.model_dtype": Refused("weights are kept in float32", fine=("float32", "torch.float32")),
        f"{place}.dtype": dtype,
        f"{place}.mixed_precision.param_dtype": dtype,
        f"{place}.mixed_precision.*": Refused("gradients are summed in float32", fine=("fp32", "float32")),
        f"{place}.grad_offload": Same("gradients wait where the weights are"),
        f"{place}.seed": Refused("everything is drawn from trainer.seed"),
        f"{place}.full_determinism": Same("runs are always repeatable"),
        f"{place}.ulysses_sequence_parallel_size": Refused(GPUS, fine=(1,)),
        f"{place}.forward_only": Refused("which models are trained follows from what they are for"),
        f"{place}.strategy": Refused(STRATEGY, fine=("fsdp", "fsdp2")),
        f"{place}.pad_to_length": Same("padding is no part of a result"),
        f"{place}.pad_to_length_bucket": Same("padding is no part of a result"),
        f"{place}.qat.*": Refused("weights are not quantised in training"),
        f"{place}.turbo_config.*": Refused(GPUS),
        **{f"{place}.{name}": Same(SPARING) for name in ("use_torch_compile", "entropy_checkpointing")},
        **{f"{place}.entropy_from_logits_{name}": Same(SPARING) for name in ("with_chunking", "chunk_size")},
    }
    if own is not None:
        names = ("param_offload", "optimizer_offload", "fsdp_size", "reshard_after_forward")
        out |= {f"{place}.{name}": Alias(f"{own}.{name}") for name in names}
    return out


def optim(place: str, grad_clip: str) -> dict[str, Answer]:
    """Answers to the settings of an optimizer."""
    return {
        f"{place}.optimizer": Alias(f"{place}.name", words={"AdamW": "adamw", "adam": "adamw"}),
        f"{place}.name": Alias(f"{place}.name", words={"AdamW": "adamw"}),
        f"{place}.optimizer_impl": Refused("the optimizers are torch's AdamW and Muon"),
        f"{place}.total_training_steps": Same(STEPS),
        f"{place}.clip_grad": Alias(grad_clip),
        f"{place}.num_cycles": Refused("a cosine goes down once, from lr to min_lr_ratio of it"),
        f"{place}.warmup_style": Alias(f"{place}.lr_scheduler_type"),
        f"{place}.lr_decay_style": Alias(f"{place}.lr_scheduler_type"),
        f"{place}.min_lr_ratio": Alias(f"{place}.min_lr_ratio"),
        f"{place}.override_optimizer_config": Refused("the optimizer has betas and weight_decay, and no other options"),
        f"{place}.override_optimizer_config.*": Refused(
            "the optimizer has betas and weight_decay, and no other options"
        ),
    }


def engines(place: str) -> dict[str, Answer]:
    """Answers to the settings of trainers that a model on one GPU has no use for."""
    names = {"megatron": "Megatron", "veomni": "VeOmni", "torchtitan": "TorchTitan"}
    return {f"{place}.{name}.*": Refused(MADE_FOR.format(title)) for name, title in names.items()}


def both(place: str) -> dict[str, Answer]:
    """Answers that actor, reference and critic share."""
    return {
        f"{place}.rollout_n": Alias("actor_rollout_ref.rollout.n"),
        f"{place}.strategy": Refused(STRATEGY, fine=("fsdp", "fsdp2")),
        f"{place}.data_loader_seed": Refused("the order of mini-batches is drawn from trainer.seed"),
        f"{place}.checkpoint.save_contents": Refused(
            "a checkpoint always holds the weights, the optimizer and the run's state", when=_at_least_a_run
        ),
        f"{place}.checkpoint.load_contents": Refused(
            "a run goes on with all that its checkpoint holds", when=_at_least_a_run
        ),
        f"{place}.checkpoint.contents": Refused(
            "a checkpoint always holds the weights, the optimizer and the run's state", when=_at_least_a_run
        ),
        f"{place}.checkpoint.async_save": Same("a checkpoint is complete before the next step; its files are the same"),
        f"{place}.checkpoint.*": Refused("checkpoints have one form here"),
        f"{place}.router_replay.*": Refused("the routing of experts is not replayed"),
        f"{place}.optim.*": Refused("this setting is of the Megatron, VeOmni or TorchTitan trainer of verl"),
        **engines(place),
    }


def _a_frozen_tower(key: str, value: Any, given: Given) -> bool:
    """True where the vision tower gets no adapter anyway."""
    frozen = str(given.get("actor_rollout_ref.actor.freeze_vision_tower", True)).lower() != "false"
    return value in ("visual", ".*visual.*") and frozen


def model(place: str) -> dict[str, Answer]:
    """Answers to the settings of a model."""
    return {
        f"{place}.hf_config_path": Refused("the configuration is the one in the model's folder"),
        f"{place}.tokenizer_path": Refused("the tokenizer is the one in the model's folder"),
        f"{place}.use_shm": Same("weights are read once, from where they are"),
        f"{place}.trust_remote_code": Refused(FOREIGN_CODE),
        f"{place}.custom_chat_template": Refused(
            "choose a template with agent.template, or put yours beside the tokenizer"
        ),
        f"{place}.external_lib": Refused(FOREIGN_CODE),
        f"{place}.override_config": Refused("a model keeps the configuration in its folder; change it there"),
        f"{place}.override_config.*": Refused("a model keeps the configuration in its folder; change it there"),
        f"{place}.enable_activation_offload": Same(SPARING),
        f"{place}.exclude_modules": Refused(
            "name the modules that get an adapter with target_modules; a frozen vision tower gets none",
            when=_a_frozen_tower,
        ),
        f"{place}.lora_adapter_path": Refused(
            "set the model's path to the folder with the adapter: it is loaded merged"
        ),
        f"{place}.lora.*": Refused("an adapter is lora_rank, lora_alpha, target_modules and lora_dropout"),
        f"{place}.use_liger": Same(SPARING),
        f"{place}.use_fused_kernels": Same(SPARING),
        f"{place}.fused_kernel_options.*": Same(SPARING),
        f"{place}.tiled_mlp.*": Same(SPARING),
        f"{place}.mtp.*": Refused("layers that predict several tokens are neither trained nor sampled with"),
    }


ANSWERS: Mapping[str, Answer] = {
    **fsdp(f"{ACTOR}.fsdp_config", None, Alias(f"{ACTOR}.dtype", words=DTYPES)),
    **fsdp(f"{REF}.fsdp_config", None, Refused("the reference computes in the actor's type: actor.dtype")),
    **optim(f"{ACTOR}.optim", f"{ACTOR}.grad_clip"),
    **both(ACTOR),
    **both(REF),
    **model(MODEL),
    f"{ACTOR}.train_batch_size": Alias("data.train_batch_size"),
    f"{ACTOR}.ppo_micro_batch_size": Alias(f"{ACTOR}.ppo_micro_batch_size_per_gpu", "it counts for each GPU"),
    f"{MODEL}.torch_dtype": Refused(
        "weights are kept in float32, and actor_rollout_ref.actor.dtype is the compute type",
        fine=("float32", "fp32"),
    ),
    f"{ACTOR}.use_remove_padding": Alias(f"{MODEL}.use_remove_padding"),
    f"{ACTOR}.kl_loss_type": Alias(f"{ACTOR}.kl_loss_type", words=KL_WORDS),
    f"{ACTOR}.tau_pos": Refused("the loss sapo is not there; see policy_loss.loss_mode"),
    f"{ACTOR}.tau_neg": Refused("the loss sapo is not there; see policy_loss.loss_mode"),
    f"{ACTOR}.policy_loss.*": Refused("the losses clip-cov, kl-cov and dro are not there; see policy_loss.loss_mode"),
    f"{ACTOR}.tis_imp_ratio_cap": Alias(
        "algorithm.rollout_is_threshold",
        "with algorithm.rollout_is=token",
        expand=lambda value, given: _importance(value),
    ),
    f"{ACTOR}.calculate_entropy": Same("the entropy is a metric of every step"),
    f"{ACTOR}.calculate_sum_pi_squared": Refused("the estimator optimal_token_baseline is not there"),
    f"{ACTOR}.sum_pi_squared_checkpointing": Refused("the estimator optimal_token_baseline is not there"),
    f"{ACTOR}.qat.*": Refused("weights are not quantised in training"),
    f"{ACTOR}.pad_to_length": Same("padding is no part of a result"),
    f"{REF}.pad_to_length": Same("padding is no part of a result"),
    f"{REF}.ulysses_sequence_parallel_size": Refused(GPUS, fine=(1,)),
    f"{REF}.log_prob_micro_batch_size": Alias(f"{REF}.log_prob_micro_batch_size_per_gpu", "it counts for each GPU"),
    f"{REF}.log_prob_use_dynamic_bsz": Same(CUT),
    f"{REF}.model": Refused("the reference is the weights that the run started from"),
    f"{REF}.model.*": Refused("the reference is the weights that the run started from"),
    f"{REF}.fsdp_config.optimizer_offload": Same("the reference has no optimizer"),
    f"{REF}.fsdp_config.fsdp_size": Same("the reference is spread as the actor is"),
    f"{REF}.fsdp_config.reshard_after_forward": Same("the reference is spread as the actor is"),
    **{
        f"{place}.{name}": Same(SPARING)
        for place in (ACTOR, REF)
        for name in (
            *("use_torch_compile", "use_fused_kernels", "use_prefix_grouper", "entropy_checkpointing"),
            *("entropy_from_logits_with_chunking", "entropy_from_logits_chunk_size"),
        )
    },
    "actor_rollout_ref.hybrid_engine": Refused(
        "where sampling goes on is said by rollout.name, rollout.gpus and rollout.nnodes"
    ),
}


def _importance(cap: Any) -> Mapping[str, Any]:
    if cap is None or cap <= 0:
        return {}
    return {"algorithm.rollout_is": "token", "algorithm.rollout_is_threshold": cap}
