"""Settings that cannot work together are refused before anything starts, each with one line that says what is wrong.

What a single setting may be stands beside its field, in `schema/`. Each function here looks at one section of the tree
and yields what is wrong there.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence

from recollect.config import Config, amounts, nodes, prompt_file, roles, servers
from recollect.config.aliases import AGENT_NAMES, DR_GRPO_MODE
from recollect.config.reward_terms import EVERY_QUESTION, parse
from recollect.config.schema import bounds
from recollect.config.schema.data import SCREEN_CELL
from recollect.config.staleness import has_ratio
from recollect.images.image_files import MOST_PIXELS
from recollect.registries import AGENTS, ESTIMATORS, REWARDS, TOOLS
from recollect.types import BadInput

POLICY, ENGINE, MODEL = (f"actor_rollout_ref.{part}" for part in ("actor", "rollout", "model"))
Problems = Iterator[str]


def checked(cfg: Config) -> Config:
    """The configuration, if every value in it can work."""
    for section in SECTIONS:
        for problem in section(cfg):
            raise BadInput(problem)
    return cfg


def _agent(cfg: Config) -> Problems:
    agent = cfg.agent
    yield from _agent_tools(cfg)
    length = agent.max_tokens_per_turn or cfg.data.max_response_length
    if agent.max_context_length is not None and agent.max_context_length <= length:
        yield (
            f"agent.max_context_length={agent.max_context_length} leaves no room for a prompt: a turn alone may have "
            f"agent.max_tokens_per_turn={length} tokens"
        )


def _agent_name(cfg: Config) -> Problems:
    """The agent must exist, or be a function; other systems' names are known too."""
    name, override = cfg.agent.agent_type, cfg.actor_rollout_ref.rollout.agent_name_override
    if name in AGENTS or ":" in name:
        return
    key, choices = "agent.agent_type", tuple(AGENTS)
    if override == name:
        key, choices = "actor_rollout_ref.rollout.agent_name_override", (*AGENT_NAMES, *AGENTS)
    near = difflib.get_close_matches(name, choices, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    yield f"{key}={name} is unknown; {hint}known: {', '.join(choices)}, or module:function, or file.py:function"


def _agent_tools(cfg: Config) -> Problems:
    agent, spec = cfg.agent, AGENTS.of(cfg.agent.agent_type)
    if spec is None:
        return
    if agent.tools and not spec.uses_tools:
        yield (
            f"agent.tools={list(agent.tools)}: the agent {agent.agent_type} uses no tools; those that do: "
            + ", ".join(AGENTS.those("uses_tools"))
        )
    if not spec.uses_tools or spec.reads_document:
        return
    for tool in agent.tools:
        if ":" not in tool:
            yield from _known("agent.tools", tool, tuple(TOOLS), "or module:function, or file.py:function")
    wanted = spec.calls
    if not agent.tools and spec.needs_tools:
        yield f"agent.agent_type={agent.agent_type} needs agent.tools, for example [{[*wanted, *TOOLS][0]}]"
    elif wanted and agent.tool_parser is None and not any(":" in t or t in wanted for t in agent.tools):
        yield f"agent.agent_type={agent.agent_type} calls {' or '.join(wanted)}; put one of them into agent.tools"


def _gui(cfg: Config) -> Problems:
    kind = cfg.agent.agent_type
    for name in (term.name for term in parse(cfg.agent.reward_name)):
        if name.startswith("gui_") and AGENTS.of(kind) is not None and not AGENTS.knows(kind, "sees"):
            yield f"the reward {name} is about the screens of agent.agent_type=gui, and {kind} has none"
    shape = cfg.data.screen
    if (pixels := shape.rows * shape.columns * (SCREEN_CELL * shape.scale) ** 2) > MOST_PIXELS:
        yield f"data.screen: rows, columns and scale make {pixels:,} pixels; an image may have {MOST_PIXELS:,}"


def _judge(cfg: Config) -> Problems:
    named = [term.name for term in parse(cfg.agent.reward_name)]
    if EVERY_QUESTION in named:
        named += [score.partition("@")[0] for score in cfg.memory.scores]
    if "judge" in named and not cfg.judge.url:
        yield "the reward judge needs judge.url, the address of an OpenAI-compatible endpoint, or frozen:MODEL"


def _conversation(cfg: Config) -> Problems:
    if cfg.agent.prompts and cfg.agent.agent_type == "conversation_qa" and cfg.conversation.memory == "notes":
        yield "agent.prompts: conversation.memory=notes has the prompts of tool_memory; take another memory"


def _search(cfg: Config) -> Problems:
    if "search" in cfg.agent.tools and not (cfg.search.corpus or cfg.search.endpoint):
        yield "the tool search needs search.corpus=FOLDER or FILE, or search.endpoint=ADDRESS"


def _tool_memory(cfg: Config) -> Problems:
    scores = cfg.memory.scores
    for score in scores:
        name = score.partition("@")[0]
        if ":" not in name:
            yield from _known("memory.scores", name, list(REWARDS), "alone, or as reward@source")
    if sum("@" not in score for score in scores) != 1:
        yield f"memory.scores={list(scores)} needs one reward without a source, for all other sources"


def _data(cfg: Config) -> Problems:
    data = cfg.data
    if data.offline_files and ESTIMATORS.knows(estimator := cfg.algorithm.adv_estimator, "needs_greedy"):
        yield f"algorithm.adv_estimator={estimator} samples greedy baselines; data.offline_files has none: take another"
    if data.min_reward is not None and not (data.train_files or data.offline_files):
        yield f"data.min_reward={data.min_reward} chooses among stored trajectories: name them with data.train_files"
    if data.offline_files and data.train_files:
        yield "data.offline_files are learnt from without sampling: leave data.train_files out"


def _made_up(cfg: Config) -> Problems:
    needle = cfg.data.needle
    if needle.facts_per_chunk < needle.hops:
        yield f"data.needle.facts_per_chunk={needle.facts_per_chunk} must be at least {needle.hops}"
    kind, files = cfg.agent.agent_type, cfg.data.train_files or cfg.data.val_files
    if cfg.data.made_up == "ledger" and not files and (spec := AGENTS.of(kind)) and not spec.many_questions:
        able = ", ".join(AGENTS.those("many_questions"))
        yield f"data.made_up=ledger has several questions, and the agent {kind} answers one; use {able}"


def _model(cfg: Config) -> Problems:
    for place, model in ((MODEL, cfg.actor_rollout_ref.model), ("critic.model", cfg.critic.model)):
        if model.lora_rank > 0 and not model.target_modules:
            yield f"{place}.target_modules is empty: LoRA needs modules, for example [all-linear]"


def _actor(cfg: Config) -> Problems:
    actor = cfg.actor_rollout_ref.actor
    if actor.policy_loss.loss_mode == "dr_grpo" and actor.loss_agg_mode not in ("token-mean", DR_GRPO_MODE):
        yield (
            f"{POLICY}.policy_loss.loss_mode=dr_grpo means loss_agg_mode={DR_GRPO_MODE}, not {actor.loss_agg_mode}; "
            "drop one of the two"
        )
    if not actor.use_dynamic_bsz and actor.ppo_micro_batch_size_per_gpu is None:
        yield f"{POLICY}.use_dynamic_bsz=False needs {POLICY}.ppo_micro_batch_size_per_gpu"
    yield from _batches(cfg, POLICY, actor.ppo_mini_batch_size)


def _algorithm(cfg: Config) -> Problems:
    groups, n = cfg.algorithm.filter_groups, cfg.actor_rollout_ref.rollout.n
    if groups.enable and not groups.metric:
        yield "algorithm.filter_groups.metric is empty; it is reward, or a named part of the score"
    if groups.enable and n < 2:
        yield f"algorithm.filter_groups.enable=True with {ENGINE}.n=1: one sample never differs from itself"
    if cfg.algorithm.bypass_mode and cfg.algorithm.rollout_is is not None:
        yield (
            "algorithm.bypass_mode=True compares with the sampler in the loss's ratio, and "
            f"algorithm.rollout_is={cfg.algorithm.rollout_is} would do it again; leave one out"
        )
    if cfg.algorithm.bypass_mode and not has_ratio(cfg):
        yield (
            "algorithm.bypass_mode=True: the loss reinforce has no ratio in which an old policy plays a part; "
            "algorithm.rollout_is=token weighs it"
        )


def _critic(cfg: Config) -> Problems:
    critic, model = cfg.critic, cfg.critic.model
    spec = ESTIMATORS.of(cfg.algorithm.adv_estimator)
    if spec is None or not spec.needs_critic:  # a critic may be described without need
        if spec is not None:
            yield from warmup_problem(cfg)
        return
    yield from _batches(cfg, "critic", critic.ppo_mini_batch_size)
    if model.share_actor and model.path not in ("", cfg.actor_rollout_ref.model.path):
        yield f"critic.model.share_actor=True puts the value head on the actor, not on critic.model.path={model.path}"
    if model.share_actor and model.lora_rank:
        yield f"critic.model.share_actor=True: there is no model for critic.model.lora_rank={model.lora_rank}"
    if model.share_actor and critic.fsdp_config.param_offload:
        yield "critic.model.share_actor=True: there is no model for critic.fsdp_config.param_offload=True"


def warmup_problem(cfg: Config) -> Problems:
    """What is said about first steps of the critic's own where the estimator has none."""
    if cfg.trainer.critic_warmup > 0:
        able = " or ".join(ESTIMATORS.those("needs_critic"))
        yield f"trainer.critic_warmup={cfg.trainer.critic_warmup}: only algorithm.adv_estimator={able} has a critic"


def _evaluation(cfg: Config) -> Problems:
    lengths, tasks = cfg.evaluation.lengths, cfg.evaluation.tasks
    if len(lengths) != len(tasks) or not lengths:
        yield "evaluation.lengths and evaluation.tasks must have one entry for each length"


def val_only_problem(cfg: Config, tasks: bool) -> str:
    """What is said about trainer.val_only without held-out tasks; empty where all is well."""
    nothing = "trainer.val_only=True, but there is nothing to validate on: set data.val_files"
    return nothing if cfg.trainer.val_only and not tasks else ""


def _trainer(cfg: Config) -> Problems:
    trainer = cfg.trainer
    if trainer.resume_mode == "resume_path" and not trainer.resume_from_path:
        yield "trainer.resume_mode=resume_path needs trainer.resume_from_path"
    if trainer.resume_from_path and trainer.resume_mode != "resume_path":
        yield f"trainer.resume_from_path={trainer.resume_from_path} needs trainer.resume_mode=resume_path"
    if trainer.patience > 0 and not trainer.best_metric:
        yield f"trainer.patience={trainer.patience} needs trainer.best_metric, the metric that has to get better"
    if trainer.patience > 0 and trainer.test_freq <= 0:
        yield f"trainer.patience={trainer.patience} counts validations: set trainer.test_freq"
    if trainer.save_freq < 0 and trainer.best_metric:
        yield f"trainer.best_metric={trainer.best_metric} keeps a checkpoint, and trainer.save_freq=-1 saves none"
    if trainer.test_freq < 0 and trainer.best_metric:
        yield f"trainer.best_metric={trainer.best_metric} needs validations, and trainer.test_freq=-1 makes none"
    if trainer.max_staleness > 0 and cfg.data.offline_files:
        yield f"trainer.max_staleness={trainer.max_staleness}: data.offline_files are learnt from without sampling"
    if problem := val_only_problem(cfg, bool(cfg.data.val_files) or not cfg.data.train_files):
        yield problem


SECTIONS: tuple[Callable[[Config], Problems], ...] = (
    *(_agent_name, _conversation, prompt_file.problems),
    bounds.problems,
    amounts.problems,
    *(_agent, _tool_memory, _data, _made_up, _model, _actor, _algorithm, _critic),
    *(_evaluation, _trainer, _search, _judge, _gui),
    servers.problems,
    nodes.problems,
    roles.problems,
)


# ---- rules that several sections share ----


def _batches(cfg: Config, place: str, mini: int) -> Problems:
    batch = cfg.data.train_batch_size
    if mini > batch:
        n = cfg.actor_rollout_ref.rollout.n
        tasks = f"; it counts tasks, and {mini} attempts are {mini // n} of them" if n > 1 and mini % n == 0 else ""
        yield f"{place}.ppo_mini_batch_size={mini} is larger than data.train_batch_size={batch}{tasks}"
    elif mini and batch % mini:
        yield f"data.train_batch_size={batch} is not a multiple of {place}.ppo_mini_batch_size={mini}"


def _known(key: str, value: str, choices: Sequence[str], hint: str) -> Problems:
    if value not in choices:
        yield f"{key}={value} is unknown; known: {', '.join(choices)} ({hint})"
