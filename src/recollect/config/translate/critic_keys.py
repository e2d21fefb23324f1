"""Answers to `critic.*`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recollect.config.translate.key_answer import Alias, Answer, Given, Refused, Same
from recollect.config.translate.policy_keys import CUT, DTYPES, GPUS, SPARING, both, fsdp, model, optim
from recollect.registries import ESTIMATORS

TYPE = Refused("the critic computes in the actor's type: actor.dtype", fine=tuple(DTYPES.values()))


def _as_the_estimator(key: str, value: Any, given: Given) -> bool:
    return bool(value) == ESTIMATORS.knows(str(given.get("algorithm.adv_estimator", "")), "needs_critic")


ANSWERS: Mapping[str, Answer] = {
    **fsdp("critic.model.fsdp_config", "critic.fsdp_config", TYPE),
    **fsdp("critic.fsdp", "critic.fsdp_config", TYPE),
    **optim("critic.optim", "critic.grad_clip"),
    **both("critic"),
    **model("critic.model"),
    "critic.model.use_remove_padding": Same(SPARING),
    "critic.enable": Refused("algorithm.adv_estimator=gae has a critic, the others have none", when=_as_the_estimator),
    "critic.ppo_micro_batch_size": Alias("critic.ppo_micro_batch_size_per_gpu", "it counts for each GPU"),
    "critic.forward_micro_batch_size": Same(CUT),
    "critic.forward_micro_batch_size_per_gpu": Same(CUT),
    "critic.forward_max_token_len_per_gpu": Same(CUT),
    "critic.use_dynamic_bsz": Same(CUT),
    "critic.ulysses_sequence_parallel_size": Refused(GPUS, fine=(1,)),
    "critic.loss_scale_factor": Refused("the critic's divisor is the longest completion"),
    "critic.nccl_timeout": Same("actor_rollout_ref.nccl_timeout is that of all ranks"),
}
