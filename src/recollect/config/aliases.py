"""Several keys may say the same thing: make them agree, so that the rest of the program reads one of them.

``resolve`` is a pure function and its result is a fixed point: a stored configuration composes to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from typing import Any

from recollect.config import Config, Data, Rollout
from recollect.config.schema.bounds import other_names
from recollect.config.staleness import has_ratio
from recollect.config.translate.agent_keys import plain
from recollect.types import BadInput

SAMPLES = (*other_names(Rollout, "n"), "actor_rollout_ref.rollout.n")
LENGTH = (*other_names(Data, "max_response_length"), "data.max_response_length")
MODEL = ("agent.model_name_or_path", "actor_rollout_ref.model.path")
GROUPS = (SAMPLES, LENGTH, MODEL)
FOLLOWERS = {  # a key that takes another's value unless it is given
    "critic.model.path": "actor_rollout_ref.model.path",
    "critic.ppo_mini_batch_size": "actor_rollout_ref.actor.ppo_mini_batch_size",
    "critic.ppo_epochs": "actor_rollout_ref.actor.ppo_epochs",
    "critic.shuffle": "actor_rollout_ref.actor.shuffle",
}
SHORT = {"min_reward": "sft.min_reward"}  # short names on a command line
AGENT_NAMES = {  # names of other systems
    "tool_mem_agent": "tool_memory",
    "tool_mem_agent_twostage": "tool_memory",
    "mem_agent": "recurrent",
    "single_turn_agent": "chat",
    "tool_agent": "hf",
}
BUDGET, BUDGETS = 4096, {"conversation_qa": 20_000}  # of memory.budget, and of agents with another
DR_GRPO_MODE = "seq-mean-token-sum-norm"
STAGES = {"memory": "qa", "qa": "memory"}  # the trained role of a stage, and the fixed one


def resolve(cfg: Config) -> Config:
    """A copy in which aliases agree and what follows from a choice is written down."""
    cfg = deepcopy(cfg)
    for step in (
        _samples,
        _length,
        _model,
        _override,
        _agent,
        _stage,
        _loss,
        _staleness,
        _critic,
        _truncation,
        _budget,
    ):
        step(cfg)
    return cfg


def canonical(key: str) -> str:
    """The one name of a key: `agent.init_args.X` is `agent.X`, and some have a short name."""
    return plain(SHORT.get(key, key))


def stale(given: Mapping[str, Any], now: Callable[[str], Any]) -> list[str]:
    """Keys of an earlier layer that go back to their default because a later layer sets ``given``.

    Where a recipe says `rollout.n` and the command line `agent.num_chains`, the command line is meant.
    """
    out = [k for group in GROUPS if _any(group, given) for k in group if k not in given]
    out += [f for f, lead in FOLLOWERS.items() if lead in given and f not in given and now(f) == now(lead)]
    if "critic.model.path" not in given and _any(MODEL, given) and now("critic.model.path") == now(MODEL[1]):
        out.append("critic.model.path")
    if "agent.agent_type" in given:
        out += [k for k in ("recurrent.enable", "agent.use_agent") if k not in given]
    elif given.get("recurrent.enable") and ":" not in now("agent.agent_type"):
        out += ["agent.agent_type", *(["agent.use_agent"] if "agent.use_agent" not in given else [])]
    return list(dict.fromkeys(out))


def refuse_contradictions(given: Mapping[str, Any]) -> None:
    """Refuse a command that gives two values for the same thing."""
    for first, second in (SAMPLES, MODEL):
        if None not in (given.get(first), given.get(second)) and given[first] != given[second]:
            raise BadInput(
                f"{first}={given[first]} and {second}={given[second]} are the same setting; give one of them"
            )
    kind, memory = given.get("agent.agent_type", "recurrent"), given.get("recurrent.enable")
    if memory and ":" not in str(kind) and kind != "recurrent":
        raise BadInput(f"recurrent.enable={memory} and agent.agent_type={kind} name different agents; give one of them")


def _any(keys: Collection[str], given: Mapping[str, Any]) -> bool:
    return any(key in given for key in keys)


def _samples(cfg: Config) -> None:
    rollout = cfg.actor_rollout_ref.rollout
    if cfg.agent.num_chains is not None:
        rollout.n = cfg.agent.num_chains
    cfg.agent.num_chains = rollout.n


def _length(cfg: Config) -> None:
    agent, rollout, data = cfg.agent, cfg.actor_rollout_ref.rollout, cfg.data
    given = (agent.max_tokens_per_turn, rollout.response_length, data.max_response_length)
    length = next(value for value in given if value is not None)
    agent.max_tokens_per_turn = rollout.response_length = data.max_response_length = length


def _model(cfg: Config) -> None:
    model, name = cfg.actor_rollout_ref.model, cfg.agent.model_name_or_path
    if name and name != model.path:
        if model.path != Config().actor_rollout_ref.model.path:
            raise BadInput(
                f"agent.model_name_or_path={name} and actor_rollout_ref.model.path={model.path} are the same setting; "
                "give one of them"
            )
        model.path = name
    cfg.agent.model_name_or_path = model.path


def _override(cfg: Config) -> None:
    name = cfg.actor_rollout_ref.rollout.agent_name_override
    if name:
        cfg.agent.agent_type = AGENT_NAMES.get(name, name)


def _stage(cfg: Config) -> None:
    """`training_stage` in the general form: one role is trained, the other is the fixed model."""
    rollout = cfg.actor_rollout_ref.rollout
    stage = rollout.training_stage
    if stage is None:
        if rollout.fixed_model_api and not any(text.startswith("endpoint") for text in cfg.roles.values()):
            raise BadInput(
                f"actor_rollout_ref.rollout.fixed_model_api={rollout.fixed_model_api} is for which role? Set "
                "actor_rollout_ref.rollout.training_stage=memory or qa, or roles.NAME=endpoint"
            )
        return
    if stage not in STAGES:
        raise BadInput(f"actor_rollout_ref.rollout.training_stage={stage} is unknown; known: {', '.join(STAGES)}")
    fixed = STAGES[stage]
    if not rollout.fixed_model_api and fixed not in cfg.roles:
        raise BadInput(
            f"actor_rollout_ref.rollout.fixed_model_api is required with training_stage={stage}: the address of the "
            f"fixed {fixed} model, such as http://localhost:8000/v1 (or set roles.{fixed}=frozen:DIR)"
        )
    cfg.roles = {stage: "trainable", fixed: "endpoint", **cfg.roles}
    if cfg.roles[stage] != "trainable":
        raise BadInput(
            f"actor_rollout_ref.rollout.training_stage={stage} and roles.{stage}={cfg.roles[stage]} contradict"
        )


def _agent(cfg: Config) -> None:
    agent, recurrent = cfg.agent, cfg.recurrent
    agent.agent_type = AGENT_NAMES.get(agent.agent_type, agent.agent_type)
    if not agent.use_agent or (agent.agent_type == "recurrent" and recurrent.enable is None):
        agent.agent_type = "chat"
    if agent.agent_type != "recurrent":
        recurrent.enable = None


def _loss(cfg: Config) -> None:
    actor = cfg.actor_rollout_ref.actor
    if actor.policy_loss.loss_mode == "vanilla":
        actor.policy_loss.loss_mode = "ppo"
    if actor.policy_loss.loss_mode == "dr_grpo":
        cfg.algorithm.norm_adv_by_std_in_grpo = False
        if actor.loss_agg_mode == Config().actor_rollout_ref.actor.loss_agg_mode:
            actor.loss_agg_mode = DR_GRPO_MODE


def _staleness(cfg: Config) -> None:
    """What other weights have sampled is compared with them: by the loss's ratio, or by a weight beside it."""
    algorithm, ahead = cfg.algorithm, cfg.trainer.max_staleness > 0
    if not ahead or algorithm.rollout_is is not None:
        return
    if algorithm.bypass_mode is None:
        algorithm.bypass_mode = has_ratio(cfg)
    if not algorithm.bypass_mode:
        algorithm.rollout_is = "token"


def _critic(cfg: Config) -> None:
    critic, policy = cfg.critic, cfg.actor_rollout_ref
    critic.model.path = critic.model.path or policy.model.path
    if critic.model.share_actor and critic.model.path == policy.model.path:
        critic.model.path = ""  # it has no model of its own
    critic.ppo_mini_batch_size = critic.ppo_mini_batch_size or policy.actor.ppo_mini_batch_size
    if critic.ppo_epochs is None:
        critic.ppo_epochs = policy.actor.ppo_epochs
    if critic.shuffle is None:
        critic.shuffle = policy.actor.shuffle


def _budget(cfg: Config) -> None:
    if cfg.memory.budget is None:
        cfg.memory.budget = BUDGETS.get(cfg.agent.agent_type, BUDGET)


def task_seed(cfg: Config) -> int:
    """The seed of the order of tasks."""
    return cfg.trainer.seed if cfg.data.seed is None else cfg.data.seed


def sampling_seed(cfg: Config) -> int:
    """The seed of the sampling noise."""
    seed = cfg.actor_rollout_ref.rollout.seed
    return cfg.trainer.seed if seed is None else seed


def _truncation(cfg: Config) -> None:
    if cfg.data.truncation == "middle":
        cfg.data.truncation = "center"
