"""Answers to `algorithm.*`, `trainer.*` and what stands beside them: Ray, profilers, queues, distillation."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from recollect.config.translate.key_answer import Alias, Answer, Given, Refused, Same
from recollect.config.translate.policy_keys import KL_WORDS
from recollect.config.translate.rollout_keys import TRANSPORT

RAY = "a run on several nodes joins the Ray cluster as it is (RAY_ADDRESS); otherwise there is no Ray"
ENV = "ray_kwargs.ray_init.runtime_env.env_vars"
PROFILER = "there is no profiler; metrics.jsonl has the times of each step"
SCHEDULE = (
    "which weights sample a step's batch follows from the step alone: trainer.max_staleness says how old they are"
)
CORRECTION = "weights by learner/sampler probability are there, algorithm.rollout_is, and algorithm.bypass_mode"
STORED = "trajectories are stored in the run directory, under trajectories/"


def _set_already(key: str, value: Any, given: Given) -> bool:
    return os.environ.get(key.rsplit(".", 1)[-1]) == str(value)


def _without_filter(key: str, value: Any, given: Given) -> bool:
    return not given.get("algorithm.filter_groups.enable")


ANSWERS: Mapping[str, Answer] = {
    "*._target_": Refused("it names a class of verl's", when=lambda key, value, given: str(value).startswith("verl.")),
    "*.profiler.*": Refused(PROFILER),
    "global_profiler.*": Refused(PROFILER),
    "algorithm.rollout_correction.rollout_is": Alias("algorithm.rollout_is"),
    "algorithm.rollout_correction.rollout_is_threshold": Alias("algorithm.rollout_is_threshold"),
    "algorithm.rollout_correction.bypass_mode": Alias("algorithm.bypass_mode"),
    "algorithm.rollout_correction.*": Refused(CORRECTION),
    "algorithm.kl_penalty": Alias("algorithm.kl_penalty", words=KL_WORDS),
    "algorithm.adv_estimator": Alias(
        "algorithm.adv_estimator", words={"grpo_vectorized": "grpo", "rloo_vectorized": "rloo"}
    ),
    "algorithm.use_pf_ppo": Refused("samples are not reweighted: PF-PPO is not there"),
    "algorithm.pf_ppo.*": Refused("samples are not reweighted: PF-PPO is not there"),
    "algorithm.filter_groups.metric": Alias(
        "algorithm.filter_groups.metric",
        words=dict.fromkeys(("score", "seq_reward", "seq_final_reward"), "reward"),
    ),
    "algorithm.filter_groups.max_num_gen_batches": Alias(
        "algorithm.filter_groups.max_num_gen_batches",
        expand=lambda value, given: _batches(value, given),
    ),
    "algorithm.filter_groups.max_inflight_gen_batches": Refused("one batch of tasks is sampled at a time"),
    "trainer.balance_batch": Same("the work of several ranks is always evened out"),
    "trainer.log_val_generations": Same("all held-out attempts are stored in the run directory; trackers get numbers"),
    "trainer.rollout_data_dir": Refused(STORED),
    "trainer.validation_data_dir": Refused(STORED),
    "trainer.esi_redundant_time": Refused(
        "a run does not know when its machine ends; it goes on from its newest checkpoint"
    ),
    "trainer.del_local_ckpt_after_load": Refused("checkpoints are deleted by trainer.max_ckpt_to_keep alone"),
    "trainer.max_actor_ckpt_to_keep": Alias("trainer.max_ckpt_to_keep", expand=lambda value, given: _kept(value)),
    "trainer.max_critic_ckpt_to_keep": Alias(
        "trainer.max_ckpt_to_keep", "a critic is part of the checkpoint", expand=lambda value, given: _kept(value)
    ),
    "trainer.load_checkpoint": Alias(
        "trainer.resume_from_path",
        "with trainer.resume_mode=resume_path",
        expand=lambda value, given: _resumed(value),
    ),
    "trainer.ray_wait_register_center_timeout": Alias("trainer.node_wait_s", "how long nodes are waited for"),
    "trainer.use_legacy_worker_impl": Same("it chooses between two programs of verl's for the same computation"),
    "trainer.use_v1": Same("it chooses between two programs of verl's for the same computation"),
    "trainer.v1.*": Refused(SCHEDULE),
    "trainer.print_config": Refused("`recollect train --cfg` prints the configuration", fine=(False,)),
    "hydra.*": Refused("these are Hydra's own; the run directory is trainer.default_local_dir", fine=(False,)),
    "transfer_queue.*": Refused("batches wait in the process that you started, and in its checkpoints"),
    "async_training.partial_rollout": Alias("trainer.partial_rollout"),
    "async_training.trigger_parameter_sync_step": Refused("the sampler gets the weights of every step", fine=(1,)),
    "async_training.require_batches": Refused("a step trains on one batch: data.train_batch_size", fine=(1,)),
    "async_training.use_trainer_do_validate": Refused("the sampler validates, with the newest weights", fine=(False,)),
    "async_training.parallel_validate_and_rollout": Refused("a validation is made between steps", fine=(False,)),
    "async_training.checkpoint_engine.*": Same(TRANSPORT),
    "async_training.*": Refused(SCHEDULE),
    "rollout.nnodes": Alias("actor_rollout_ref.rollout.nnodes"),
    "rollout.n_gpus_per_node": Alias("actor_rollout_ref.rollout.n_gpus_per_node"),
    "rollout.n": Alias("actor_rollout_ref.rollout.n"),
    "rollout.total_epochs": Alias("trainer.total_epochs"),
    "rollout.total_rollout_steps": Refused("it counts samples; a run is as long as trainer.total_training_steps says"),
    "rollout.test_freq": Refused("it counts hand-overs of weights; trainer.test_freq counts steps"),
    "rollout.max_concurrent_samples_per_replica": Refused("agent.max_concurrency bounds all attempts under way"),
    "distillation.*": Refused("there is no distillation; `recollect sft` imitates stored trajectories"),
    "skip.*": Refused("stored trajectories are learnt from with data.offline_files"),
    f"{ENV}.EMBEDDING_SERVICE_ENDPOINT": Alias("search.embedding_model", "the address of an embedding service"),
    f"{ENV}.PROMPT_TEMPLATE_PATH": Refused("the agents' prompts are recollect's own; memory.style chooses the wording"),
    **{
        f"{ENV}.{name}": Same("it only says whether files may be downloaded; set it in the environment of this command")
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE")
    },
    **{
        f"{ENV}.{name}": Same(
            "processes on nodes have the environment of `ray start` or of the job, all others that of this command"
        )
        for name in ("CUDA_HOME", "PATH", "LD_LIBRARY_PATH", "TRITON_*", "NCCL_*", "VLLM_*", "SGLANG_*", "RAY_*")
    },
    f"{ENV}.*": Refused(
        "set the variable in the environment of this command, and on nodes in that of `ray start`", when=_set_already
    ),
    "ray_kwargs.*": Same(RAY),
    "ray_init.*": Same(RAY),
}


def _batches(value: Any, given: Given) -> Mapping[str, Any]:
    """In verl 0 is no limit; here it is left out where nothing is filtered, and refused elsewhere."""
    off = value is None or (value == 0 and _without_filter("", value, given))
    return {} if off else {"algorithm.filter_groups.max_num_gen_batches": value}


def _kept(value: Any) -> Mapping[str, Any]:
    return {"trainer.max_ckpt_to_keep": value}  # null: all of them


def _resumed(path: Any) -> Mapping[str, Any]:
    return {"trainer.resume_mode": "resume_path", "trainer.resume_from_path": path} if path else {}
