"""Values that cannot work are refused before anything starts, each with one line that says what is wrong.

Each function looks at one section of the tree and yields what is wrong there.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from recollect.chat import TEMPLATES, TOOL_PARSERS
from recollect.config import Config, Optim, amounts, finite, roles, sandbox_rules
from recollect.config.aliases import AGENT_NAMES, DR_GRPO_MODE, LENGTH, SAMPLES
from recollect.config.reward_terms import parse
from recollect.config.schema.trainer import OWN_LOGGERS
from recollect.registries import AGENTS, AGGREGATIONS, ESTIMATORS, FAMILIES, KL, LOSSES, REWARDS, TOOLS, TRACKERS
from recollect.types import BadInput

ENGINES = ("engine", "vllm", "sglang", "trtllm", "hf")  # names of samplers; the first is the one there is
DTYPES = ("auto", "float32", "bfloat16")

POLICY, ENGINE, REF, MODEL = (f"actor_rollout_ref.{part}" for part in ("actor", "rollout", "ref", "model"))
MEMORY = "recurrent.memory.config"
Problems = Iterator[str]


def checked(cfg: Config) -> Config:
    """The configuration, if every value in it can work."""
    for section in SECTIONS:
        for problem in section(cfg):
            raise BadInput(problem)
    return cfg


def _agent(cfg: Config) -> Problems:
    agent = cfg.agent
    if agent.agent_type == "gui":
        yield f"agent.agent_type=gui works on a screen, which recollect has none of; known: {', '.join(AGENTS)}"
    yield from _agent_name(cfg)
    yield from _known("agent.backend", agent.backend, ["async_verl"], "the engine of this process generates")
    if agent.template is not None:
        yield from _known("agent.template", agent.template, list(TEMPLATES), "without it the tokenizer's own is used")
    spec = AGENTS.of(agent.agent_type)
    if agent.tools and spec is not None and not spec.uses_tools:
        yield (
            f"agent.tools={list(agent.tools)}: the agent {agent.agent_type} uses no tools; those that do: "
            + ", ".join(AGENTS.those("uses_tools"))
        )
    if spec is not None and spec.uses_tools and not spec.reads_document:
        for tool in agent.tools:
            if ":" not in tool:
                yield from _known("agent.tools", tool, tuple(TOOLS), "or module:function, or file.py:function")
        wanted = spec.calls
        if not agent.tools and spec.needs_tools:
            yield f"agent.agent_type={agent.agent_type} needs agent.tools, for example [{[*wanted, *TOOLS][0]}]"
        elif wanted and agent.tool_parser is None and not any(":" in t or t in wanted for t in agent.tools):
            yield f"agent.agent_type={agent.agent_type} calls {' or '.join(wanted)}; put one of them into agent.tools"
    if agent.tool_parser is not None and ":" not in agent.tool_parser:
        yield from _known("agent.tool_parser", agent.tool_parser, list(TOOL_PARSERS), "or module:function")
    yield from _positive(agent, "agent", "max_turns max_concurrency timeout_s reward_timeout_s max_context_length")
    length = agent.max_tokens_per_turn or cfg.data.max_response_length
    if agent.max_context_length is not None and agent.max_context_length <= length:
        yield (
            f"agent.max_context_length={agent.max_context_length} leaves no room for a prompt: a turn alone may have "
            f"agent.max_tokens_per_turn={length} tokens"
        )
    yield from _share("agent.max_failure_rate", agent.max_failure_rate)
    yield from _known("reward_model.reward_manager", cfg.reward_model.reward_manager, ["naive", "thread"])


def _agent_name(cfg: Config) -> Problems:
    """An agent must be one that there is, or a function; other systems' names are known too."""
    name, override = cfg.agent.agent_type, cfg.actor_rollout_ref.rollout.agent_name_override
    if name in AGENTS or ":" in name:
        return
    key, choices = "agent.agent_type", tuple(AGENTS)
    if override == name:
        key, choices = "actor_rollout_ref.rollout.agent_name_override", (*AGENT_NAMES, *AGENTS)
    near = difflib.get_close_matches(name, choices, 1)
    hint = f"did you mean {near[0]}? " if near else ""
    yield f"{key}={name} is unknown; {hint}known: {', '.join(choices)}, or module:function, or file.py:function"


def _judge(cfg: Config) -> Problems:
    judge = cfg.judge
    yield from _positive(judge, "judge", "max_tokens timeout_s")
    yield from _not_negative(judge, "judge", "retries")
    if judge.url and not judge.url.startswith(("http://", "https://")):
        yield f"judge.url={judge.url} is no address; it starts with http:// or https://"
    named = [term.name for term in parse(cfg.agent.reward_name)]
    if "memory_qa" in named:
        named += [score.partition("@")[0] for score in cfg.memory.scores]
    if "judge" in named and not judge.url:
        yield "the reward judge needs judge.url, the address of an OpenAI-compatible endpoint"


def _search(cfg: Config) -> Problems:
    search = cfg.search
    yield from _known("search.method", search.method, ["bm25", "dense", "hybrid"])
    yield from _known("search.endpoint_style", search.endpoint_style, ["json", "serper", "search_r1"])
    yield from _positive(search, "search", "top_k max_length timeout_s")
    if "search" in cfg.agent.tools and not (search.corpus or search.endpoint):
        yield "the tool search needs search.corpus=FOLDER or FILE, or search.endpoint=ADDRESS"
    if search.endpoint and not search.endpoint.startswith(("http://", "https://")):
        yield f"search.endpoint={search.endpoint} is no address; it starts with http:// or https://"


def _recurrent(cfg: Config) -> Problems:
    limits = cfg.recurrent.memory.config
    yield from _known("recurrent.enable", cfg.recurrent.enable or "null", ["memory", "null"])
    yield from _known(f"{MEMORY}.split", limits.split, ["token", "sentence"])
    yield from _known(f"{MEMORY}.layout", limits.layout, ["chunk_first", "memory_first"])
    yield from _known(f"{MEMORY}.style", limits.style, ["instruct", "plain"])
    yield from _positive(limits, MEMORY, "chunk_size max_prompt_length max_memorization_length")
    yield from _positive(limits, MEMORY, "max_final_response_length")
    yield from _not_negative(limits, MEMORY, "max_chunks")


def _tool_memory(cfg: Config) -> Problems:
    limits, rag = cfg.memory, cfg.rag
    yield from _known("memory.split", limits.split, ["token", "sentence"])
    yield from _known("memory.style", limits.style, ["instruct", "plain"])
    yield from _known("memory.truncate_side", limits.truncate_side, ["left", "middle", "right"])
    yield from _known("memory.search_in", limits.search_in, ["notes", "source"])
    for name in limits.search:
        yield from _known("memory.search", name, ["bm25", "embedding"])
    yield from _positive(limits, "memory", "chunk_size budget max_calls max_length max_turns top_k core_length")
    yield from _not_negative(limits, "memory", "max_chunks titles_length format_weight tool_weight")
    for score in limits.scores:
        name = score.partition("@")[0]
        if ":" not in name:
            yield from _known("memory.scores", name, list(REWARDS), "alone, or as reward@source")
    if sum("@" not in score for score in limits.scores) != 1:
        yield f"memory.scores={list(limits.scores)} needs one reward without a source, for all other sources"
    yield from _known("rag.method", rag.method, ["bm25", "dense", "hybrid"])
    yield from _positive(rag, "rag", "chunk_size top_k")


def _data(cfg: Config) -> Problems:
    data = cfg.data
    yield from _known("data.made_up", data.made_up, list(FAMILIES))
    yield from _known("data.truncation", data.truncation, ["error", "left", "right", "center"])
    yield from _positive(data, "data", "train_batch_size val_batch_size max_prompt_length")
    yield from _positive_by_any_name(LENGTH, data.max_response_length)
    yield from _from_minus_one(data, "data", "val_max_samples train_max_samples")
    if data.train_max_samples == 0:
        yield "data.train_max_samples=0 leaves nothing to train on; -1 takes all"
    yield from _not_negative(data, "data", "seed")
    if data.offline_files and ESTIMATORS.knows(estimator := cfg.algorithm.adv_estimator, "needs_greedy"):
        yield f"algorithm.adv_estimator={estimator} samples greedy baselines; data.offline_files has none: take another"
    if data.min_reward is not None and not (data.train_files or data.offline_files):
        yield f"data.min_reward={data.min_reward} chooses among stored trajectories: name them with data.train_files"
    if data.offline_files and data.train_files:
        yield "data.offline_files are learnt from without sampling: leave data.train_files out"
    for name in ("prompt_key", "context_key", "answer_key"):
        if not getattr(data, name):
            yield f"data.{name} is empty; name the field"


def _ledger(cfg: Config) -> Problems:
    ledger = cfg.data.ledger
    yield from _positive(ledger, "data.ledger", "sessions entries accounts questions")
    for name in ("hard", "early"):
        yield from _share(f"data.ledger.{name}", getattr(ledger, name))
    kind, files = cfg.agent.agent_type, cfg.data.train_files or cfg.data.val_files
    if cfg.data.made_up == "ledger" and not files and (spec := AGENTS.of(kind)) and not spec.many_questions:
        able = ", ".join(AGENTS.those("many_questions"))
        yield f"data.made_up=ledger has several questions, and the agent {kind} answers one; use {able}"
    if ledger.accounts < 2:
        yield f"data.ledger.accounts={ledger.accounts}: a book has at least 2"


def _needle(cfg: Config) -> Problems:
    needle = cfg.data.needle
    yield from _positive(needle, "data.needle", "chunks start_chunks")
    for name in ("similar", "val_similar", "recall", "chained", "memory_first"):
        yield from _share(f"data.needle.{name}", getattr(needle, name))
    if needle.drill < 0:
        yield f"data.needle.drill={needle.drill} must not be negative"
    if needle.facts_per_chunk < needle.hops:
        yield f"data.needle.facts_per_chunk={needle.facts_per_chunk} must be at least {needle.hops}"
    if needle.hops not in (1, 2):
        yield f"data.needle.hops={needle.hops} must be 1 or 2"


def _model(cfg: Config) -> Problems:
    for place, model in ((MODEL, cfg.actor_rollout_ref.model), ("critic.model", cfg.critic.model)):
        if not model.path and place == MODEL:
            yield f"{place}.path is empty; name a folder, a hub name or tiny"
        yield from _not_negative(model, place, "lora_rank")
        yield from _positive(model, place, "lora_alpha")
        if not 0 <= model.lora_dropout < 1:
            yield f"{place}.lora_dropout={model.lora_dropout} must be in [0, 1)"
        if model.lora_rank > 0 and not model.target_modules:
            yield f"{place}.target_modules is empty: LoRA needs modules, for example [all-linear]"


def _actor(cfg: Config) -> Problems:
    actor = cfg.actor_rollout_ref.actor
    if ":" not in actor.policy_loss.loss_mode:
        yield from _known(f"{POLICY}.policy_loss.loss_mode", actor.policy_loss.loss_mode, tuple(LOSSES))
    yield from _known(f"{POLICY}.loss_agg_mode", actor.loss_agg_mode, tuple(AGGREGATIONS))
    yield from _known(f"{POLICY}.kl_loss_type", actor.kl_loss_type, tuple(KL))
    yield from _known(f"{POLICY}.dtype", actor.dtype, DTYPES)
    yield from _optim(f"{POLICY}.optim", actor.optim)
    yield from _positive(actor, POLICY, "ppo_epochs ppo_max_token_len_per_gpu ppo_micro_batch_size_per_gpu grad_clip")
    yield from _positive(actor, POLICY, "loss_scale_factor target_kl")
    yield from _not_negative(actor, POLICY, "clip_ratio clip_ratio_low clip_ratio_high entropy_coeff kl_loss_coef")
    if not actor.clip_ratio_c > 1:
        yield f"{POLICY}.clip_ratio_c={actor.clip_ratio_c} must be larger than 1"
    if actor.policy_loss.loss_mode == "dr_grpo" and actor.loss_agg_mode not in ("token-mean", DR_GRPO_MODE):
        yield (
            f"{POLICY}.policy_loss.loss_mode=dr_grpo means loss_agg_mode={DR_GRPO_MODE}, not {actor.loss_agg_mode}; "
            "drop one of the two"
        )
    if not actor.use_dynamic_bsz and actor.ppo_micro_batch_size_per_gpu is None:
        yield f"{POLICY}.use_dynamic_bsz=False needs {POLICY}.ppo_micro_batch_size_per_gpu"
    yield from _batches(cfg, POLICY, actor.ppo_mini_batch_size)
    yield from _only_one(f"{POLICY}.ulysses_sequence_parallel_size", actor.ulysses_sequence_parallel_size)
    yield from _fsdp(f"{POLICY}.fsdp_config", actor.fsdp_config.fsdp_size)


def _rollout(cfg: Config) -> Problems:
    rollout, ref = cfg.actor_rollout_ref.rollout, cfg.actor_rollout_ref.ref
    yield from _known(f"{ENGINE}.name", rollout.name, ENGINES)
    yield from _known(f"{ENGINE}.dtype", rollout.dtype, DTYPES)
    yield from _not_negative(rollout, ENGINE, "seed")
    yield from _positive(rollout, ENGINE, "temperature")
    yield from _not_negative(rollout.val_kwargs, f"{ENGINE}.val_kwargs", "temperature")
    for place, sampling in ((ENGINE, rollout), (f"{ENGINE}.val_kwargs", rollout.val_kwargs)):
        yield from _from_minus_one(sampling, place, "top_k")
        if not 0 < sampling.top_p <= 1:
            yield f"{place}.top_p={sampling.top_p} must be in (0, 1]"
    yield from _positive_by_any_name(SAMPLES, rollout.n)
    yield from _positive(rollout.val_kwargs, f"{ENGINE}.val_kwargs", "n")
    yield from _positive(rollout, ENGINE, "max_num_seqs max_num_batched_tokens")
    yield from _positive(rollout, ENGINE, "log_prob_micro_batch_size_per_gpu log_prob_max_token_len_per_gpu")
    yield from _not_negative(rollout, ENGINE, "prefix_cache_tokens fixed_model_retries fixed_model_wait_s")
    yield from _positive(rollout, ENGINE, "fixed_model_timeout_s fixed_model_concurrency")
    if not 0 < rollout.gpu_memory_utilization <= 1:
        yield f"{ENGINE}.gpu_memory_utilization={rollout.gpu_memory_utilization} must be in (0, 1]"
    yield from _only_one(f"{ENGINE}.tensor_model_parallel_size", rollout.tensor_model_parallel_size)
    yield from _positive(ref, REF, "log_prob_micro_batch_size_per_gpu log_prob_max_token_len_per_gpu")


def _algorithm(cfg: Config) -> Problems:
    algorithm, groups, control = cfg.algorithm, cfg.algorithm.filter_groups, cfg.algorithm.kl_ctrl
    if ":" not in algorithm.adv_estimator:
        yield from _known("algorithm.adv_estimator", algorithm.adv_estimator, tuple(ESTIMATORS))
    yield from _known("algorithm.group_by", algorithm.group_by, ["task", "role", "question"])
    yield from _known("algorithm.kl_penalty", algorithm.kl_penalty, tuple(KL))
    yield from _known("algorithm.kl_ctrl.type", control.type, ["fixed", "adaptive"])
    yield from _known("algorithm.rollout_is", algorithm.rollout_is or "null", ["token", "sequence", "null"])
    yield from _share("algorithm.gamma", algorithm.gamma)
    yield from _share("algorithm.lam", algorithm.lam)
    yield from _positive(algorithm, "algorithm", "rollout_is_threshold")
    yield from _not_negative(control, "algorithm.kl_ctrl", "kl_coef")
    yield from _positive(control, "algorithm.kl_ctrl", "target_kl horizon")
    yield from _positive(groups, "algorithm.filter_groups", "max_num_gen_batches")
    if groups.enable and not groups.metric:
        yield "algorithm.filter_groups.metric is empty; it is reward, or a named part of the score"
    if groups.enable and cfg.actor_rollout_ref.rollout.n < 2:
        yield f"algorithm.filter_groups.enable=True with {ENGINE}.n=1: one sample never differs from itself"


def _critic(cfg: Config) -> Problems:
    critic, model = cfg.critic, cfg.critic.model
    yield from _optim("critic.optim", critic.optim)
    yield from _known("critic.loss_agg_mode", critic.loss_agg_mode, tuple(AGGREGATIONS))
    yield from _positive(critic, "critic", "ppo_epochs ppo_max_token_len_per_gpu ppo_micro_batch_size_per_gpu")
    yield from _positive(critic, "critic", "cliprange_value grad_clip loss_coef")
    yield from _fsdp("critic.fsdp_config", critic.fsdp_config.fsdp_size)
    if not ESTIMATORS.knows(cfg.algorithm.adv_estimator, "needs_critic"):  # a critic may be described without need
        if cfg.trainer.critic_warmup > 0:
            able = " or ".join(ESTIMATORS.those("needs_critic"))
            yield f"trainer.critic_warmup={cfg.trainer.critic_warmup}: only algorithm.adv_estimator={able} has a critic"
        return
    yield from _batches(cfg, "critic", critic.ppo_mini_batch_size)
    if model.share_actor and model.path not in ("", cfg.actor_rollout_ref.model.path):
        yield f"critic.model.share_actor=True puts the value head on the actor, not on critic.model.path={model.path}"
    if model.share_actor and model.lora_rank:
        yield f"critic.model.share_actor=True: there is no model for critic.model.lora_rank={model.lora_rank}"
    if model.share_actor and critic.fsdp_config.param_offload:
        yield "critic.model.share_actor=True: there is no model for critic.fsdp_config.param_offload=True"


def _sft(cfg: Config) -> Problems:
    yield from _known("sft.export_dtype", cfg.sft.export_dtype, ["float32", "bfloat16"])
    yield from _optim("sft.optim", cfg.sft.optim)
    yield from _positive(cfg.sft, "sft", "batch_size")
    yield from _known("sft.overlong", cfg.sft.overlong, ["cut", "drop", "error"])
    yield from _not_negative(cfg.sft, "sft", "steps workers max_length log_freq")
    yield from _from_minus_one(cfg.sft, "sft", "test_freq save_freq")


def _evaluation(cfg: Config) -> Problems:
    lengths, tasks = cfg.evaluation.lengths, cfg.evaluation.tasks
    if len(lengths) != len(tasks) or not lengths:
        yield "evaluation.lengths and evaluation.tasks must have one entry for each length"
    for name, values in (("lengths", lengths), ("tasks", tasks)):
        for i, value in enumerate(values):
            if not value > 0:
                yield f"evaluation.{name}[{i}]={value} must be positive"
    if cfg.evaluation.first < 0:
        yield f"evaluation.first={cfg.evaluation.first} must not be negative"


def _trainer(cfg: Config) -> Problems:
    trainer = cfg.trainer
    for name in trainer.logger:
        if ":" not in name:
            yield from _known("trainer.logger", name, (*OWN_LOGGERS, *TRACKERS))
    yield from _known("trainer.device", trainer.device, ["auto", "cpu", "cuda"])
    yield from _known("trainer.resume_mode", trainer.resume_mode, ["auto", "disable", "resume_path"])
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
    if trainer.val_only and cfg.data.train_files and not cfg.data.val_files:
        yield "trainer.val_only=True, but there is nothing to validate on: set data.val_files"
    yield from _positive(trainer, "trainer", "total_epochs max_ckpt_to_keep")
    yield from _not_negative(trainer, "trainer", "total_training_steps threads critic_warmup patience seed")
    yield from _from_minus_one(trainer, "trainer", "save_freq test_freq")
    yield from _one_device(cfg)


def _one_device(cfg: Config) -> Problems:
    trainer = cfg.trainer
    yield from _only_one("trainer.nnodes", trainer.nnodes)
    if trainer.n_gpus_per_node != 0:
        yield from _only_one("trainer.n_gpus_per_node", trainer.n_gpus_per_node)
    if trainer.default_hdfs_dir is not None:
        yield f"trainer.default_hdfs_dir={trainer.default_hdfs_dir}: checkpoints stay in the run directory; set null"


SECTIONS: tuple[Callable[[Config], Problems], ...] = (
    finite.problems,
    amounts.problems,
    *(_agent, _recurrent, _tool_memory, _data, _needle, _ledger, _model, _actor, _rollout, _algorithm, _critic),
    *(_sft, _evaluation, _trainer, _search, _judge),
    sandbox_rules.problems,
    roles.problems,
)


# ---- rules that several sections share ----


def _optim(place: str, optim: Optim) -> Problems:
    yield from _known(f"{place}.name", optim.name, ["adamw", "muon"])
    yield from _known(f"{place}.lr_scheduler_type", optim.lr_scheduler_type, ["constant", "linear", "cosine"])
    yield from _not_negative(optim, place, "lr weight_decay")
    yield from _from_minus_one(optim, place, "lr_warmup_steps")
    yield from _share(f"{place}.lr_warmup_steps_ratio", optim.lr_warmup_steps_ratio)
    yield from _share(f"{place}.min_lr_ratio", optim.min_lr_ratio)
    if len(optim.betas) != 2 or not all(0 <= b < 1 for b in optim.betas):
        yield f"{place}.betas={list(optim.betas)} must be two numbers in [0, 1)"


def _batches(cfg: Config, place: str, mini: int) -> Problems:
    batch = cfg.data.train_batch_size
    if mini < 0:
        yield f"{place}.ppo_mini_batch_size={mini} must not be negative"
    elif mini > batch:
        n = cfg.actor_rollout_ref.rollout.n
        tasks = f"; it counts tasks, and {mini} attempts are {mini // n} of them" if n > 1 and mini % n == 0 else ""
        yield f"{place}.ppo_mini_batch_size={mini} is larger than data.train_batch_size={batch}{tasks}"
    elif mini and batch % mini:
        yield f"data.train_batch_size={batch} is not a multiple of {place}.ppo_mini_batch_size={mini}"


def _only_one(key: str, value: int) -> Problems:
    if value != 1:
        yield f"{key}={value} needs several GPUs, and this version trains on one device; set {key}=1"


def _fsdp(place: str, size: int) -> Problems:
    if size < -1 or size == 0:
        yield f"{place}.fsdp_size={size} must be -1 (all devices of the run) or a number of devices"


def _known(key: str, value: str, choices: Sequence[str], hint: str = "") -> Problems:
    if value not in choices:
        yield f"{key}={value} is unknown; known: {', '.join(choices)}" + (f" ({hint})" if hint else "")


def _values(section: Any, place: str, names: str) -> Mapping[str, Any]:
    """Dotted key → value of some fields; those that are not given are left out."""
    return {f"{place}.{n}": v for n in names.split() if (v := getattr(section, n)) is not None}


def _positive(section: Any, place: str, names: str) -> Problems:
    yield from (f"{k}={v} must be positive" for k, v in _values(section, place, names).items() if not v > 0)


def _positive_by_any_name(names: Sequence[str], value: int) -> Problems:
    """The rule for a setting with several names, of which the user may know any."""
    if not value > 0:
        yield f"{names[-1]}={value} must be positive (other names of it: {', '.join(names[:-1])})"


def _not_negative(section: Any, place: str, names: str) -> Problems:
    yield from (f"{k}={v} must not be negative" for k, v in _values(section, place, names).items() if not v >= 0)


def _from_minus_one(section: Any, place: str, names: str) -> Problems:
    yield from (f"{k}={v} must be -1 or more" for k, v in _values(section, place, names).items() if not v >= -1)


def _share(key: str, value: float) -> Problems:
    if not 0 <= value <= 1:
        yield f"{key}={value} must be between 0 and 1"
