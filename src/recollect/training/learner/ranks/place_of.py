"""From a configuration to ranks: how many, on which device, and how many of them share the weights."""

from __future__ import annotations

from recollect.config import Config
from recollect.config.nodes import learner_nodes, ranks_of_node
from recollect.dist.place import RankPlace
from recollect.models.device import thread_counts
from recollect.models.gpu_plan import RANKS as KEY
from recollect.models.gpu_plan import gpu_plan
from recollect.models.scratch_models import SCRATCH
from recollect.registries import ESTIMATORS
from recollect.types import BadInput

CRITIC_SIZE = "critic.fsdp_config.fsdp_size"


def place_of(cfg: Config) -> RankPlace | None:
    """The place of rank 0, with all that it has in common with the others; None: one process trains."""
    plan = gpu_plan(cfg)
    each = ranks_of_node(cfg)
    size = each * max(1, learner_nodes(cfg))
    if size < 2 and not (plan is not None and plan.apart):
        return None
    optimizers = {"actor_rollout_ref.actor.optim": cfg.actor_rollout_ref.actor.optim}
    if cfg.sft.steps > 0:
        optimizers["sft.optim"] = cfg.sft.optim
    for key, optim in optimizers.items():
        if optim.name == "muon":
            raise BadInput(f"{key}.name=muon needs whole matrices; use {key}.name=adamw, or {KEY}=1")
    offload = cfg.actor_rollout_ref.actor.fsdp_config
    shards = shards_of(offload.fsdp_size, size, "actor_rollout_ref.actor.fsdp_config.fsdp_size")
    if ESTIMATORS.knows(cfg.algorithm.adv_estimator, "needs_critic") and not cfg.critic.model.share_actor:
        shards_of(cfg.critic.fsdp_config.fsdp_size, size, CRITIC_SIZE)
        own, actor = cfg.critic.model.path, cfg.actor_rollout_ref.model.path
        if own in SCRATCH and own != actor:
            raise BadInput(f"critic.model.path={own}: ranks make one new model, the actor's, which is {actor}")
        if cfg.critic.optim.name == "muon":
            raise BadInput(f"critic.optim.name=muon needs whole matrices; use adamw, or {KEY}=1")
    threads = cfg.trainer.threads or max(1, thread_counts(0, 0)[1] // each)
    device, gpus = ("cpu", ()) if plan is None else ("cuda", plan.train)
    return RankPlace(0, size, 0, device, shards, threads, "", float(cfg.actor_rollout_ref.nccl_timeout), gpus)


def shards_of(asked: int, size: int, key: str) -> int:
    """How many ranks share one copy of the weights."""
    shards = size if asked == -1 else min(asked, size)
    if size % shards:
        raise BadInput(f"{key}={asked}: {size} ranks cannot be divided into sets of {shards}")
    return shards
