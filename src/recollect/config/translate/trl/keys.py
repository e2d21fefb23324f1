"""Every key of `trl_defaults.yaml` and `rl_defaults.yaml`, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from recollect.config.translate.trl.values import count, flag, mapping, number, one_of, text, texts, whole
from recollect.registries import TRACKERS

Values = Mapping[str, Any]
Settings = dict[str, Any]
MODEL, ACTOR, ENGINE = (f"actor_rollout_ref.{part}" for part in ("model", "actor", "rollout"))


@dataclass(frozen=True)
class TRLKey:
    """One key of a file."""

    name: str
    read: Callable[[Any], Any]  # the value, or ValueError
    becomes: tuple[str, ...] = ()  # keys of recollect; none: no value of it changes the result
    how: str = ""  # in what way, or why nothing changes
    default: Any = None  # where a file leaves it out: the value of VideoMultiAgents' own file
    make: Callable[[Values], Settings] | None = None  # from all values; None: ``becomes`` get the value as it is
    refuse: Callable[[Any], str] | None = None  # why a value cannot be had; empty: it can

    def settings(self, values: Values) -> Settings:
        """What the key sets."""
        return self.make(values) if self.make is not None else dict.fromkeys(self.becomes, values[self.name])


def trackers(values: Values) -> Settings:
    """The console and the trackers that are named."""
    named = [*values.get("report_to", []), *([values["log_with"]] if values.get("log_with") else [])]
    return {"trainer.logger": ["console", *dict.fromkeys(n for n in named if n != "none")]}


def unknown_tracker(value: str | list[str]) -> str:
    """A tracker that there is none of."""
    named = [value] if isinstance(value, str) else value
    odd = next((name for name in named if name not in (*TRACKERS, "none")), None)
    return "" if odd is None else f"{odd} is no tracker here; known: {', '.join((*TRACKERS, 'none'))}"


def _run_folder(values: Values) -> Settings:
    if "out_dir" not in values:
        return {}
    tool = values.get("tool")
    return {"trainer.default_local_dir": f"{values['out_dir']}/{tool}" if tool else values["out_dir"]}


def _batch(values: Values) -> Settings:
    return {"sft.batch_size": values["per_device_train_batch_size"] * values["gradient_accumulation_steps"]}


def _schedule(values: Values) -> Settings:
    """transformers' `constant` has no warm-up; `constant_with_warmup` has."""
    kind = values["lr_scheduler_type"]
    ratio = 0.0 if kind == "constant" else values["warmup_ratio"]
    shape = {"sft.optim.lr_scheduler_type": kind.removesuffix("_with_warmup")}
    return {**shape, "sft.optim.lr_warmup_steps": -1, "sft.optim.lr_warmup_steps_ratio": ratio}


def _evaluation(values: Values) -> Settings:
    return {"sft.test_freq": values["eval_steps"] if values["eval_strategy"] == "steps" else -1}


def _steps(values: Values) -> Settings:
    return {"sft.steps": max(0, values["max_steps"])}


def _compute(values: Values) -> Settings:
    return {f"{ACTOR}.dtype": "bfloat16" if values["bf16"] else "float32"}


def _rl_warmup(values: Values) -> Settings:
    return {f"{place}.optim.lr_warmup_steps_ratio": values["warmup_ratio"] for place in (ACTOR, "critic")}


def _only(names: tuple[str, ...], reason: str) -> Callable[[Any], str]:
    return lambda value: "" if value in names else reason


_LOGS = "to TensorBoard's event files, which are in `logs/` of the run directory"
_DATA = ("data.train_files", "data.val_files")
SCHEDULES = ("cosine", "linear", "constant", "constant_with_warmup")

SFT: tuple[TRLKey, ...] = (
    TRLKey("model_name", text, (f"{MODEL}.path",), "a hub name, a folder, a run or `tiny`"),
    TRLKey(
        "out_dir", text, ("trainer.default_local_dir",), "`OUT_DIR/TOOL`; without a tool `OUT_DIR`", make=_run_folder
    ),
    TRLKey("tool", text, (*_DATA, "trainer.default_local_dir"), "the tool's folder in `data_root`", make=_run_folder),
    TRLKey("data_root", text, _DATA, "a folder of `recollect sft-data`", make=lambda values: {}),
    TRLKey("train_file", text, _DATA[:1], "`DATA_ROOT/TOOL/TRAIN_FILE`", "train.jsonl", lambda values: {}),
    TRLKey("val_file", text, _DATA[1:], "likewise; one that is not there is left out", "val.jsonl", lambda values: {}),
    TRLKey("min_reward", number, ("sft.min_reward",), "rows with a reward: those that reached this", 0.0),
    TRLKey("seed", whole, ("trainer.seed",), "", 42),
    TRLKey("max_steps", whole, ("sft.steps",), "updates; null or -1: `num_train_epochs` over the data", -1, _steps),
    TRLKey("num_train_epochs", count, ("trainer.total_epochs",), "passes over the data, whole ones", 1),
    TRLKey(
        "per_device_train_batch_size",
        count,
        ("sft.batch_size",),
        "× `gradient_accumulation_steps`: sequences of an update",
        2,
        _batch,
    ),
    TRLKey("gradient_accumulation_steps", count, ("sft.batch_size",), "as above", 4, _batch),
    TRLKey(
        "per_device_eval_batch_size",
        count,
        how="held-out loss is a mean over all tokens, whatever is computed together",
    ),
    TRLKey("learning_rate", number, ("sft.optim.lr",), "the largest one", 2e-5),
    TRLKey(
        "lr_scheduler_type",
        text,
        ("sft.optim.lr_scheduler_type", "sft.optim.lr_warmup_steps", "sft.optim.lr_warmup_steps_ratio"),
        f"{', '.join(SCHEDULES)}; `constant` has no warm-up",
        "cosine",
        _schedule,
        _only(SCHEDULES, f"there is no such schedule here; known: {', '.join(SCHEDULES)}"),
    ),
    TRLKey("warmup_ratio", number, ("sft.optim.lr_warmup_steps_ratio",), "share of all updates", 0.03, _schedule),
    TRLKey("weight_decay", number, ("sft.optim.weight_decay",), "", 0.0),
    TRLKey("max_grad_norm", number, (f"{ACTOR}.grad_clip",), "", 1.0),
    TRLKey("max_seq_length", count, ("sft.max_length",), "tokens; longer sequences are cut at their end", 1024),
    TRLKey(
        "eval_strategy",
        one_of("steps", "no", "epoch"),
        ("sft.test_freq",),
        "`steps`; `no`: only before and after training; `epoch` is refused: write `steps` and `eval_steps`",
        "steps",
        _evaluation,
        _only(("steps", "no"), "write eval_strategy: steps, and eval_steps: updates between measurements"),
    ),
    TRLKey("eval_steps", count, ("sft.test_freq",), "updates between measurements on held-out rows", 200, _evaluation),
    TRLKey("save_steps", count, ("sft.save_freq",), "updates between checkpoints", 200),
    TRLKey("save_total_limit", count, ("trainer.max_ckpt_to_keep",), "checkpoints that are kept", 2),
    TRLKey("logging_steps", count, ("sft.log_freq",), "updates between rows of `metrics.jsonl` and of the logs", 20),
    TRLKey("bf16", flag, (f"{ACTOR}.dtype",), "true: bfloat16; false: float32", False, _compute),
    TRLKey(
        "fp16",
        flag,
        how="false; true is refused, for nothing here scales losses as float16 needs it: write `bf16: true`",
        refuse=lambda value: "nothing here scales losses as float16 needs it; write bf16: true" if value else "",
    ),
    TRLKey("gradient_checkpointing", flag, (f"{MODEL}.enable_gradient_checkpointing",), "", True),
    TRLKey(
        "push_to_hub",
        flag,
        how="false; true is refused, for nothing is sent anywhere: `recollect export RUN --out DIR` makes a folder",
        refuse=lambda value: (
            "nothing is sent anywhere; `recollect export RUN --out DIR` makes a folder to upload" if value else ""
        ),
    ),
    TRLKey("report_to", texts, ("trainer.logger",), _LOGS, ["tensorboard"], trackers, unknown_tracker),
)

_BOTH_RATES = (f"{ACTOR}.optim.lr", "critic.optim.lr")
_SAME_CUT = "says how a mini-batch is cut; its loss is a mean over all of it, whatever the cut"
RL: tuple[TRLKey, ...] = (
    TRLKey("model_name", text, (f"{MODEL}.path",), "of the policy and of the critic"),
    TRLKey("out_dir", text, ("trainer.default_local_dir",), "the run directory"),
    TRLKey("seed", whole, ("trainer.seed",), "", 42),
    TRLKey("trajectory_glob", texts, ("data.train_files",), "raw, unified or recollect's own trajectories"),
    TRLKey("min_reward", number, ("data.min_reward",), "tasks whose best trajectory reached this", 0.0),
    TRLKey("max_examples", count, ("data.train_max_samples",), "tasks, drawn by the seed", 1000),
    TRLKey("learning_rate", number, _BOTH_RATES, "of the policy and of the critic", 1e-5),
    TRLKey("batch_size", count, ("data.train_batch_size",), "tasks of a step, each attempted once", 4),
    TRLKey("mini_batch_size", count, (f"{ACTOR}.ppo_mini_batch_size",), "attempts of an update; the critic's too", 2),
    TRLKey("ppo_epochs", count, (f"{ACTOR}.ppo_epochs",), "passes over a step's attempts; the critic's too", 4),
    TRLKey("max_grad_norm", number, (f"{ACTOR}.grad_clip", "critic.grad_clip"), "", 0.5),
    TRLKey("target_kl", number, (f"{ACTOR}.target_kl",), "a step's updates end at 1.5 × this divergence", 0.1),
    TRLKey(
        "vf_coef", number, ("critic.loss_coef",), "the critic has an optimizer of its own: felt by `max_grad_norm`", 0.1
    ),
    TRLKey("cliprange", number, (f"{ACTOR}.clip_ratio",), "", 0.2),
    TRLKey("cliprange_value", number, ("critic.cliprange_value",), "", 0.2),
    TRLKey("gamma", number, ("algorithm.gamma",), "", 0.99),
    TRLKey("lam", number, ("algorithm.lam",), "", 0.95),
    TRLKey("num_train_epochs", count, ("trainer.total_epochs",), "passes over the tasks, whole ones", 3),
    TRLKey(
        "per_device_train_batch_size",
        count,
        (f"{ACTOR}.ppo_micro_batch_size_per_gpu", "critic.ppo_micro_batch_size_per_gpu"),
        "sequences computed together, for memory alone",
        1,
    ),
    TRLKey("gradient_accumulation_steps", count, how=_SAME_CUT),
    TRLKey(
        "warmup_ratio",
        number,
        (f"{ACTOR}.optim.lr_warmup_steps_ratio", "critic.optim.lr_warmup_steps_ratio"),
        "share of all updates",
        0.1,
        _rl_warmup,
    ),
    TRLKey("logging_steps", count, how="every step has a row in `metrics.jsonl` and in the logs; none is left out"),
    TRLKey("save_steps", count, ("trainer.save_freq",), "steps between checkpoints; there is one at the end", 100),
    TRLKey("eval_steps", count, ("trainer.test_freq",), "steps between validations on `data.val_files`", 100),
    TRLKey("save_total_limit", count, ("trainer.max_ckpt_to_keep",), "checkpoints that are kept", 3),
    TRLKey("log_with", text, ("trainer.logger",), _LOGS, "tensorboard", trackers, unknown_tracker),
    TRLKey("report_to", texts, ("trainer.logger",), _LOGS, ["tensorboard"], trackers, unknown_tracker),
    TRLKey(
        "domain_weights", mapping, ("agent.reward_name",), "weights of the reward `trajectory`", make=lambda values: {}
    ),
)
RL_ALWAYS: Settings = {  # what the guide's PPO is, without a key
    "algorithm.adv_estimator": "gae",
    f"{ENGINE}.n": 1,
    "agent.agent_type": "domain",
    "agent.reward_name": "trajectory",
    f"{ACTOR}.optim.weight_decay": 0.0,
    "critic.optim.weight_decay": 0.0,
    "data.max_response_length": 256,
}
