"""What a rank does for the learner: it makes the model that the settings name, then what the driver asks for."""

from __future__ import annotations

from typing import Any

import torch

from recollect.dist.place import RankPlace, meet
from recollect.dist.ranks import Passed
from recollect.engine import load_fitted
from recollect.models.device import pick_dtype
from recollect.models.kind_check import refuse_sight_of_ranks
from recollect.models.lora import halve_base, is_adapted
from recollect.models.text_config import text_config
from recollect.registries import ESTIMATORS
from recollect.training.learner.adapt import adapt
from recollect.training.learner.critic import value_head
from recollect.training.learner.forward import check_head
from recollect.training.learner.ranks.rank_learner import RankLearner, refuse_optimizer
from recollect.training.learner.ranks.rank_settings import Handle, RankSettings, halved
from recollect.training.learner.ranks.rank_world import RankWorld, idle_pass
from recollect.training.learner.trained_model import TrainedModel


class LearnerRank:
    """The objects of a rank by their numbers; 0 is the learner."""

    def __init__(self, place: RankPlace, settings: RankSettings, passed: Passed) -> None:
        meet(place)
        self.passed = passed
        learner = make_rank_learner(settings, place)
        self.objects: dict[int, Any] = {0: learner}
        learner.watch(passed)

    def about(self) -> Any:
        """What the driver wants to know first."""
        return self.objects[0].facts

    def call(self, target: int, name: str, given: dict[str, Any], made: int | None) -> Any:
        """Call a method of an object, whose result may be a new object."""
        known = {key: self.objects[v.number] if isinstance(v, Handle) else v for key, v in given.items()}
        found = getattr(self.objects[target], name)(**known)
        if made is None:
            return found
        self.objects[made] = found
        found.watch(self.passed)
        return None


def make_rank_learner(settings: RankSettings, place: RankPlace) -> RankLearner:
    """This rank's learner of a model folder."""
    cfg = halved(settings.cfg, settings.halvings)
    policy = cfg.actor_rollout_ref
    refuse_optimizer(settings.optim)
    model = load_fitted(settings.path, torch.float32, "cpu")
    refuse_sight_of_ranks(model.config, policy.model.path)
    check_head(model)
    adapt(model, policy.model, policy.model.path, cfg.trainer.seed)
    dtype = pick_dtype(policy.actor.dtype, place.device)
    if dtype == torch.bfloat16 and is_adapted(model):
        halve_base(model)
    world = RankWorld(place, dtype, text_config(model).hidden_size, policy.actor.fsdp_config.reshard_after_forward)
    shared = ESTIMATORS.knows(cfg.algorithm.adv_estimator, "needs_critic") and cfg.critic.model.share_actor
    head = value_head(model.base_model) if shared else None
    world.beside = () if head is None else (head,)
    clip, seed = policy.actor.grad_clip, cfg.trainer.seed
    trained = TrainedModel(
        *(model, settings.optim, settings.updates, dtype, clip, place.threads),
        offload=policy.actor.fsdp_config,
        seed=seed,
        world=world,
    )
    trained.prediction(idle_pass())  # weights are first put together while all that is trained is marked so
    return RankLearner(cfg, trained, settings.path, head)
